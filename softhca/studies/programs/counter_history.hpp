// What the clients of a counter have drawn: checked, and measured.
#pragma once

#include "softhca/studies/programs/counter_check.hpp"
#include "softhca/studies/programs/study.hpp"

namespace study {

// So many clients draw `warm` numbers each, and then `each`, of which those from 10 to 80 % are measured.
class History {
public:
	History(size_t clients, size_t warm, size_t each) : clients(clients), warm(warm), each(each) {}

	const size_t clients, warm, each;
	size_t warm_clients = 0, done_clients = 0;
	bool warmed_up() const { return warm_clients == clients; }
	bool over() const { return done_clients == clients; }

	enum class Measurement { goes_on, begins, ends };
	Measurement add(const Draw &draw)
	{
		draws_.push_back(draw);
		if (!warmed_up())
			return Measurement::goes_on;
		const size_t all = clients * each, first = all / 10, last = all * 8 / 10;
		++done_;
		if (done_ > first && done_ <= last)
			latencies_.push_back(draw.ended - draw.began);
		if (done_ == first)
			return since_ = now(), Measurement::begins;
		if (done_ == last)
			return until_ = now(), Measurement::ends;
		return Measurement::goes_on;
	}
	// Ends the program if the history of the counter, which is at `counter` now, is wrong.
	void check(uint64_t counter) const
	{
		const size_t drawn = clients * (warm + each);
		if (draws_.size() != drawn || counter != drawn)
			give_up("%zu numbers were drawn of %zu", draws_.size(), drawn);
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
	size_t done_ = 0;
	double since_ = 0, until_ = 0;
	std::vector<Draw> draws_;
	std::vector<double> latencies_;
};

} // namespace study
