// SPDX-License-Identifier: BSD-3-Clause
// Garbage into a rank that forwards messages. Four contexts of an in-process job, on four pretended nodes in two
// groups, exchange real messages through each other. The input makes rank 2 get forwarded messages and credits that no
// neighbour would send: wrong routes, numbers, lengths, ids. Whatever comes, nothing may crash, and requests end with a
// status.
//
//   group 0: 0 1    group 1: 2 3    the forwarder from 0 to 3 is 2, from 1 to 2 it is 3, from 2 to 1 it is 0
//
// A libFuzzer target like receive.cpp, to be run below softhca.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "api/context.hpp"
#include "route/forward/relay.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace pt2p;

constexpr int ranks = 4, victim = 2;
constexpr size_t max_steps = 300, max_requests = 12, longest = 600;

class Square {
public:
	// tight: few credits and a short window, so that they are used up. gentle: neighbours that lie rarely, so that they
	// are not given up at the first message.
	Square(bool tight, bool gentle) : gentle_(gentle)
	{
		const char *tunables[] = {"PT2P_TRANSPORTS=self,rc,dct",
		                          "PT2P_RANKS_PER_NODE=1",
		                          "PT2P_GROUPS=nodes:2",
		                          "PT2P_ROUTE=forward",
		                          "PT2P_PROGRESS_THREAD=no",
		                          "PT2P_FORWARD_TIMEOUT=5ms",
		                          "PT2P_NET_TIMEOUT=8", // a rank that has been given up is not waited for
		                          "PT2P_NET_RETRIES=1",
		                          "PT2P_NET_RECONNECT_TIME=5ms",
		                          "PT2P_NET_RECEIVES=64",
		                          "PT2P_NET_DEVICE_MEMORY=0",
		                          "PT2P_LOG_LEVEL=error",
		                          "PT2P_FINALIZE_TIME=0",
		                          tight ? "PT2P_FORWARD_CREDITS=4" : "PT2P_FORWARD_CREDITS=64",
		                          tight ? "PT2P_FORWARD_WINDOW=8" : "PT2P_FORWARD_WINDOW=64",
		                          nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = tunables;
		if (pt2p_init_inprocess(ranks, PT2P_INPROCESS_COOPERATIVE, &options, ctx_) != PT2P_OK) {
			fprintf(stderr, "pt2p_init_inprocess: %s\n", pt2p_last_error(nullptr));
			exit(1);
		}
		relay_ = ctx_[victim]->router->relay();
		if (!relay_) {
			fprintf(stderr, "rank %d forwards nothing\n", victim);
			exit(1);
		}
	}
	~Square()
	{
		for (pt2p_context_t *c : ctx_)
			pt2p_finalize(c);
	}

	void run(Input in)
	{
		// Some more steps after all neighbours have been given up: late answers must do no harm, either.
		for (size_t i = 0, after = 0; i < max_steps && after < 30 && !in.empty(); ++i, after += given_up())
			step(in);
		for (int i = 0; i < 8; ++i)
			for (pt2p_context_t *c : ctx_)
				pt2p_progress(c);
		char text[4096];
		size_t needed;
		pt2p_summary(ctx_[victim], text, sizeof text, &needed);
		for (int rank = 0; rank < ranks; ++rank)
			for (Held &held : requests_[rank]) {
				int done = 0;
				pt2p_result_t result;
				pt2p_cancel(ctx_[rank], held.request);
				pt2p_test(ctx_[rank], held.request, &done, &result);
			}
	}

private:
	void step(Input &in)
	{
		switch (in.byte() % 16) {
		case 0: return forge_credit(in);
		case 11: return forge_plain(in);
		case 1:
		case 2:
		case 3: return send(in);
		case 4:
		case 5: return receive(in);
		case 6:
		case 7: return collect(in.byte() % ranks);
		case 8:
		case 9:
			for (int n = in.byte() % 16; n >= 0; --n)
				pt2p_progress(ctx_[n % ranks]);
			return;
		case 10:
			for (int n = in.byte() % 4; n >= 0; --n)
				relay_->check();
			return;
		default: return forge_forwarded(in);
		}
	}

	bool given_up() const { return ctx_[victim]->reporter.read(Counter::peers_lost) == ranks - 1; }

	// Now and then; hardly ever in gentle inputs.
	bool lies(Input &in) const { return in.byte() % 16 == 0 && (!gentle_ || in.byte() % 16 == 0); }
	// Mostly the right number, else one beside it or any.
	uint64_t near(Input &in, uint64_t right) const
	{
		const uint8_t how = in.byte();
		return how < 216 || !lies(in) ? right : how < 248 ? right + in.byte() - 128 : in.number(8);
	}

	void forge_forwarded(Input &in)
	{
		static constexpr uint8_t ids[] = {0, wire::id_eager, wire::id_eager, wire::id_eager, wire::id_eager};
		// From 0, to be forwarded to 3; or from 1, through 3.
		const bool pass_on = in.byte() % 2;
		const int from = lies(in) ? neighbour(in) : pass_on ? 0 : 3;
		const uint64_t source = near(in, pass_on ? 0 : 1), destination = near(in, pass_on ? 3 : victim);
		Envelope envelope{};
		envelope.header = in.byte() % 4;
		if (source < ranks && relay_->serves(static_cast<int>(source))) {
			Session &session = relay_->session(static_cast<int>(source));
			envelope.sequence =
			    static_cast<uint32_t>(near(in, session.inbox.expected() + (in.byte() % 4 ? 0 : in.byte() % 8)));
			envelope.confirmed =
			    static_cast<uint32_t>(near(in, in.byte() % 2 ? session.outbox.first() : session.outbox.next()));
		}
		const uint8_t which = in.byte();
		envelope.id = lies(in) ? in.byte() : which < 2 ? 0xff : ids[which % 5]; // 0xff: goodbye
		envelope.flags = in.byte() % 4 ? 0 : in.byte();
		size_t length = sizeof envelope + in.number(2) % longest;
		// Of exactly that size, so that a byte too much is seen.
		const auto bytes = std::make_unique<unsigned char[]>(length);
		std::memset(bytes.get(), in.byte(), length);
		std::memcpy(bytes.get(), &envelope, sizeof envelope);
		for (unsigned n = lies(in) ? in.byte() % 8 : 0; n; --n)
			bytes[in.number(2) % length] ^= static_cast<unsigned char>(1u << in.byte() % 8);
		if (lies(in)) {
			length = in.byte() % (sizeof envelope + 1);
			const auto cut = std::make_unique<unsigned char[]>(length + 1);
			std::memcpy(cut.get(), bytes.get(), length);
			return relay_->on_message(from, id_forwarded, source << 32 | static_cast<uint32_t>(destination), cut.get(),
			                          length);
		}
		relay_->on_message(from, id_forwarded, source << 32 | static_cast<uint32_t>(destination), bytes.get(), length);
	}

	void forge_credit(Input &in)
	{
		const unsigned char byte = 0;
		relay_->on_message(neighbour(in), id_credit, lies(in) ? in.number(8) : 0, &byte, lies(in));
	}

	// Of rank 1, which is not the victim's neighbour, or of another rank.
	void forge_plain(Input &in)
	{
		const size_t length = in.number(2) % longest;
		const auto bytes = std::make_unique<unsigned char[]>(length);
		std::memset(bytes.get(), in.byte(), length);
		const uint8_t id = id_plain | (lies(in) ? in.byte() : +wire::id_eager);
		relay_->on_message(lies(in) ? neighbour(in) : 1, id, in.byte() % 4, bytes.get(), length);
	}

	static int neighbour(Input &in)
	{
		const uint8_t how = in.byte();
		return how < 160 ? 0 : how < 240 ? 3 : 1;
	}

	struct Held {
		pt2p_request_t *request;
		std::unique_ptr<unsigned char[]> buffer;
	};

	void send(Input &in)
	{
		static constexpr int pairs[][2] = {{0, 3}, {1, 2}, {2, 1}, {3, 0}, {2, 3}, {0, 2}};
		const auto [from, to] = pairs[in.byte() % 6];
		const size_t length = in.number(2) % (in.byte() % 8 ? longest : 20'000);
		auto buffer = std::make_unique<unsigned char[]>(length + 1);
		pt2p_request_t *request = nullptr;
		if (requests_[from].size() >= max_requests)
			return collect(from);
		pt2p_isend(ctx_[from], buffer.get(), length, to, in.byte() % 4, &request);
		keep(from, request, std::move(buffer));
	}

	void receive(Input &in)
	{
		const int rank = in.byte() % ranks;
		const size_t length = in.number(2) % longest;
		auto buffer = std::make_unique<unsigned char[]>(length + 1);
		pt2p_request_t *request = nullptr;
		if (requests_[rank].size() >= max_requests)
			return collect(rank);
		pt2p_irecv(ctx_[rank], buffer.get(), length, in.byte() % 2 ? PT2P_ANY_SOURCE : ranks - 1 - rank, in.byte() % 4,
		           PT2P_TAG_EXACT, &request);
		keep(rank, request, std::move(buffer));
	}

	void keep(int rank, pt2p_request_t *request, std::unique_ptr<unsigned char[]> buffer)
	{
		if (request)
			requests_[rank].push_back({request, std::move(buffer)});
	}

	// Frees the buffers of what has ended: whoever still uses them is caught by AddressSanitizer.
	void collect(int rank)
	{
		std::erase_if(requests_[rank], [&](const Held &held) {
			int done = 0;
			pt2p_result_t result;
			pt2p_test(ctx_[rank], held.request, &done, &result);
			return done != 0;
		});
	}

	// Freed after the contexts have gone.
	std::vector<Held> requests_[ranks];
	pt2p_context_t *ctx_[ranks] = {};
	Relay *relay_ = nullptr;
	const bool gentle_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input in{data, size};
	const uint8_t first = in.byte();
	Square(first & 1, first & 6).run(in);
	return 0;
}
