// SPDX-License-Identifier: BSD-3-Clause
//
// The partitions that a rank serves. With threads, each partition has one that serves its lane, and no other touches
// its store. Without, there is one partition, and its calls are handled whenever the rank makes progress.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include <pt2p.hpp>

#include "protocol.hpp"

namespace kv {

class Partition {
public:
	Partition(pt2p::context &ctx, uint32_t id, size_t memory, bool evicts, bool threaded) : store_(memory, evicts)
	{
		pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
		options.lanes = threaded ? 1 : 0;
		service_ = pt2p::service(
		    ctx, id,
		    [this](pt2p::served_call call) {
			    try {
				    handle(std::move(call));
			    } catch (const std::exception &e) { // no memory for a reply: the caller is told that there will be none
				    std::fprintf(stderr, "kv: a request is given up: %s\n", e.what());
			    }
		    },
		    options);
		if (threaded)
			thread_ = std::thread([this] { serve(); });
	}
	~Partition()
	{
		stopped_ = true;
		if (thread_.joinable())
			thread_.join();
	}
	Partition(const Partition &) = delete;

	// Every so many puts, one is acknowledged and not carried out: kv check has to find that. 0: none.
	void lose_puts(unsigned every) { lose_every_ = every; }

private:
	void serve()
	{
		try {
			while (!stopped_)
				service_.serve(0, 64, 50'000'000);
		} catch (const pt2p::error &e) {
			std::fprintf(stderr, "kv: a thread that serves has ended: %s\n", e.what());
		}
	}

	void handle(pt2p::served_call call)
	{
		const std::span<const char> input = call.input<char>();
		Head head;
		if (input.size() < sizeof head)
			return call.reply_word(word(Status::malformed));
		std::memcpy(&head, input.data(), sizeof head);
		const std::string_view rest(input.data() + sizeof head, input.size() - sizeof head);
		if (head.key_length > rest.size())
			return call.reply_word(word(Status::malformed));
		const std::string_view key = rest.substr(0, head.key_length);
		switch (head.op) {
		case Op::get:
			if (const auto value = store_.get(key))
				return call.reply(std::span(value->data(), value->size()), word(Status::ok));
			return call.reply_word(word(Status::not_found));
		case Op::put:
			if (lose_every_ && ++puts_ % lose_every_ == 0)
				return call.reply_word(word(Status::ok));
			return call.reply_word(word(store_.put(key, rest.substr(key.size()))));
		case Op::erase: return call.reply_word(word(store_.erase(key)));
		case Op::get_many: return get_many(std::move(call), rest);
		case Op::facts: return call.reply(store_.facts(), word(Status::ok));
		}
		call.reply_word(word(Status::malformed));
	}

	// The reply is built where it leaves from. Nothing moves in the store meanwhile.
	void get_many(pt2p::served_call call, std::string_view keys)
	{
		std::vector<std::string_view> values;
		size_t length = 0;
		while (!keys.empty()) {
			const size_t key_length = static_cast<uint8_t>(keys[0]);
			if (key_length >= keys.size())
				return call.reply_word(word(Status::malformed));
			values.push_back(store_.get(keys.substr(1, key_length)).value_or(std::string_view()));
			length += sizeof missing + values.back().size();
			keys.remove_prefix(1 + key_length);
		}
		const std::span<char> room = call.reply_room<char>(length);
		char *to = room.data();
		for (const std::string_view value : values) {
			const uint32_t bytes = value.data() ? static_cast<uint32_t>(value.size()) : missing;
			to = std::copy_n(reinterpret_cast<const char *>(&bytes), sizeof bytes, to);
			to = std::copy(value.begin(), value.end(), to);
		}
		call.reply(room, word(Status::ok));
	}

	static uint64_t word(Status status) { return static_cast<uint64_t>(status); }

	Store store_;
	std::atomic<unsigned> lose_every_ = 0;
	unsigned puts_ = 0;
	std::atomic<bool> stopped_ = false;
	pt2p::service service_;
	std::thread thread_;
};

class Server {
public:
	// threads: 0, or as many partitions.
	Server(pt2p::context &ctx, unsigned threads, size_t memory, bool evicts)
	{
		const unsigned partitions = std::max(threads, 1u);
		for (unsigned i = 0; i < partitions; ++i)
			partitions_.push_back(std::make_unique<Partition>(ctx, i, memory / partitions, evicts, threads != 0));
	}
	void lose_puts(unsigned every)
	{
		for (auto &partition : partitions_)
			partition->lose_puts(every);
	}

private:
	std::vector<std::unique_ptr<Partition>> partitions_;
};

} // namespace kv
