// What the clients of a counter have drawn: checked, and measured.
#pragma once

#include "softhca/studies/programs/counter_check.hpp"
#include "softhca/studies/programs/study.hpp"

namespace study {

// So many clients draw `warm` numbers each in the mean, and then `each`, of which those from 10 to 80 % are measured.
// Who is quicker draws more, or others would be fewer at the end, and nobody waits in between.
class History {
public:
	History(size_t clients, size_t warm, size_t each)
	    : first_(clients * warm + clients * each / 10), last_(clients * warm + clients * each * 8 / 10),
	      all_(clients * (warm + each))
	{
	}

	// Whether a number is left to be drawn.
	bool begin() { return begun_ < all_ && ++begun_; }
	bool over() const { return draws_.size() == all_; }

	enum class Measurement { goes_on, begins, ends };
	Measurement add(const Draw &draw)
	{
		draws_.push_back(draw);
		const size_t done = draws_.size();
		if (done > first_ && done <= last_)
			latencies_.push_back(draw.ended - draw.began);
		if (done == first_)
			return since_ = now(), Measurement::begins;
		if (done == last_)
			return until_ = now(), Measurement::ends;
		return Measurement::goes_on;
	}
	// Ends the program if the history of the counter, which is at `counter` now, is wrong.
	void check(uint64_t counter) const
	{
		if (draws_.size() != all_ || counter != all_)
			give_up("%zu numbers were drawn of %zu", draws_.size(), all_);
		if (const std::string wrong = wrong_draw(draws_); !wrong.empty())
			give_up("%s", wrong.c_str());
	}
	double measured() const { return static_cast<double>(latencies_.size()); } // draws
	double took() const { return until_ - since_; }                            // ns
	// "M/s,mean,99 %", the latter two in ns.
	void print() const
	{
		const Latencies latencies(latencies_);
		std::printf("%.4g,%.0f,%.0f", measured() / took() * 1e3, latencies.mean, latencies.p99);
	}

private:
	const size_t first_, last_, all_; // draws
	size_t begun_ = 0;
	double since_ = 0, until_ = 0;
	std::vector<Draw> draws_;
	std::vector<double> latencies_;
};

} // namespace study
