// SPDX-License-Identifier: BSD-3-Clause
//
// The benchmark: every client puts its share of the keys, and then all of them work for some time, with some calls
// under way each.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <vector>

#include "client.hpp"
#include "settings.hpp"
#include "ycsb.hpp"

namespace kv {

inline int64_t now() // ns
{
	return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
	    .count();
}

struct BenchSettings {
	double gets = 95, seconds = 1;                // per cent; of the measurement, unless there is a count
	uint64_t keys = 100'000, count = 0, seed = 1; // count: of each client
	uint32_t value = 32, depth = 16;              // value: bytes, 0: the mix
	bool zipf = true, load = true, verify = false;

	static BenchSettings from(std::string_view words)
	{
		BenchSettings s;
		Settings given(words);
		given.take("get", s.gets, 0, 100);
		given.take("keys", s.keys, 1, 1e9);
		given.take("distribution", s.zipf, "zipf", "uniform");
		if (given.take_word("value", "mix"))
			s.value = 0;
		given.take("value", s.value, 1, max_value, 1024);
		given.take("depth", s.depth, 1, 4096);
		given.take("time", s.seconds, 0.001, 86400);
		given.take("count", s.count, 1, 1e12);
		given.take("load", s.load);
		given.take("verify", s.verify);
		given.take("seed", s.seed, 0, 1e15);
		given.finish();
		return s;
	}
};

// How often something took so long, in steps of 3 % and less.
class Histogram {
public:
	void add(int64_t ns) { ++counts_[bucket(static_cast<uint64_t>(std::max<int64_t>(ns, 0)))]; }
	void add(const Histogram &other)
	{
		for (size_t i = 0; i < counts_.size(); ++i)
			counts_[i] += other.counts_[i];
	}
	// What this share of all did not exceed, us.
	double quantile(double share) const
	{
		uint64_t all = 0, so_far = 0;
		for (const uint64_t count : counts_)
			all += count;
		size_t i = 0;
		while (i + 1 < counts_.size() && static_cast<double>(so_far += counts_[i]) < share * static_cast<double>(all))
			++i;
		return static_cast<double>(lower(i) + lower(i + 1)) / 2000;
	}

private:
	static constexpr uint64_t steps = 32; // in each doubling
	static size_t bucket(uint64_t ns)
	{
		const int shift = std::max(static_cast<int>(std::bit_width(ns)) - 6, 0);
		return std::min<size_t>(static_cast<size_t>(shift) * steps + (ns >> shift), size - 1);
	}
	static uint64_t lower(size_t bucket)
	{
		const uint64_t shift = bucket < 2 * steps ? 0 : bucket / steps - 1;
		return (bucket - shift * steps) << shift;
	}
	static constexpr size_t size = 36 * steps; // up to half an hour
	std::array<uint64_t, size> counts_{};
};

// What one client has done.
struct Figures {
	uint64_t calls = 0, gets = 0, found = 0, wrong = 0, refused = 0;
	double seconds = 0;
	Histogram latency;
};

class Bench {
public:
	// Clients are the ranks from `first` on.
	Bench(pt2p::context &ctx, Layout layout, int first, const BenchSettings &settings)
	    : ctx_(ctx), layout_(layout), first_(first), settings_(settings), served_(static_cast<size_t>(ctx.size())),
	      random_(settings.seed * 1'000'003 + static_cast<uint64_t>(ctx.rank())),
	      zipf_(settings.keys, 0.99, settings.zipf ? ycsb::Zipf::zeta(settings.keys, 0.99) : 1),
	      value_(std::max<size_t>(settings.value, 899)), started_(settings.depth),
	      calls_(ctx, layout, settings.depth,
	             [this](size_t slot, Status status, std::string_view value) { done(slot, status, value); })
	{
	}

	// All ranks. True, at rank 0, when nothing was wrong.
	bool run()
	{
		if (settings_.load && is_client())
			load();
		ctx_.barrier();
		const uint64_t refused = mine_.refused;
		mine_ = {};
		mine_.refused = refused;
		std::fill(served_.begin(), served_.end(), 0);
		if (is_client())
			work();
		ctx_.barrier();
		if (ctx_.rank() == 0)
			return print();
		ctx_.send(mine_, 0, tag_figures);
		ctx_.send(std::span<const uint64_t>(served_), 0, tag_figures);
		return true;
	}

private:
	static constexpr uint64_t tag_figures = 2;
	struct Started {
		int64_t when;
		uint64_t item;
		Op op;
	};

	bool is_client() const { return ctx_.rank() >= first_; }
	uint64_t clients() const { return static_cast<uint64_t>(ctx_.size() - first_); }

	void load()
	{
		for (auto item = static_cast<uint64_t>(ctx_.rank() - first_); item < settings_.keys; item += clients())
			start(Op::put, item);
		calls_.finish();
	}
	void work()
	{
		const int64_t begin = now();
		const auto end = begin + static_cast<int64_t>(settings_.seconds * 1e9);
		for (uint64_t i = 0; settings_.count ? i < settings_.count : now() < end; ++i) {
			const bool get = random_.fraction() * 100 < settings_.gets;
			const uint64_t item = settings_.zipf ? zipf_(random_) : random_.below(settings_.keys);
			start(get ? Op::get : Op::put, item);
		}
		calls_.finish();
		mine_.seconds = static_cast<double>(now() - begin) * 1e-9;
	}
	void start(Op op, uint64_t item)
	{
		char key[ycsb::key_length];
		ycsb::write_key(item, key);
		std::span<char> value;
		if (op == Op::put) {
			value = std::span(value_).first(settings_.value ? settings_.value : ycsb::text_length(random_));
			ycsb::write_value(item, static_cast<uint8_t>(random_()), value);
		}
		const std::string_view name(key, sizeof key);
		++served_[static_cast<size_t>(layout_.place(layout_.partition(name)).rank)];
		started_[calls_.slot()] = {now(), item, op};
		calls_.start(op, name, {value.data(), value.size()});
	}
	void done(size_t slot, Status status, std::string_view value)
	{
		const Started &call = started_[slot];
		mine_.latency.add(now() - call.when);
		++mine_.calls;
		mine_.gets += call.op == Op::get;
		mine_.found += call.op == Op::get && status == Status::ok;
		mine_.refused += call.op == Op::put && status != Status::ok;
		if (settings_.verify && call.op == Op::get && status == Status::ok)
			mine_.wrong += !ycsb::right_value(call.item, value);
	}

	bool print()
	{
		const auto count = [](uint64_t n) { return static_cast<unsigned long long>(n); };
		std::vector<Figures> of(served_.size());
		of[0] = mine_;
		for (int rank = 1; rank < ctx_.size(); ++rank) {
			std::vector<uint64_t> more(served_.size());
			ctx_.recv(of[static_cast<size_t>(rank)], rank, tag_figures);
			ctx_.recv(std::span(more), rank, tag_figures);
			for (size_t i = 0; i < more.size(); ++i)
				served_[i] += more[i];
		}
		Figures all;
		for (const Figures &one : of) {
			all.calls += one.calls;
			all.gets += one.gets;
			all.found += one.found;
			all.wrong += one.wrong;
			all.refused += one.refused;
			all.seconds = std::max(all.seconds, one.seconds);
			all.latency.add(one.latency);
		}
		char value[32] = "1 ... 899";
		if (settings_.value)
			std::snprintf(value, sizeof value, "%u", settings_.value);
		std::printf("%llu keys, %s, %g %% gets, values of %s bytes, %llu clients with %u calls under way each\n",
		            count(settings_.keys), settings_.zipf ? "zipf 0.99" : "uniform", settings_.gets, value,
		            count(clients()), settings_.depth);
		std::printf("rank  calls made  calls served  share served\n");
		for (size_t rank = 0; rank < of.size(); ++rank)
			std::printf("%4zu %11llu %13llu %12.1f%%\n", rank, count(of[rank].calls), count(served_[rank]),
			            100 * static_cast<double>(served_[rank]) /
			                static_cast<double>(std::max<uint64_t>(all.calls, 1)));
		std::printf("%.0f calls/s in %.2f s, latency: median %.2f us, 99 %% %.2f us\n",
		            static_cast<double>(all.calls) / all.seconds, all.seconds, all.latency.quantile(0.5),
		            all.latency.quantile(0.99));
		std::printf("%llu of %llu gets found a value%s\n", count(all.found), count(all.gets),
		            settings_.verify ? ", and each was checked" : "");
		if (all.refused)
			std::printf(
			    "%llu puts were refused, as memory is full or the value too long: give more (--memory), or let the "
			    "store evict (--cache)\n",
			    count(all.refused));
		if (all.wrong)
			std::printf("WRONG: %llu values were not those of their keys\n", count(all.wrong));
		return !all.refused && !all.wrong;
	}

	pt2p::context &ctx_;
	const Layout layout_;
	const int first_;
	const BenchSettings settings_;
	Figures mine_;
	std::vector<uint64_t> served_; // by each rank, for this client; at rank 0 in the end for all
	ycsb::Random random_;
	const ycsb::Zipf zipf_;
	std::vector<char> value_;
	std::vector<Started> started_;
	Pipeline calls_;
};

} // namespace kv
