// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/bench.hpp"

#include <algorithm>
#include <cmath>

namespace pt2p::perf {

double median(std::vector<double> values)
{
	if (values.empty())
		return 0;
	std::sort(values.begin(), values.end());
	const size_t n = values.size();
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

namespace {

constexpr int kRepetitions = 51;

template <class F>
uint64_t search(double target, double &seconds, F &&run)
{
	uint64_t n = 1;
	run(n);
	for (int tries = 0; tries < 40; ++tries) {
		seconds = run(n);
		const double wanted = target / std::max(seconds, 1e-9);
		if (wanted < 1.5)
			break;
		n = static_cast<uint64_t>(std::ceil(static_cast<double>(n) * std::min(wanted, 10.0)));
	}
	return n;
}

} // namespace

Bench::Bench(Pair &pair, const Options &options) : pair_(pair), options_(options)
{
	if (options.baseline || options.demo) {
		no_baseline_ = pair.prepare_handoff();
		baseline_ = no_baseline_.empty();
	}
}

Point Bench::measure(Test test, size_t size)
{
	Point p;
	p.test = test;
	p.size = size;
	p.window = one_at_a_time(test) ? 1 : pair_.usable_window(size, options_.window);
	const bool beside = baseline_ && test == Test::lat;
	double first = 0;
	const double target = options_.time / kRepetitions / (beside ? 2 : 1);
	const uint64_t iterations = agree(calibrate(p, target, first));
	const int affordable =
	    static_cast<int>(std::clamp(2 * options_.time / std::max(first, 1e-9), 5.0, double{kRepetitions}));
	const int repetitions = options_.repetitions ? options_.repetitions : static_cast<int>(agree(affordable));
	const uint64_t trips = beside ? agree(calibrate_handoff(target / 2)) : 0;
	for (int r = 0; r < repetitions; ++r) {
		line_up();
		const double value = figure(p, iterations, pair_.burst(test, size, p.window, iterations));
		p.values.push_back(value);
		if (!beside)
			continue;
		// The order turns round each time, so that neither follows the messages more often.
		double bare[2];
		for (int k : {r % 2, 1 - r % 2}) {
			line_up();
			bare[k] = pair_.handoff_burst(k == 1, trips) / static_cast<double>(trips) / 2 * 1e6;
		}
		p.tight.push_back(bare[0]);
		p.pausing.push_back(bare[1]);
	}
	combine(p);
	for (size_t r = 0; r < p.tight.size(); ++r) {
		p.ratio_tight.push_back(p.values[r] / p.tight[r]);
		p.ratio_pausing.push_back(p.values[r] / p.pausing[r]);
	}
	return p;
}

double Bench::figure(const Point &p, uint64_t iterations, double seconds) const
{
	const double n = static_cast<double>(iterations);
	const double bytes = static_cast<double>(p.size) * static_cast<double>(p.window) * n;
	switch (p.test) {
	case Test::lat: return seconds / n * 1e6 / (pair_.alone() ? 1 : 2);
	case Test::call:
	case Test::windows: return seconds / n * 1e6;
	case Test::bw: return bytes / seconds / 1e6;
	case Test::bibw: return bytes * (pair_.alone() ? 1 : 2) / seconds / 1e6;
	default: return static_cast<double>(p.window) * n / seconds / 1e6;
	}
}

// How many iterations take about `target` seconds; finding out warms everything up.
uint64_t Bench::calibrate(const Point &p, double target, double &seconds)
{
	if (options_.iterations) {
		seconds = pair_.burst(p.test, p.size, p.window, std::max<uint64_t>(1, options_.iterations / 10));
		return options_.iterations;
	}
	return search(target, seconds, [&](uint64_t n) { return pair_.burst(p.test, p.size, p.window, n); });
}

uint64_t Bench::calibrate_handoff(double target)
{
	double seconds = 0;
	return search(target, seconds, [&](uint64_t n) { return pair_.handoff_burst(false, n); });
}

void Bench::line_up()
{
	if (pair_.pairs() < 2)
		return;
	agree(0);
}

// Every leader gets rank 0's value, and nobody goes on before all have come.
uint64_t Bench::agree(uint64_t value)
{
	if (pair_.rank() != 0) {
		must(ctx(), "pt2p_send", pt2p_send(ctx(), nullptr, 0, 0, kTagLine));
		must(ctx(), "pt2p_recv", pt2p_recv(ctx(), &value, sizeof value, 0, kTagAgree, PT2P_TAG_EXACT, nullptr));
		return value;
	}
	for (int r = 1; r < pair_.pairs(); ++r)
		must(ctx(), "pt2p_recv", pt2p_recv(ctx(), nullptr, 0, r, kTagLine, PT2P_TAG_EXACT, nullptr));
	for (int r = 1; r < pair_.pairs(); ++r)
		must(ctx(), "pt2p_send", pt2p_send(ctx(), &value, sizeof value, r, kTagAgree));
	return value;
}

// At rank 0: the mean latency of the pairs, the sum of their bandwidths and rates.
void Bench::combine(Point &p)
{
	for (std::vector<double> *list : {&p.values, &p.tight, &p.pausing}) {
		if (list->empty())
			continue;
		const size_t bytes = list->size() * sizeof(double);
		if (pair_.rank() != 0) {
			must(ctx(), "pt2p_send", pt2p_send(ctx(), list->data(), bytes, 0, kTagFigures));
			continue;
		}
		std::vector<double> theirs(list->size());
		for (int r = 1; r < pair_.pairs(); ++r) {
			must(ctx(), "pt2p_recv", pt2p_recv(ctx(), theirs.data(), bytes, r, kTagFigures, PT2P_TAG_EXACT, nullptr));
			for (size_t i = 0; i < theirs.size(); ++i)
				(*list)[i] += theirs[i];
		}
		if (one_at_a_time(p.test))
			for (double &value : *list)
				value /= pair_.pairs();
	}
}

} // namespace pt2p::perf
