// SPDX-License-Identifier: BSD-3-Clause
// The victim dies while messages or one-sided operations with it are in flight.
#include "tests/fault/cases.hpp"
#include "tests/fault/victim.hpp"

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace fault {

// The victim exchanges windows of messages with every survivor until it dies.
int eager()
{
	join();
	constexpr size_t window = 32, length = 600;
	std::vector<unsigned char> out(length), in(length * window * static_cast<size_t>(ranks));
	if (is_victim())
		die_in(150);
	double last = now();
	for (;;) {
		std::vector<pt2p_request_t *> reqs;
		pt2p_status_t status = PT2P_OK;
		for (int peer = 0; peer < ranks && status == PT2P_OK; ++peer) {
			if (!is_partner(peer))
				continue;
			for (size_t i = 0; i < window && status == PT2P_OK; ++i) {
				pt2p_request_t *r;
				unsigned char *place = in.data() + (static_cast<size_t>(peer) * window + i) * length;
				status = pt2p_irecv(ctx, place, length, peer, tag_eager, PT2P_TAG_EXACT, &r);
				if (status == PT2P_OK)
					reqs.push_back(r);
				if (status == PT2P_OK &&
				    (status = pt2p_isend(ctx, out.data(), i % 2 ? 8 : length, peer, tag_eager, &r)) == PT2P_OK)
					reqs.push_back(r);
			}
		}
		last = end_round(reqs, status, last);
	}
}

// Large messages from the victim to the survivors, or back. The victim dies while they move.
int large(bool from_victim)
{
	join();
	constexpr size_t length = 24u << 20;
	std::vector<unsigned char> data(length);
	if (is_victim())
		die_in(400);
	double last = now();
	for (;;) {
		std::vector<pt2p_request_t *> reqs;
		pt2p_status_t status = PT2P_OK;
		for (int peer = 0; peer < ranks && status == PT2P_OK; ++peer) {
			if (!is_partner(peer))
				continue;
			pt2p_request_t *r;
			// Messages of the victim to several ranks share a buffer.
			status = is_victim() == from_victim
			             ? pt2p_isend(ctx, data.data(), length, peer, tag_large, &r)
			             : pt2p_irecv(ctx, data.data(), length, peer, tag_large, PT2P_TAG_EXACT, &r);
			if (status == PT2P_OK)
				reqs.push_back(r);
		}
		last = end_round(reqs, status, last);
	}
}
namespace {

struct Outcomes {
	size_t called = 0, lost = 0, other = 0;
};

void count_outcome(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	auto *o = static_cast<Outcomes *>(argument);
	++o->called;
	o->lost += result->status == PT2P_ERR_PEER_LOST;
	o->other += result->status != PT2P_OK && result->status != PT2P_ERR_PEER_LOST;
}

} // namespace

// Large messages in segments in both directions between the victim and every survivor, with callbacks or released. Each
// callback is called once, whatever happens to the victim.
int callbacks()
{
	join();
	constexpr size_t length = 6u << 20, count = 1500, each = length / count;
	std::vector<unsigned char> out(2 * length), in(2 * length * static_cast<size_t>(ranks));
	const auto list = [&](unsigned char *data) {
		std::vector<pt2p_iovec_t> segments;
		for (size_t i = 0; i < count; ++i)
			segments.push_back({data + 2 * i * each, each});
		return segments;
	};
	const std::vector<pt2p_iovec_t> from = list(out.data());
	if (is_victim())
		die_in(400);
	unsigned char never = 0;
	if (!is_victim()) {
		pt2p_request_t *r;
		must(pt2p_irecv(ctx, &never, 1, victim, tag_never, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
		must(pt2p_request_free(ctx, r), "pt2p_request_free:");
	}
	double last = now();
	for (;;) {
		Outcomes outcomes;
		size_t started = 0;
		pt2p_status_t status = PT2P_OK;
		for (int peer = 0; peer < ranks && status == PT2P_OK; ++peer) {
			if (!is_partner(peer))
				continue;
			const std::vector<pt2p_iovec_t> to = list(in.data() + 2 * length * static_cast<size_t>(peer));
			pt2p_request_t *r;
			status = pt2p_irecvv(ctx, to.data(), count, peer, tag_large, PT2P_TAG_EXACT, &r);
			if (status == PT2P_OK) {
				must(pt2p_request_callback(ctx, r, count_outcome, &outcomes), "pt2p_request_callback:");
				++started;
				status = pt2p_isendv(ctx, from.data(), count, peer, tag_large, &r);
			}
			if (status == PT2P_OK) {
				must(pt2p_request_callback(ctx, r, count_outcome, &outcomes), "pt2p_request_callback:");
				++started;
				status = pt2p_isend(ctx, out.data(), 8, peer, tag_given_up, &r);
			}
			if (status == PT2P_OK)
				must(pt2p_request_free(ctx, r), "pt2p_request_free:");
		}
		while (outcomes.called < started)
			pt2p_progress(ctx);
		for (int i = 0; i < 20; ++i)
			pt2p_progress(ctx);
		if (outcomes.called != started || outcomes.other)
			fail("a callback was called twice, or with another status");
		if (outcomes.lost)
			status = PT2P_ERR_PEER_LOST;
		if (status != PT2P_OK)
			survived(status, now() - last);
		last = now();
	}
}

// The victim announces messages and dies before their data moves. The survivors receive only then.
int announced()
{
	join();
	constexpr size_t length = 4u << 20;
	std::vector<unsigned char> data(length);
	if (is_victim()) {
		for (int peer = 0; peer < ranks; ++peer) {
			pt2p_request_t *r;
			if (peer != me)
				must(pt2p_isend(ctx, data.data(), length, peer, tag_large, &r), "pt2p_isend:");
		}
		die();
	}
	must(pt2p_probe(ctx, victim, tag_large, PT2P_TAG_EXACT, nullptr), "pt2p_probe:");
	std::this_thread::sleep_for(std::chrono::milliseconds(300));
	const double start = now();
	const pt2p_status_t status = pt2p_recv(ctx, data.data(), length, victim, tag_large, PT2P_TAG_EXACT, nullptr);
	survived(status, now() - start);
	return 1;
}

// The victim's long message is between two short ones of the same tag. When the victim is dead, each receive gets the
// message that it matches: the receive of the long one fails, and does not get the second short one instead.
int overtaken(int source)
{
	join();
	std::vector<unsigned char> data(4u << 20), brief(100);
	if (is_victim()) {
		for (int peer = 0; peer < ranks; ++peer) {
			pt2p_request_t *r;
			if (peer == me)
				continue;
			for (unsigned number : {1, 2, 3}) {
				fill(brief, number);
				must(number == 2 ? pt2p_isend(ctx, data.data(), data.size(), peer, tag_large, &r)
				                 : pt2p_send(ctx, brief.data(), brief.size(), peer, tag_large),
				     "a send:");
			}
			must(pt2p_send(ctx, nullptr, 0, peer, tag_after), "pt2p_send:");
		}
		await_survivors();
		die();
	}
	must(pt2p_recv(ctx, nullptr, 0, victim, tag_after, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	must(pt2p_send(ctx, nullptr, 0, victim, tag_after), "pt2p_send:");
	const double start = now();
	char byte;
	if (pt2p_recv(ctx, &byte, 1, victim, tag_never, PT2P_TAG_EXACT, nullptr) != PT2P_ERR_PEER_LOST)
		fail("a receive from the victim ends otherwise:", pt2p_last_error(ctx));
	for (unsigned number : {1, 2, 3}) {
		pt2p_result_t result;
		const pt2p_status_t status =
		    pt2p_recv(ctx, data.data(), data.size(), source, tag_large, PT2P_TAG_EXACT, &result);
		const bool right =
		    number == 2 ? status == PT2P_ERR_PEER_LOST : status == PT2P_OK && result.length == brief.size();
		if (!right || result.source != victim)
			fail("a receive gets what another one matches:", pt2p_strerror(status));
		if (number != 2)
			verify({data.begin(), data.begin() + static_cast<ptrdiff_t>(brief.size())}, number);
	}
	survived(pt2p_recv(ctx, data.data(), data.size(), victim, tag_large, PT2P_TAG_EXACT, nullptr), now() - start);
	return 1;
}

// The victim never receives a message that was announced to it or sent synchronously.
int ignored(bool synchronous)
{
	join();
	std::vector<unsigned char> data(synchronous ? 8 : 4u << 20);
	if (is_victim())
		progress_until_death(500);
	const double start = now();
	const pt2p_status_t status =
	    (synchronous ? pt2p_ssend : pt2p_send)(ctx, data.data(), data.size(), victim, tag_large);
	survived(status, now() - start - 0.5);
	return 1;
}

// The victim dies when its messages have been taken out of matching. The short one is received, although its sender
// cannot be told any more. The announced one fails.
int taken()
{
	join();
	std::vector<unsigned char> data(4u << 20), brief(100);
	// The ranks connect first: without a connection there is no room, and short synchronous messages would be
	// announced, too.
	for (int peer = 0; peer < ranks; ++peer)
		if (is_partner(peer))
			must(pt2p_sendrecv(ctx, nullptr, 0, peer, tag_after, nullptr, 0, peer, tag_after, PT2P_TAG_EXACT, nullptr),
			     "pt2p_sendrecv:");
	if (is_victim()) {
		fill(brief, 7);
		for (int peer = 0; peer < ranks; ++peer) {
			pt2p_request_t *r;
			if (peer == me)
				continue;
			must(pt2p_issend(ctx, brief.data(), brief.size(), peer, tag_eager, &r), "pt2p_issend:");
			must(pt2p_isend(ctx, data.data(), data.size(), peer, tag_large, &r), "pt2p_isend:");
		}
		await_survivors();
		die();
	}
	pt2p_message_t *first, *second;
	must(pt2p_mprobe(ctx, victim, tag_eager, PT2P_TAG_EXACT, &first, nullptr), "pt2p_mprobe:");
	must(pt2p_mprobe(ctx, victim, tag_large, PT2P_TAG_EXACT, &second, nullptr), "pt2p_mprobe:");
	must(pt2p_send(ctx, nullptr, 0, victim, tag_after), "pt2p_send:");
	char byte;
	const double start = now();
	if (pt2p_recv(ctx, &byte, 1, victim, tag_never, PT2P_TAG_EXACT, nullptr) != PT2P_ERR_PEER_LOST)
		fail("a receive from the victim ends otherwise:", pt2p_last_error(ctx));
	must(pt2p_mrecv(ctx, brief.data(), brief.size(), first, nullptr), "pt2p_mrecv of the short message:");
	verify(brief, 7);
	pt2p_request_t *r;
	must(pt2p_imrecv(ctx, data.data(), data.size(), second, &r), "pt2p_imrecv:");
	const pt2p_status_t status = pt2p_wait(ctx, r, nullptr);
	const double waited = now() - start;
	if (pt2p_mrecv(ctx, data.data(), data.size(), second, nullptr) != PT2P_ERR_REQUEST)
		fail("a message can be received twice");
	if (status != PT2P_ERR_PEER_LOST)
		fail("the receive of the announced message ends otherwise:", pt2p_strerror(status));
	survived(pt2p_ssend(ctx, brief.data(), brief.size(), victim, tag_eager), waited);
	return 1;
}

namespace {

// The survivors import the victim's memory.
pt2p_remote_t *import_of(pt2p_memory_t *mem)
{
	std::vector<unsigned char> blob(PT2P_EXPORT_MAX);
	size_t needed;
	must(pt2p_memory_export(ctx, mem, blob.data(), blob.size(), &needed), "pt2p_memory_export:");
	for (int peer = 0; is_victim() && peer < ranks; ++peer)
		if (peer != me)
			must(pt2p_send(ctx, blob.data(), needed, peer, tag_eager), "pt2p_send:");
	if (is_victim())
		return nullptr;
	pt2p_result_t result;
	must(pt2p_recv(ctx, blob.data(), blob.size(), victim, tag_eager, PT2P_TAG_EXACT, &result), "pt2p_recv:");
	pt2p_remote_t *remote;
	must(pt2p_memory_import(ctx, victim, blob.data(), result.length, &remote), "pt2p_memory_import:");
	return remote;
}

} // namespace

// Operations of all kinds on the victim's memory, allocated and registered, until it dies. `stopped`: it has made no
// progress before, so many are in flight.
int one_sided(bool stopped)
{
	join();
	constexpr size_t length = 1u << 20;
	pt2p_memory_t *mem[2];
	pt2p_remote_t *remote[2] = {};
	std::vector<unsigned char> own(length), data(length);
	void *address;
	must(pt2p_memory_allocate(ctx, length, &mem[0], &address), "pt2p_memory_allocate:");
	must(pt2p_memory_register(ctx, own.data(), length, &mem[1]), "pt2p_memory_register:");
	for (int i = 0; i < 2; ++i)
		remote[i] = import_of(mem[i]);
	if (is_victim() && stopped) {
		std::this_thread::sleep_for(std::chrono::milliseconds(300));
		die();
	}
	if (is_victim())
		progress_until_death(300);
	double last = now();
	for (;;) {
		std::vector<pt2p_request_t *> reqs;
		pt2p_status_t status = PT2P_OK;
		uint64_t was[3];
		for (pt2p_remote_t *r : remote) {
			pt2p_request_t *req;
			const auto keep = [&](pt2p_status_t s) {
				if (s != PT2P_OK)
					status = s;
				else
					reqs.push_back(req);
			};
			keep(pt2p_put(ctx, data.data(), length, r, 0, &req));
			keep(pt2p_get(ctx, data.data(), length, r, 0, &req));
			keep(pt2p_fetch_add64(ctx, r, 8, 1, &was[0], &req));
			keep(pt2p_swap64(ctx, r, 16, 1, &was[1], &req));
			keep(pt2p_put_signal(ctx, data.data(), 1000, r, 64, r, 0, PT2P_SIGNAL_ADD, 1, &req));
			if (status == PT2P_OK)
				status = pt2p_fence(ctx, victim);
			keep(pt2p_compare_swap64(ctx, r, 24, 0, 1, &was[2], &req));
			if (status == PT2P_OK)
				status = pt2p_put(ctx, data.data(), 8, r, 128, nullptr);
		}
		if (status == PT2P_OK) {
			const pt2p_status_t flushed = pt2p_flush(ctx, victim);
			if (flushed != PT2P_OK && flushed != PT2P_ERR_PEER_LOST)
				fail("pt2p_flush:", pt2p_last_error(ctx));
			// The loss is reported to each thread, and so again.
			if (flushed == PT2P_ERR_PEER_LOST && (pt2p_flush(ctx, victim) != flushed || pt2p_flush_all(ctx) != flushed))
				fail("a flush after the loss ends otherwise");
		}
		last = end_round(reqs, status, last);
		// Memory that is mapped here outlives its owner. Progress tells that the owner is lost.
		for (int i = 0; i < 200; ++i)
			must(pt2p_progress(ctx), "pt2p_progress:");
	}
}

} // namespace fault
