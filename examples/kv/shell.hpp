// SPDX-License-Identifier: BSD-3-Clause
//
// The commands of one client: get, put, delete, load, stats.
#pragma once

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "client.hpp"
#include "settings.hpp"

namespace kv {

class Shell {
public:
	Shell(pt2p::context &ctx, Layout layout) : ctx_(ctx), layout_(layout), client_(ctx, layout) {}

	// False when there is no such command. Throws Mistake when it fails.
	bool run(const std::string &name, const std::string &rest)
	{
		if (name == "get")
			get(rest);
		else if (name == "put")
			put(rest);
		else if (name == "delete")
			erase(rest);
		else if (name == "load")
			load(rest);
		else if (name == "stats")
			stats();
		else
			return false;
		return true;
	}

private:
	void get(const std::string &rest)
	{
		std::vector<std::string> keys;
		std::istringstream words(rest);
		for (std::string key; words >> key; keys.push_back(key))
			refuse(acceptable(key, {}), key, 0);
		if (keys.empty())
			throw Mistake("get needs at least one key");
		const auto values = client_.get_many(keys);
		std::string absent;
		for (size_t i = 0; i < keys.size(); ++i)
			if (!values[i])
				absent += (absent.empty() ? "\"" : ", \"") + keys[i] + "\"";
			else
				print((keys.size() == 1 ? "" : keys[i] + "\t") + *values[i] + "\n");
		if (!absent.empty())
			throw Mistake("there is no key " + absent);
	}
	static void print(const std::string &bytes) { std::fwrite(bytes.data(), 1, bytes.size(), stdout); }
	void put(const std::string &rest)
	{
		const size_t end = rest.find(' ');
		if (end == std::string::npos)
			throw Mistake("put needs a key and a value");
		const std::string key = rest.substr(0, end), value = rest.substr(end + 1);
		refuse(client_.put(key, value), key, value.size());
	}

	void erase(const std::string &rest)
	{
		const std::string key = rest.substr(0, rest.find(' '));
		refuse(client_.erase(key), key, 0);
	}

	// Lines are a key, a tab or else "=", and a value.
	void load(const std::string &path)
	{
		std::ifstream file(path);
		if (path.empty() || !file)
			throw Mistake("load cannot read \"" + path + "\"");
		struct Line {
			size_t number;
			std::string key;
			size_t length; // of the value
		};
		constexpr size_t depth = 32;
		std::vector<Line> lines(depth);
		size_t number = 0, loaded = 0;
		const auto settle = [&](const Line &line, Status status) {
			if (status != Status::ok)
				throw Mistake(path + ":" + std::to_string(line.number) + ": " + why(status, line.key, line.length));
			++loaded;
		};
		Pipeline calls(ctx_, layout_, depth,
		               [&](size_t slot, Status status, std::string_view) { settle(lines[slot], status); });
		for (std::string text; std::getline(file, text);) {
			++number;
			if (!text.empty() && text.back() == '\r')
				text.pop_back();
			if (text.empty())
				continue;
			size_t sign = text.find('\t');
			if (sign == std::string::npos)
				sign = text.find('=');
			if (sign == std::string::npos)
				throw Mistake(path + ":" + std::to_string(number) +
				              ": there is neither a tab nor \"=\" between key and value");
			const std::string_view key = std::string_view(text).substr(0, sign),
			                       value = std::string_view(text).substr(sign + 1);
			const Line line{number, std::string(key), value.size()};
			if (const Status status = acceptable(key, value); status != Status::ok)
				settle(line, status);
			lines[calls.slot()] = line;
			calls.start(Op::put, key, value);
		}
		calls.finish();
		std::printf("%zu items loaded from %s\n", loaded, path.c_str());
	}

	void stats()
	{
		std::printf(
		    "partition rank       items       bytes    capacity        gets       found        puts     evicted\n");
		for (size_t partition = 0; partition < layout_.count(); ++partition) {
			const Facts f = client_.facts(partition);
			std::printf("%9zu %4d", partition, layout_.place(partition).rank);
			for (const uint64_t figure : {f.items, f.bytes, f.capacity, f.gets, f.found, f.puts, f.evicted})
				std::printf(" %11llu", static_cast<unsigned long long>(figure));
			std::printf("\n");
		}
	}

	void refuse(Status status, const std::string &key, size_t value_length)
	{
		if (status != Status::ok)
			throw Mistake(why(status, key, value_length));
	}
	// Why the store has refused something, and what helps.
	std::string why(Status status, const std::string &key, size_t value_length)
	{
		const size_t partition = layout_.partition(key);
		const auto n = [](uint64_t number) { return std::to_string(number); };
		switch (status) {
		case Status::ok: break;
		case Status::not_found: return "there is no key \"" + key + "\"";
		case Status::full: {
			const Facts f = client_.facts(partition);
			return "memory is full: the " + n(f.items) + " items of partition " + n(partition) + ", which key \"" +
			       key + "\" belongs to, have " + n(f.bytes) + " of " + n(f.capacity) +
			       " bytes. Give more by --memory, let more ranks serve, or let the store evict by --cache";
		}
		case Status::key_length: return "a key has 1 to " + n(max_key) + " bytes, and this one has " + n(key.size());
		case Status::value_too_long: {
			const uint64_t limit = client_.facts(partition).value_max;
			return "the value has " + n(value_length) + " bytes, and a partition of this size takes up to " + n(limit) +
			       (limit < max_value ? ". Give more by --memory" : ", which is the limit. Store it in pieces");
		}
		case Status::malformed:
			return "the rank that serves this key does not understand the request: it runs another program";
		}
		return {};
	}

	pt2p::context &ctx_;
	const Layout layout_;
	Client client_;
};

} // namespace kv
