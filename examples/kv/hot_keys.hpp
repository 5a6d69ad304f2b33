// SPDX-License-Identifier: BSD-3-Clause
//
// Every client works on the same few keys at the same time. What all of them have seen is gathered and checked, key by
// key (check.hpp). Each value that is put is unique, so a get tells which put it saw. The check uses nothing that the
// store knows.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench.hpp"
#include "check.hpp"
#include "client.hpp"
#include "server.hpp"

namespace kv {

struct CheckSettings {
	uint32_t keys = 4, depth = 2, lose = 0; // lose: one of so many puts is lost
	uint64_t count = 1000, seed = 1;        // count: of each client

	static CheckSettings from(std::string_view words)
	{
		CheckSettings s;
		Settings given(words);
		given.take("keys", s.keys, 1, 1000);
		given.take("depth", s.depth, 1, 4); // the search may take exponentially long in what overlaps
		given.take("count", s.count, 1, 1e6);
		given.take("lose", s.lose, 1, 1e6);
		given.take("seed", s.seed, 0, 1e15);
		given.finish();
		return s;
	}
};

class HotKeys {
public:
	HotKeys(pt2p::context &ctx, Layout layout, int first, Server *server, const CheckSettings &settings)
	    : ctx_(ctx), layout_(layout), first_(first), server_(server), settings_(settings),
	      random_(settings.seed * 1'000'003 + static_cast<uint64_t>(ctx.rank())), started_(settings.depth),
	      calls_(ctx, layout, settings.depth,
	             [this](size_t slot, Status status, std::string_view value) { done(slot, status, value); })
	{
	}

	// All ranks. True, at rank 0, when the histories are linearizable.
	bool run()
	{
		uint64_t evicted = 0;
		if (ctx_.rank() == 0) {
			erase_all();
			evicted = all_evicted();
		}
		lose_puts(settings_.lose);
		ctx_.barrier();
		if (ctx_.rank() >= first_)
			work();
		ctx_.barrier();
		lose_puts(0);
		const bool good = ctx_.rank() == 0 ? judge(evicted) : give_to_first();
		if (ctx_.rank() == 0)
			erase_all();
		return good;
	}

private:
	static constexpr uint64_t tag_history = 3;
	struct Seen {
		uint32_t key;
		bool garbled; // the value is not one that was put
		Operation operation;
	};
	struct Summary {
		uint64_t operations, refused;
		char host[256];
	};

	static std::string name(uint32_t key) { return "check-" + std::to_string(key); }
	void lose_puts(unsigned every)
	{
		if (server_)
			server_->lose_puts(every);
	}
	void erase_all()
	{
		Client client(ctx_, layout_);
		for (uint32_t key = 0; key < settings_.keys; ++key)
			client.erase(name(key));
	}
	uint64_t all_evicted()
	{
		Client client(ctx_, layout_);
		uint64_t evicted = 0;
		for (size_t partition = 0; partition < layout_.count(); ++partition)
			evicted += client.facts(partition).evicted;
		return evicted;
	}

	void work()
	{
		for (uint64_t i = 0; i < settings_.count; ++i) {
			Seen next{static_cast<uint32_t>(random_.below(settings_.keys)), false, {Operation::get, 0, 0, 0}};
			const double kind = random_.fraction();
			std::string value;
			Op op = Op::get;
			if (kind > 0.9) {
				op = Op::erase;
				next.operation.kind = Operation::erase;
			} else if (kind > 0.45) {
				op = Op::put;
				next.operation.kind = Operation::put;
				next.operation.value = (static_cast<uint64_t>(ctx_.rank()) + 1) << 40 | i;
				value = text(next.operation.value);
			}
			const size_t slot = calls_.slot();
			next.operation.began = now();
			started_[slot] = next;
			calls_.start(op, name(next.key), value);
		}
		calls_.finish();
	}
	// A value begins with its number. Lengths differ, so that items move.
	std::string text(uint64_t number)
	{
		std::string value(sizeof number + ycsb::text_length(random_), 0);
		std::memcpy(value.data(), &number, sizeof number);
		ycsb::write_value(number, 0, std::span(value).subspan(sizeof number));
		return value;
	}
	void done(size_t slot, Status status, std::string_view value)
	{
		Seen &seen = started_[slot];
		seen.operation.ended = now();
		if (seen.operation.kind == Operation::erase)
			seen.operation.value = status == Status::ok;
		if (seen.operation.kind == Operation::get && status == Status::ok) {
			seen.garbled = value.size() < sizeof seen.operation.value;
			if (!seen.garbled) {
				std::memcpy(&seen.operation.value, value.data(), sizeof seen.operation.value);
				value.remove_prefix(sizeof seen.operation.value);
				seen.garbled = !ycsb::right_value(seen.operation.value, std::span(value.data(), value.size()));
			}
		}
		if (seen.operation.kind == Operation::put && status != Status::ok)
			++refused_; // it has not taken place
		else
			history_.push_back(seen);
	}

	Summary summary() const
	{
		pt2p_info_t info{};
		pt2p::check(pt2p_query(ctx_.get(), &info));
		Summary mine{history_.size(), refused_, {}};
		std::copy(info.host, info.host + sizeof mine.host, mine.host);
		return mine;
	}
	bool give_to_first()
	{
		ctx_.send(summary(), 0, tag_history);
		ctx_.send(std::span<const Seen>(history_), 0, tag_history);
		return true;
	}
	bool judge(uint64_t evicted)
	{
		const Summary mine = summary();
		bool one_host = true;
		for (int rank = 1; rank < ctx_.size(); ++rank) {
			Summary summary{};
			ctx_.recv(summary, rank, tag_history);
			const size_t before = history_.size();
			history_.resize(before + summary.operations);
			ctx_.recv(std::span(history_).subspan(before), rank, tag_history);
			refused_ += summary.refused;
			one_host &= !std::strcmp(summary.host, mine.host);
		}
		if (!one_host)
			return complain("the check compares the clocks of all ranks: run them on one machine");
		if (all_evicted() != evicted)
			return complain(
			    "items were evicted meanwhile, which looks like lost puts: leave out --cache, or give more --memory");
		if (refused_)
			return complain("puts were refused, as memory is full: give more --memory");
		std::vector<std::vector<Operation>> of(settings_.keys);
		for (const Seen &seen : history_) {
			if (seen.garbled)
				return complain("WRONG: a value of " + name(seen.key) + " is none that was put");
			of[seen.key].push_back(seen.operation);
		}
		for (uint32_t key = 0; key < settings_.keys; ++key)
			if (!linearizable(of[key])) {
				std::printf("NOT linearizable: the last of these operations on %s cannot be explained\n",
				            name(key).c_str());
				print(shortest_failure(of[key]));
				return false;
			}
		std::printf("linearizable: %zu operations of %d clients on %u keys\n", history_.size(), ctx_.size() - first_,
		            settings_.keys);
		return true;
	}
	static bool complain(const std::string &text)
	{
		std::printf("%s\n", text.c_str());
		return false;
	}
	// The last operations that have ended.
	static void print(std::vector<Operation> history)
	{
		std::sort(history.begin(), history.end(),
		          [](const Operation &a, const Operation &b) { return a.ended < b.ended; });
		std::erase_if(history, [](const Operation &o) { return o.ended == never; });
		history.erase(history.begin(), history.end() - std::min<ptrdiff_t>(std::ssize(history), 12));
		for (const Operation &o : history) {
			const char *const kinds[] = {"get", "put", "erase"};
			std::printf("  %8.3f ... %8.3f us  %s ", static_cast<double>(o.began - history[0].began) / 1e3,
			            static_cast<double>(o.ended - history[0].began) / 1e3, kinds[o.kind]);
			if (o.kind == Operation::erase || !o.value)
				std::printf("%s\n", o.value ? "found one" : "found none");
			else
				std::printf("%llu of rank %llu\n", static_cast<unsigned long long>(o.value & ((uint64_t(1) << 40) - 1)),
				            static_cast<unsigned long long>(o.value >> 40) - 1);
		}
	}

	pt2p::context &ctx_;
	const Layout layout_;
	const int first_;
	Server *const server_; // of this rank, if it has one
	const CheckSettings settings_;
	ycsb::Random random_;
	std::vector<Seen> started_, history_;
	uint64_t refused_ = 0;
	Pipeline calls_;
};

} // namespace kv
