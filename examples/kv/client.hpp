// SPDX-License-Identifier: BSD-3-Clause
//
// A client of the store: get, put and erase one at a time, or several under way at once.
#pragma once

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <pt2p.hpp>

#include "protocol.hpp"

namespace kv {

// Where the reply to a call goes, of whatever length: the library asks for room when it is there.
inline pt2p_call_options_t reply_to(std::string &reply)
{
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	options.argument = &reply;
	options.room = [](void *to, size_t length) -> void * {
		static_cast<std::string *>(to)->resize(length);
		return static_cast<std::string *>(to)->data();
	};
	return options;
}

// What needs no call.
inline Status acceptable(std::string_view key, std::string_view value)
{
	if (key.empty() || key.size() > max_key)
		return Status::key_length;
	return value.size() > max_value ? Status::value_too_long : Status::ok;
}

// Up to `depth` calls under way. A lost rank, and whatever else ends a call without a reply, is thrown as pt2p::error.
class Pipeline {
public:
	// Called when a call has ended; the value of a get is valid until its slot is used again.
	using Done = std::function<void(size_t slot, Status, std::string_view value)>;

	Pipeline(pt2p::context &ctx, Layout layout, size_t depth, Done done)
	    : ctx_(ctx.get()), layout_(layout), done_(std::move(done)), slots_(depth), requests_(depth), indices_(depth),
	      results_(depth)
	{
		for (size_t i = depth; i-- > 0; free_.push_back(i))
			slots_[i].reply.resize(1024);
	}
	~Pipeline()
	{
		for (pt2p_request_t *request : requests_) // after an error; else there are none
			if (request) {
				pt2p_cancel(ctx_, request);
				pt2p_wait(ctx_, request, nullptr);
			}
	}
	Pipeline(const Pipeline &) = delete;

	// A slot for a call. Waits for one when all are under way.
	size_t slot()
	{
		while (free_.empty())
			finish_some();
		return free_.back();
	}
	// Starts a call in the slot that was given last. The key and the value must be acceptable.
	void start(Op op, std::string_view key, std::string_view value = {})
	{
		const size_t i = free_.back();
		Slot &slot = slots_[i];
		const Head head{op, static_cast<uint8_t>(key.size())};
		slot.input.assign(reinterpret_cast<const char *>(&head), sizeof head).append(key).append(value);
		const pt2p_call_options_t options = reply_to(slot.reply);
		const auto [rank, service] = layout_.place(layout_.partition(key));
		pt2p::check(pt2p_icall(ctx_, rank, service, slot.input.data(), slot.input.size(), slot.reply.data(),
		                       slot.reply.size(), &options, &requests_[i]),
		            ctx_);
		free_.pop_back();
	}
	// Waits for all.
	void finish()
	{
		while (free_.size() < slots_.size())
			finish_some();
	}

private:
	struct Slot {
		std::string input, reply;
	};

	void finish_some()
	{
		size_t n = 0;
		pt2p::check(pt2p_waitsome(ctx_, requests_.size(), requests_.data(), &n, indices_.data(), results_.data()),
		            ctx_);
		for (size_t k = 0; k < n; ++k) {
			const size_t i = indices_[k];
			free_.push_back(i);
			done_(i, static_cast<Status>(results_[k].tag), {slots_[i].reply.data(), results_[k].length});
		}
	}

	pt2p_context_t *const ctx_;
	const Layout layout_;
	const Done done_;
	std::vector<Slot> slots_;
	std::vector<size_t> free_;
	std::vector<pt2p_request_t *> requests_; // of the slots
	std::vector<size_t> indices_;
	std::vector<pt2p_result_t> results_;
};

// One call at a time.
class Client {
public:
	Client(pt2p::context &ctx, Layout layout) : ctx_(ctx), layout_(layout) {}

	Status get(std::string_view key, std::string &value) { return one(Op::get, key, {}, value); }
	Status put(std::string_view key, std::string_view value) { return one(Op::put, key, value, nothing_); }
	Status erase(std::string_view key) { return one(Op::erase, key, {}, nothing_); }
	Facts facts(size_t partition)
	{
		std::string bytes;
		call(partition, Op::facts, {}, {}, bytes);
		Facts facts{};
		if (bytes.size() == sizeof facts)
			std::memcpy(&facts, bytes.data(), sizeof facts);
		return facts;
	}

	// The values of several keys, each acceptable, with one call for each partition that has some of them.
	std::vector<std::optional<std::string>> get_many(const std::vector<std::string> &keys)
	{
		std::vector<std::vector<size_t>> wanted(layout_.count()); // of each partition: which of the keys
		for (size_t i = 0; i < keys.size(); ++i)
			wanted[layout_.partition(keys[i])].push_back(i);
		std::vector<std::optional<std::string>> values(keys.size());
		for (size_t partition = 0; partition < wanted.size(); ++partition) {
			std::string list, reply;
			for (const size_t i : wanted[partition])
				list.append(1, static_cast<char>(keys[i].size())).append(keys[i]);
			if (!list.empty() && call(partition, Op::get_many, {}, list, reply) == Status::ok)
				take_apart(reply, wanted[partition], values);
		}
		return values;
	}

private:
	Status one(Op op, std::string_view key, std::string_view value, std::string &reply)
	{
		const Status status = acceptable(key, value);
		return status == Status::ok ? call(layout_.partition(key), op, key, value, reply) : status;
	}
	Status call(size_t partition, Op op, std::string_view key, std::string_view value, std::string &reply)
	{
		const Head head{op, static_cast<uint8_t>(key.size())};
		std::string input(reinterpret_cast<const char *>(&head), sizeof head);
		input.append(key).append(value);
		reply.clear();
		const pt2p_call_options_t options = reply_to(reply);
		const auto [rank, service] = layout_.place(partition);
		pt2p_result_t result{};
		pt2p::check(pt2p_call(ctx_.get(), rank, service, input.data(), input.size(), nullptr, 0, &options, &result),
		            ctx_.get());
		return static_cast<Status>(result.tag);
	}
	static void take_apart(std::string_view reply, const std::vector<size_t> &which,
	                       std::vector<std::optional<std::string>> &values)
	{
		for (const size_t i : which) {
			uint32_t length;
			if (reply.size() < sizeof length)
				return;
			std::memcpy(&length, reply.data(), sizeof length);
			reply.remove_prefix(sizeof length);
			if (length == missing)
				continue;
			values[i] = reply.substr(0, length);
			reply.remove_prefix(values[i]->size());
		}
	}

	pt2p::context &ctx_;
	const Layout layout_;
	std::string nothing_;
};

} // namespace kv
