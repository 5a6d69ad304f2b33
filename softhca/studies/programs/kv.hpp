// A key-value store under the load of YCSB. Keys are distributed over the ranks by their hash; each rank is a server of
// its share and a client of all. Requests and answers are messages; a client has a window of requests in flight. A
// Messenger carries the messages: kv_load.cpp, ucx_load.cpp.
//
// workload: a, b, c: 50, 5, 0 % updates (c: reads only). Keys are drawn as in YCSB, from a scrambled Zipf distribution
// with 0.99, or with keys=uniform uniformly. Values have `bytes`. Each request takes `work` ns of a server's processor
// (assumed), beside the messenger's calls, which the model charges. connect=yes: each client first asks each server
// once; else connections are made with the first key that needs them, and a short load of many nodes mostly connects.
// partners: the keys of a client are on so many ranks, which follow the rank half way round; 0: on all. The last 70 %
// of `operations` are measured, or those after the first `warm` %. A rank has at most `receives` posted and `sends` in
// flight; ?: more than enough.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <malloc.h>
#include <memory>
#include <optional>

#include "softhca/studies/programs/study.hpp"

namespace kv {

using namespace study;

// As in YCSB (Cooper et al., SoCC 2010; Gray et al., SIGMOD 1994): ranks of 10^10 items, whose hashes are the keys.
class Keys {
public:
	Keys(uint64_t seed, bool uniform) : state_(seed * 0x9e3779b97f4a7c15u | 1), uniform_(uniform) {}

	double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
	uint64_t key()
	{
		if (uniform_)
			return next();
		constexpr double items = 1e10, theta = 0.99, zeta = 26.46902820178302; // zeta: sum of 1/i^theta over the items
		static const double zeta_2 = 1 + std::pow(0.5, theta), alpha = 1 / (1 - theta),
		                    eta = (1 - std::pow(2 / items, 1 - theta)) / (1 - zeta_2 / zeta);
		const double u = fraction(), uz = u * zeta;
		if (uz < 1)
			return hash(0);
		if (uz < zeta_2)
			return hash(1);
		return hash(static_cast<uint64_t>(items * std::pow(eta * u - eta + 1, alpha)));
	}
	static uint64_t hash(uint64_t value) // FNV-1a, byte by byte
	{
		uint64_t h = 0xcbf29ce484222325u;
		for (int i = 0; i < 8; ++i, value >>= 8)
			h = (h ^ (value & 0xff)) * 0x100000001b3u;
		return h;
	}

private:
	uint64_t next() // xorshift64*
	{
		state_ ^= state_ >> 12;
		state_ ^= state_ << 25;
		state_ ^= state_ >> 27;
		return state_ * 0x2545f4914f6cdd1du;
	}
	uint64_t state_;
	const bool uniform_;
};

enum class Kind : uint32_t { read, update, answer };
struct Header {
	uint64_t key;
	Kind kind;
	uint32_t slot; // of the client's window
};

// A value says which key it belongs to.
inline unsigned char value_byte(uint64_t key, size_t i)
{
	return static_cast<unsigned char>(Keys::hash(key) >> 8 * (i % 8) | 1);
}

struct Load {
	size_t ranks, window, bytes, operations, partners, receives, sends;
	double updates, work;
	bool uniform, connect;

	size_t message_bytes() const { return sizeof(Header) + bytes; }
	// How many servers a client asks, beside itself; which they are, from 0 on.
	size_t servers() const { return partners ? partners : ranks - 1; }
	size_t server(size_t client, size_t i) const { return (client + (partners ? ranks / 2 : 0) + 1 + i) % ranks; }
	// Whom a client asks for a key.
	size_t owner(uint64_t key, size_t client) const
	{
		const size_t hash = Keys::hash(key);
		return partners ? server(client, hash % partners) : hash % ranks;
	}
};

// Moves the messages of a rank. Receives and sends are known by their index.
class Messenger {
public:
	virtual ~Messenger() = default;
	// A message from anybody goes to `buffer`.
	virtual void receive(size_t place, void *buffer, size_t room) = 0;
	// Who has sent the message of this receive; nothing, after progress, if there is none yet.
	virtual std::optional<size_t> received(size_t place) = 0;
	virtual void send(size_t place, size_t to, const void *buffer, size_t bytes) = 0;
	// Whether the buffer may be used again; if not, makes progress.
	virtual bool sent(size_t place) = 0;
	virtual void barrier() = 0;
	// Cancels all receives and waits for all sends.
	virtual void finish() = 0;
};

// What all ranks share: they are fibres of one thread.
struct Shared {
	size_t connected = 0, done = 0, first = 0, drained = 0; // the first and the last count ranks
	double since = 0, until = 0;
	std::vector<uint32_t> latencies; // ns
	std::map<std::string, uint64_t> counters;
};
inline const char *const counted[] = {"doorbells",    "cqes",      "dc_connects",  "dc_switches",
                                      "packets_sent", "wqe_reads", "payload_reads"};

inline void one_done(Shared &shared, const Load &load, double latency)
{
	++shared.done;
	if (shared.done == shared.first) {
		shared.since = now();
		for (const char *name : counted)
			shared.counters[name] = device_counter(name);
	} else if (shared.done > shared.first && shared.done <= load.operations && latency >= 0) {
		shared.latencies.push_back(static_cast<uint32_t>(latency));
	}
	if (shared.done == load.operations) {
		shared.until = now();
		for (const char *name : counted)
			shared.counters[name] = device_counter(name) - shared.counters[name];
	}
}

class Rank {
public:
	Rank(size_t me, Messenger &messenger, const Load &load, Shared &shared)
	    : messenger_(messenger), load_(load), shared_(shared), me_(me), keys_(me_ + 1, load.uniform),
	      message_bytes_(load.message_bytes()), memory_((load.receives + load.sends) * message_bytes_),
	      started_(load.window)
	{
		for (size_t i = 0; i < load.window; ++i)
			free_.push_back(static_cast<uint32_t>(i));
	}

	void run()
	{
		for (size_t i = 0; i < load_.receives; ++i)
			receive(i);
		messenger_.barrier();
		if (load_.connect)
			connect();
		counts_ = true;
		bool drained = false;
		while (shared_.drained < load_.ranks) {
			catch_up();
			while (shared_.done < load_.operations && !free_.empty())
				if (!issue())
					break;
			serve_some();
			if (!drained && shared_.done >= load_.operations && free_.size() == load_.window) {
				drained = true;
				++shared_.drained;
			}
		}
		messenger_.finish();
		messenger_.barrier();
	}

private:
	// What the client waits for.
	struct Started {
		double when;
		uint64_t key;
		Kind kind;
	};

	unsigned char *receive_buffer(size_t i) { return memory_.data() + i * message_bytes_; }
	unsigned char *send_buffer(size_t i) { return memory_.data() + (load_.receives + i) * message_bytes_; }
	void receive(size_t i)
	{
		std::memset(receive_buffer(i), 0, message_bytes_);
		messenger_.receive(i, receive_buffer(i), message_bytes_);
	}
	void send(size_t to, const Header &header, bool with_value)
	{
		const size_t place = next_send_++ % load_.sends;
		while (!messenger_.sent(place)) {
		}
		unsigned char *buffer = send_buffer(place);
		std::memcpy(buffer, &header, sizeof header);
		for (size_t i = 0; with_value && i < load_.bytes; ++i)
			buffer[sizeof header + i] = value_byte(header.key, i);
		messenger_.send(place, to, buffer, sizeof header + (with_value ? load_.bytes : 0));
	}
	void check_value(const Header &header, const unsigned char *value) const
	{
		for (size_t i = 0; i < load_.bytes; ++i)
			if (value[i] != value_byte(header.key, i))
				give_up("rank %zu: byte %zu of a value is not that of its key", me_, i);
	}
	// Asks each other rank once, a key of its own.
	void connect()
	{
		size_t asked = 0;
		for (bool all = false; shared_.connected < load_.ranks;) {
			catch_up();
			for (; asked < load_.servers() && !free_.empty(); ++asked) {
				const size_t owner = load_.server(me_, asked);
				uint64_t key = keys_.key();
				while (load_.owner(key, me_) != owner)
					++key;
				ask(owner, key, Kind::read);
			}
			serve_some();
			if (!all && asked == load_.servers() && free_.size() == load_.window) {
				all = true;
				++shared_.connected;
			}
		}
	}
	void ask(size_t owner, uint64_t key, Kind kind)
	{
		const uint32_t slot = free_.back();
		free_.pop_back();
		started_[slot] = {now(), key, kind};
		send(owner, {key, kind, slot}, kind == Kind::update);
	}
	// False after a key of this rank's own, so that the others run.
	bool issue()
	{
		const uint64_t key = keys_.key();
		const size_t owner = load_.owner(key, me_);
		const bool update = keys_.fraction() < load_.updates;
		if (owner == me_) {
			compute(load_.work);
			one_done(shared_, load_, -1);
			return false;
		}
		ask(owner, key, update ? Kind::update : Kind::read);
		return true;
	}
	void serve_some()
	{
		for (int done = 1, n = 0; done && n < 16; ++n)
			done = serve();
	}
	// Takes the next message, if there is one.
	bool serve()
	{
		const size_t place = next_receive_ % load_.receives;
		const std::optional<size_t> from = messenger_.received(place);
		if (!from)
			return false;
		++next_receive_;
		Header header;
		std::memcpy(&header, receive_buffer(place), sizeof header);
		const unsigned char *value = receive_buffer(place) + sizeof header;
		if (header.kind == Kind::answer) {
			const Started &asked = started_[header.slot];
			if (header.key != asked.key)
				give_up("rank %zu: an answer for another key", me_);
			if (asked.kind == Kind::read)
				check_value(header, value);
			if (counts_)
				one_done(shared_, load_, now() - asked.when);
			free_.push_back(header.slot);
		} else {
			if (load_.owner(header.key, *from) != me_)
				give_up("rank %zu: a request for another rank", me_);
			compute(load_.work);
			const bool read = header.kind == Kind::read;
			if (!read)
				check_value(header, value);
			header.kind = Kind::answer;
			send(*from, header, read);
		}
		receive(place);
		return true;
	}

	Messenger &messenger_;
	const Load &load_;
	Shared &shared_;
	const size_t me_;
	Keys keys_;
	const size_t message_bytes_;
	std::vector<unsigned char> memory_;
	std::vector<Started> started_;
	std::vector<uint32_t> free_;
	size_t next_receive_ = 0, next_send_ = 0;
	bool counts_ = false; // what is done
};

// Everything from the command line to a line of figures. `more` are the messenger's own settings.
class Study {
public:
	Study(int argc, char **argv, const std::map<std::string, std::string> &more) : settings(argc, argv, defaults(more))
	{
		if (settings.text("header") != "no")
			std::puts(
			    "policy,nodes,ranks_per_node,workload,keys,bytes,window,Mops,mean_ns,p50_ns,p99_ns,queue_pairs_per_"
			    "node,"
			    "bytes_per_node,"
			    "doorbells_per_op,cqes_per_op,packets_per_op,dc_connects_per_op,dc_switches_per_op,forwarded_per_op");
		const std::string &workload = settings.text("workload");
		load.ranks = nodes() * per_node();
		load.window = settings.count("window");
		load.receives = settings.text("receives") == "?" ? load.window + 64 : settings.count("receives");
		load.sends = settings.text("sends") == "?" ? 2 * load.window + 64 : settings.count("sends");
		load.bytes = settings.count("bytes");
		load.operations = settings.count("operations");
		load.partners = settings.count("partners");
		load.updates = workload == "a" ? 0.5 : workload == "b" ? 0.05 : 0;
		load.work = settings.number("work");
		load.uniform = settings.text("keys") == "uniform";
		load.connect = settings.text("connect") == "yes";
		shared_.first = load.operations * settings.count("warm") / 100;
	}
	size_t nodes() const { return settings.count("nodes"); }
	size_t per_node() const { return settings.count("ranks"); }

	// Memory is counted from here on.
	void begin() { before_ = allocated(); }
	void run(size_t rank, Messenger &messenger)
	{
		shared_.latencies.reserve(load.operations);
		std::make_unique<Rank>(rank, messenger, load, shared_)->run();
	}
	void end() { memory_ = allocated() - before_ - load.operations * sizeof(uint32_t); }

	void print(uint64_t forwarded)
	{
		std::vector<uint32_t> &all = shared_.latencies;
		std::sort(all.begin(), all.end());
		const auto of_all = [&](double part) {
			return all.empty() ? 0 : all[static_cast<size_t>(part * static_cast<double>(all.size() - 1))];
		};
		double sum = 0;
		for (const uint32_t latency : all)
			sum += latency;
		const auto measured = static_cast<double>(load.operations - shared_.first), each = static_cast<double>(nodes());
		const auto per_op = [&](const char *name) { return static_cast<double>(shared_.counters[name]) / measured; };
		std::printf("%s,%zu,%zu,%s,%s,%zu,%zu,%.3f,%.0f,%u,%u,%.1f,%.0f,%.2f,%.2f,%.2f,%.3f,%.3f,%.3f\n",
		            settings.text("name").c_str(), nodes(), per_node(), settings.text("workload").c_str(),
		            settings.text("keys").c_str(), load.bytes, load.window,
		            measured / (shared_.until - shared_.since) * 1e3,
		            sum / static_cast<double>(std::max<size_t>(all.size(), 1)), of_all(0.5), of_all(0.99),
		            softhca_queue_pairs(-1) / each, static_cast<double>(memory_) / each, per_op("doorbells"),
		            per_op("cqes"), per_op("packets_sent"), per_op("dc_connects"), per_op("dc_switches"),
		            static_cast<double>(forwarded) / static_cast<double>(shared_.done));
	}

	const Settings settings;
	Load load{};

private:
	static std::map<std::string, std::string> defaults(std::map<std::string, std::string> all)
	{
		all.insert({{"nodes", "4"},
		            {"ranks", "1"},
		            {"workload", "b"},
		            {"keys", "zipf"},
		            {"connect", "no"},
		            {"bytes", "128"},
		            {"window", "16"},
		            {"receives", "?"},
		            {"sends", "?"},
		            {"operations", "20000"},
		            {"warm", "30"},
		            {"partners", "0"},
		            {"work", "50"},
		            {"name", "?"},
		            {"header", "no"}});
		return all;
	}
	static size_t allocated()
	{
		const struct mallinfo2 info = mallinfo2();
		return info.uordblks + info.hblkhd;
	}

	Shared shared_;
	size_t before_ = 0, memory_ = 0;
};

} // namespace kv
