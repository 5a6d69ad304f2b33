// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong, and what the others see of it. One subcommand for each case; run.sh starts them.
//
// In the launched cases rank 1 is the victim: it kills itself with SIGKILL while traffic runs. Each survivor prints
//
//   survivor RANK: EXPLANATION
//
// and exits with 0 when the failure was PT2P_ERR_PEER_LOST, named the victim, came soon, and left the exchange with the
// other survivors alone.
#include <pt2p.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

bool pmix_is_stuck = false;

} // namespace

// In front of PMIx's own: in one case it does not come back.
extern "C" int PMIx_Finalize(const void *info, size_t count);
extern "C" int PMIx_Finalize(const void *info, size_t count)
{
	while (pmix_is_stuck)
		pause();
	const auto real = reinterpret_cast<decltype(&PMIx_Finalize)>(dlsym(RTLD_NEXT, "PMIx_Finalize"));
	return real ? real(info, count) : -1;
}

namespace {

constexpr int victim = 1;
constexpr double soon = 10; // seconds
constexpr uint64_t tag_eager = 1, tag_large = 2, tag_after = 3, tag_never = 4, tag_given_up = 5;

pt2p_context_t *ctx;
int me, ranks;

double now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void fail(const char *what, const char *detail = "")
{
	fprintf(stderr, "FAIL: rank %d: %s %s\n", me, what, detail);
	fflush(nullptr);
	_exit(1);
}

void must(pt2p_status_t status, const char *what)
{
	if (status != PT2P_OK)
		fail(what, pt2p_last_error(ctx));
}

void join()
{
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	me = pt2p_rank(ctx);
	ranks = pt2p_size(ctx);
	printf("pid %ld\n", static_cast<long>(getpid()));
	fflush(stdout);
	if (ranks < 3)
		fail("needs three ranks");
}

bool is_victim() { return me == victim; }

// The end comes from another thread, so it meets the main thread anywhere in the library.
void die_in(int milliseconds)
{
	std::thread([milliseconds] {
		std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
		kill(getpid(), SIGKILL);
	}).detach();
}

[[noreturn]] void die()
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

// The victim answers until it dies.
[[noreturn]] void progress_until_death(int milliseconds)
{
	die_in(milliseconds);
	for (;;)
		pt2p_progress(ctx);
}

void fill(std::vector<unsigned char> &data, unsigned seed)
{
	for (size_t i = 0; i < data.size(); ++i)
		data[i] = static_cast<unsigned char>(i * 31 + i / 251 + seed);
}

void verify(const std::vector<unsigned char> &data, unsigned seed)
{
	for (size_t i = 0; i < data.size(); ++i)
		if (data[i] != static_cast<unsigned char>(i * 31 + i / 251 + seed))
			fail("a payload is wrong");
}

// The survivors still talk, short and large.
void talk_among_survivors()
{
	std::vector<unsigned char> out(300000), in(300000);
	for (int peer = 0; peer < ranks; ++peer) {
		if (peer == me || peer == victim)
			continue;
		for (size_t length : {size_t{8}, out.size()}) {
			out.resize(length);
			in.assign(length, 0);
			fill(out, static_cast<unsigned>(me));
			pt2p_result_t result;
			must(pt2p_sendrecv(ctx, out.data(), length, peer, tag_after, in.data(), length, peer, tag_after, PT2P_TAG_EXACT,
			                   &result),
			     "exchange among survivors:");
			verify(in, static_cast<unsigned>(peer));
		}
	}
}

// `status` ended the traffic with the victim at most `waited` seconds after the last success.
void survived(pt2p_status_t status, double waited)
{
	const std::string text = pt2p_last_error(ctx);
	printf("survivor %d: %s\n", me, text.c_str());
	fflush(stdout);
	if (status != PT2P_ERR_PEER_LOST)
		fail("the status is not PT2P_ERR_PEER_LOST but", pt2p_strerror(status));
	if (text.find("rank 1") == std::string::npos)
		fail("the explanation does not name rank 1:", text.c_str());
	if (waited > soon)
		fail("it took too long");
	pt2p_peer_info_t info;
	must(pt2p_peer_query(ctx, victim, &info), "pt2p_peer_query:");
	// The failure may come from the kernel before the transport has looked: news follow within a few progress calls.
	for (const double end = now() + soon; info.state != PT2P_PEER_LOST && now() < end;) {
		pt2p_progress(ctx);
		must(pt2p_peer_query(ctx, victim, &info), "pt2p_peer_query:");
	}
	if (info.state != PT2P_PEER_LOST)
		fail("pt2p_peer_query does not call the victim lost");
	// Later calls fail at once, and nothing else fails.
	char byte = 0;
	if (pt2p_send(ctx, &byte, 1, victim, tag_never) != PT2P_ERR_PEER_LOST)
		fail("a later send does not fail");
	if (pt2p_recv(ctx, &byte, 1, victim, tag_never, PT2P_TAG_EXACT, nullptr) != PT2P_ERR_PEER_LOST)
		fail("a later receive does not fail");
	// An exchange that cannot send takes no message.
	must(pt2p_send(ctx, &byte, 1, me, tag_never), "a message to itself:");
	if (pt2p_sendrecv(ctx, &byte, 1, victim, tag_never, &byte, 1, me, tag_never, PT2P_TAG_EXACT, nullptr) != PT2P_ERR_PEER_LOST)
		fail("a later exchange does not fail");
	int found = 0;
	must(pt2p_iprobe(ctx, me, tag_never, PT2P_TAG_EXACT, &found, nullptr), "pt2p_iprobe:");
	if (!found)
		fail("an exchange that failed has lost a message");
	must(pt2p_recv(ctx, &byte, 1, me, tag_never, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	talk_among_survivors();
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	exit(0);
}

// Waits for what a round started; `status` says how starting went, `last` when the round before succeeded. The time of this
// success; a loss ends the program.
double end_round(std::vector<pt2p_request_t *> &reqs, pt2p_status_t status, double last)
{
	const pt2p_status_t all = pt2p_waitall(ctx, reqs.size(), reqs.data(), nullptr);
	if (all != PT2P_OK)
		status = all;
	if (status != PT2P_OK)
		survived(status, now() - last);
	return now();
}

// ---- launched ---------------------------------------------------------------------------------------------------------

// Both directions in windows: the victim with every survivor, until it dies.
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
			if (is_victim() ? peer == me : peer != victim)
				continue;
			for (size_t i = 0; i < window && status == PT2P_OK; ++i) {
				pt2p_request_t *r;
				unsigned char *place = in.data() + (static_cast<size_t>(peer) * window + i) * length;
				status = pt2p_irecv(ctx, place, length, peer, tag_eager, PT2P_TAG_EXACT, &r);
				if (status == PT2P_OK)
					reqs.push_back(r);
				if (status == PT2P_OK && (status = pt2p_isend(ctx, out.data(), i % 2 ? 8 : length, peer, tag_eager, &r)) == PT2P_OK)
					reqs.push_back(r);
			}
		}
		last = end_round(reqs, status, last);
	}
}

// Large messages from the victim to the survivors, or the other way; it dies while they move.
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
			if (is_victim() ? peer == me : peer != victim)
				continue;
			pt2p_request_t *r;
			// A survivor that receives from the victim in turn shares the victim's buffer; receivers have their own.
			status = is_victim() == from_victim ? pt2p_isend(ctx, data.data(), length, peer, tag_large, &r)
			                                    : pt2p_irecv(ctx, data.data(), length, peer, tag_large, PT2P_TAG_EXACT, &r);
			if (status == PT2P_OK)
				reqs.push_back(r);
		}
		last = end_round(reqs, status, last);
	}
}

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

// Large messages in segments both ways between the victim and every survivor, with callbacks and given up; each callback is
// called once, whatever becomes of the victim.
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
			if (is_victim() ? peer == me : peer != victim)
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

// The victim announces and dies before anything of it moves; the survivors receive only then.
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

// The victim's long message lies between two short ones of the same tag. When it is dead, each receive gets what it matches: the
// long message fails its receive, and the second short one is not received in its place.
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
		for (int peer = 0; peer < ranks; ++peer)
			if (peer != me)
				must(pt2p_recv(ctx, nullptr, 0, peer, tag_after, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
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
		const pt2p_status_t status = pt2p_recv(ctx, data.data(), data.size(), source, tag_large, PT2P_TAG_EXACT, &result);
		const bool right = number == 2 ? status == PT2P_ERR_PEER_LOST : status == PT2P_OK && result.length == brief.size();
		if (!right || result.source != victim)
			fail("a receive gets what another one matches:", pt2p_strerror(status));
		if (number != 2)
			verify({data.begin(), data.begin() + static_cast<ptrdiff_t>(brief.size())}, number);
	}
	survived(pt2p_recv(ctx, data.data(), data.size(), victim, tag_large, PT2P_TAG_EXACT, nullptr), now() - start);
	return 1;
}

// The victim never receives what was announced to it, or sent synchronously.
int ignored(bool synchronous)
{
	join();
	std::vector<unsigned char> data(synchronous ? 8 : 4u << 20);
	if (is_victim())
		progress_until_death(500);
	const double start = now();
	const pt2p_status_t status = (synchronous ? pt2p_ssend : pt2p_send)(ctx, data.data(), data.size(), victim, tag_large);
	survived(status, now() - start - 0.5);
	return 1;
}

// The victim's messages have been taken out of matching when it dies: the short one is whole, although nobody can be told of
// its receive any more, and the announced one fails.
int taken()
{
	join();
	std::vector<unsigned char> data(4u << 20), brief(100);
	// While two ranks are not connected there is no room, and short synchronous messages are announced, too.
	for (int peer = 0; peer < ranks; ++peer)
		if (is_victim() ? peer != me : peer == victim)
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
		for (int peer = 0; peer < ranks; ++peer)
			if (peer != me)
				must(pt2p_recv(ctx, nullptr, 0, peer, tag_after, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
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

int barrier(bool before)
{
	join();
	if (is_victim()) {
		die_in(250);
		if (before) {
			must(pt2p_barrier(ctx), "pt2p_barrier:");
			for (;;)
				pause();
		}
	}
	double last = now();
	for (;;) {
		const pt2p_status_t status = pt2p_barrier(ctx);
		if (status != PT2P_OK)
			survived(status, now() - last);
		last = now();
	}
}

// The victim dies before anybody has met it, with or without an address; what a survivor calls first is up to it.
int starting(std::string call)
{
	const bool unpublished = call.ends_with("_early");
	call = call.substr(0, call.find('_'));
	if (unpublished && atoi(getenv("PMIX_RANK")) == victim) {
		printf("pid %ld\n", static_cast<long>(getpid()));
		fflush(stdout);
		die();
	}
	join();
	if (is_victim())
		die();
	const double start = now();
	char byte = 0;
	pt2p_request_t *r = nullptr;
	pt2p_status_t status;
	if (call == "barrier") {
		status = pt2p_barrier(ctx);
	} else if (call == "recv") {
		status = pt2p_recv(ctx, &byte, 1, victim, tag_never, PT2P_TAG_EXACT, nullptr);
	} else if (call == "delivery") {
		// It may still have been there, and where it could not be known of: then the message fails.
		status = pt2p_set_delivery(ctx, victim, PT2P_DELIVERY_SEND);
	} else if (call == "flush") {
		status = pt2p_flush(ctx, victim);
	} else {
		status = pt2p_isend(ctx, &byte, 1, victim, tag_eager, &r);
		if (status == PT2P_OK)
			status = pt2p_wait(ctx, r, nullptr);
	}
	// A short message has been sent when it is on its way.
	while (status == PT2P_OK && now() - start < soon) {
		pt2p_progress(ctx);
		status = pt2p_send(ctx, &byte, 1, victim, tag_eager);
	}
	survived(status, now() - start);
	return 1;
}

// Rank 0 waits for whomever; the loss ends one wait, and the next one gets what the others send.
int any_source()
{
	join();
	int value = me;
	if (is_victim()) {
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
		progress_until_death(200);
	}
	if (me != 0) {
		int go;
		must(pt2p_recv(ctx, &go, sizeof go, 0, tag_after, PT2P_TAG_EXACT, nullptr), "wait for rank 0:");
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
		const double start = now();
		// Met by nobody yet: a wait for it must end all the same.
		survived(pt2p_recv(ctx, &value, sizeof value, victim, tag_never, PT2P_TAG_EXACT, nullptr), now() - start);
	}
	pt2p_result_t result;
	must(pt2p_recv(ctx, &value, sizeof value, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, &result), "first receive:");
	if (result.source != victim || value != victim)
		fail("the victim's message is wrong");
	const double start = now();
	const pt2p_status_t status = pt2p_recv(ctx, &value, sizeof value, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, &result);
	const double waited = now() - start;
	if (status != PT2P_ERR_PEER_LOST)
		fail("a wait for any source ends otherwise:", pt2p_strerror(status));
	const std::string text = pt2p_last_error(ctx);
	for (int peer = 2; peer < ranks; ++peer)
		must(pt2p_send(ctx, &me, sizeof me, peer, tag_after), "go:");
	for (int peer = 2; peer < ranks; ++peer) {
		must(pt2p_recv(ctx, &value, sizeof value, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, &result), "receive again:");
		if (result.source != value)
			fail("a message after the loss is wrong");
	}
	if (text.find("rank 1") == std::string::npos)
		fail("the explanation does not name rank 1:", text.c_str());
	// survived() wants the explanation of the latest failure: this one is as good.
	survived(pt2p_recv(ctx, &value, sizeof value, victim, tag_never, PT2P_TAG_EXACT, nullptr), waited);
	return 1;
}

// A receive from any source is told of the loss; a probe, and a wait for a signal, that wait beside it have to end as well.
int any_source_probed()
{
	join();
	if (is_victim())
		progress_until_death(200);
	char byte;
	pt2p_request_t *r;
	must(pt2p_irecv(ctx, &byte, 1, PT2P_ANY_SOURCE, tag_never, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
	const double start = now();
	if (me == 0) {
		const pt2p_status_t status = pt2p_probe(ctx, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, nullptr);
		if (status != PT2P_ERR_PEER_LOST)
			fail("a probe for any source ends otherwise:", pt2p_strerror(status));
	} else {
		const uint64_t word = 0;
		const pt2p_status_t status = pt2p_signal_wait(ctx, &word, 1, PT2P_ANY_SOURCE);
		if (status != PT2P_ERR_PEER_LOST)
			fail("a wait for a signal of any source ends otherwise:", pt2p_strerror(status));
	}
	int found = 1; // each loss is told once
	must(pt2p_iprobe(ctx, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, &found, nullptr), "pt2p_iprobe:");
	if (found)
		fail("something was found that nobody sent");
	survived(pt2p_wait(ctx, r, nullptr), now() - start);
	return 1;
}

// Finalize with a message on its way to the dead: a large one, or one that no receive has matched.
int finalize_dead(bool synchronous)
{
	join();
	std::vector<unsigned char> data(synchronous ? 8 : 4u << 20);
	if (is_victim())
		progress_until_death(300);
	pt2p_request_t *r;
	must((synchronous ? pt2p_issend : pt2p_isend)(ctx, data.data(), data.size(), victim, tag_large, &r), "pt2p_isend:");
	const double start = now();
	const pt2p_status_t status = pt2p_finalize(ctx);
	const double waited = now() - start;
	printf("survivor %d: %s\n", me, pt2p_last_error(nullptr));
	if (status != PT2P_ERR_UNFINISHED || waited > soon)
		fail("pt2p_finalize returns otherwise, or late");
	return 0;
}

// Rank 1 leaves in order: others learn of that, and that it is no crash.
int finalized()
{
	join();
	int value = me;
	// Not before all are there: launchers lose a process that begins while another ends. Only rank 0 meets the victim.
	if (me == 0)
		for (int peer = ranks - 1; peer > victim; --peer)
			must(pt2p_recv(ctx, &value, sizeof value, peer, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	if (me != victim)
		must(pt2p_send(ctx, &value, sizeof value, me ? 0 : victim, tag_eager), "pt2p_send:");
	if (me == victim) {
		must(pt2p_recv(ctx, &value, sizeof value, 0, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
		if (pt2p_finalize(ctx) != PT2P_OK)
			fail("pt2p_finalize:", pt2p_last_error(nullptr));
		return 0;
	}
	if (me == 0) {
		std::this_thread::sleep_for(std::chrono::milliseconds(200));
		must(pt2p_recv(ctx, &value, sizeof value, victim, tag_eager, PT2P_TAG_EXACT, nullptr),
		     "what was sent before pt2p_finalize:");
	}
	// Rank 2 has never met it and waits for a message; rank 3 sends it one first, which may leave or not.
	const double start = now();
	pt2p_status_t status = PT2P_OK;
	if (me == 3) {
		std::this_thread::sleep_for(std::chrono::milliseconds(500));
		status = pt2p_send(ctx, &value, sizeof value, victim, tag_eager);
	}
	if (status == PT2P_OK)
		status = pt2p_recv(ctx, &value, sizeof value, victim, tag_never, PT2P_TAG_EXACT, nullptr);
	const std::string text = pt2p_last_error(ctx);
	printf("survivor %d: %s\n", me, text.c_str());
	if (status != PT2P_ERR_PEER_FINALIZED || text.find("rank 1") == std::string::npos || now() - start > soon)
		fail("a receive from a rank that has finalized ends otherwise, or late");
	talk_among_survivors();
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}

// Operations of all kinds on the victim's memory, allocated and registered, until it dies. `stopped`: it has not helped for
// a while by then, so many are under way.
int one_sided(bool stopped)
{
	join();
	constexpr size_t length = 1u << 20;
	pt2p_memory_t *mem[2];
	pt2p_remote_t *remote[2] = {};
	std::vector<unsigned char> own(length), data(length), blob(PT2P_EXPORT_MAX);
	void *address;
	must(pt2p_memory_allocate(ctx, length, &mem[0], &address), "pt2p_memory_allocate:");
	must(pt2p_memory_register(ctx, own.data(), length, &mem[1]), "pt2p_memory_register:");
	for (int i = 0; i < 2; ++i) {
		size_t needed;
		must(pt2p_memory_export(ctx, mem[i], blob.data(), blob.size(), &needed), "pt2p_memory_export:");
		for (int peer = 0; is_victim() && peer < ranks; ++peer)
			if (peer != me)
				must(pt2p_send(ctx, blob.data(), needed, peer, tag_eager), "pt2p_send:");
		pt2p_result_t result;
		if (is_victim())
			continue;
		must(pt2p_recv(ctx, blob.data(), blob.size(), victim, tag_eager, PT2P_TAG_EXACT, &result), "pt2p_recv:");
		must(pt2p_memory_import(ctx, victim, blob.data(), result.length, &remote[i]), "pt2p_memory_import:");
	}
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
			// Told to each thread, and so again.
			if (flushed == PT2P_ERR_PEER_LOST && (pt2p_flush(ctx, victim) != flushed || pt2p_flush_all(ctx) != flushed))
				fail("a flush after the loss ends otherwise");
		}
		last = end_round(reqs, status, last);
		// Memory that is mapped here outlives its owner: news of that come with progress.
		for (int i = 0; i < 200; ++i)
			must(pt2p_progress(ctx), "pt2p_progress:");
	}
}

// Every pair exchanges large messages and says how they went.
int exchange()
{
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	me = pt2p_rank(ctx);
	ranks = pt2p_size(ctx);
	for (size_t length : {size_t{8}, size_t{9000}, size_t{100000}, size_t{5000001}}) {
		std::vector<unsigned char> out(length), in(length);
		fill(out, static_cast<unsigned>(me));
		const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
		must(pt2p_sendrecv(ctx, out.data(), length, next, tag_large, in.data(), length, before, tag_large, PT2P_TAG_EXACT,
		                   nullptr),
		     "pt2p_sendrecv:");
		verify(in, static_cast<unsigned>(before));
	}
	for (int peer = 0; peer < ranks; ++peer) {
		pt2p_peer_info_t info;
		must(pt2p_peer_query(ctx, peer, &info), "pt2p_peer_query:");
		if (peer != me)
			printf("rank %d to %d: %s\n", me, peer, info.large);
	}
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}

// Says what the first send to the next rank gives; where memory is short that is the one that reserves it.
int first_send()
{
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	me = pt2p_rank(ctx);
	const pt2p_status_t status = pt2p_send(ctx, &me, sizeof me, (me + 1) % pt2p_size(ctx), tag_eager);
	printf("first send: %d %s\n", static_cast<int>(status), status == PT2P_OK ? "" : pt2p_last_error(ctx));
	pt2p_finalize(ctx);
	return 0;
}

// Ranks meet by files: empty ones, which take no memory.
std::string mark_of(const std::string &point, int rank) { return point + "." + std::to_string(rank); }
void leave_mark(const std::string &point, int rank) { fclose(fopen(mark_of(point, rank).c_str(), "w")); }
void wait_for_mark(const std::string &point, int rank)
{
	const double start = now();
	while (access(mark_of(point, rank).c_str(), F_OK) != 0) {
		if (now() - start > 3 * soon)
			fail("it took too long until all ranks came to", point.c_str());
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
}
void meet(const std::string &point)
{
	leave_mark(point, me);
	for (int r = 0; r < pt2p_size(ctx); ++r)
		wait_for_mark(point, r);
}

// Not every rank has room for the rings that a barrier takes. All learn of that in the same barrier; when `ballast` is given
// and gone, barriers work again. Rings may take the room that a late rank needs for its segment, and a late rank misses those
// that have left: hence the meetings.
int barrier_lacks(const char *ballast)
{
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	me = pt2p_rank(ctx);
	meet("/dev/shm/started");
	const double start = now();
	const pt2p_status_t status = pt2p_barrier(ctx);
	printf("barrier of %d: %d %s\n", me, static_cast<int>(status), status == PT2P_OK ? "" : pt2p_last_error(ctx));
	if (me == 0 && ballast)
		unlink(ballast);
	// As each time all of them fail or none does, they stay together.
	int more = 0;
	while (pt2p_barrier(ctx) != PT2P_OK && ballast && now() - start < soon)
		++more;
	meet("/dev/shm/done");
	if (now() - start > soon)
		fail("it took too long");
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	printf("end of %d: %d\n", me, more);
	return 0;
}

// ---- children and launchers -------------------------------------------------------------------------------------------

// What a child of a rank gets from every kind of call; its exit code is the number of the one that is wrong.
[[noreturn]] void child(pt2p_memory_t *memory, pt2p_remote_t *remote, pt2p_request_t *pending)
{
	int calls = 0;
	const auto refused = [&](pt2p_status_t status) {
		++calls;
		if (status != PT2P_ERR_FORKED || !strstr(pt2p_last_error(ctx), "forked"))
			_exit(calls);
	};
	const int peer = (me + 1) % ranks;
	uint64_t word = 0;
	size_t needed;
	int flag;
	pt2p_request_t *r;
	pt2p_result_t result;
	pt2p_info_t info;
	pt2p_peer_info_t peer_info;
	refused(pt2p_send(ctx, &word, sizeof word, peer, tag_never));
	refused(pt2p_isend(ctx, &word, sizeof word, peer, tag_never, &r));
	refused(pt2p_recv(ctx, &word, sizeof word, peer, tag_never, PT2P_TAG_EXACT, &result));
	refused(pt2p_irecv(ctx, &word, sizeof word, peer, tag_never, PT2P_TAG_EXACT, &r));
	refused(pt2p_iprobe(ctx, peer, tag_never, PT2P_TAG_ANY, &flag, &result));
	refused(pt2p_wait(ctx, pending, &result));
	refused(pt2p_test(ctx, pending, &flag, &result));
	refused(pt2p_cancel(ctx, pending));
	refused(pt2p_barrier(ctx));
	refused(pt2p_progress(ctx));
	refused(pt2p_put(ctx, &word, sizeof word, remote, 0, nullptr));
	refused(pt2p_fetch_add64(ctx, remote, 0, 1, &word, &r));
	refused(pt2p_flush(ctx, peer));
	refused(pt2p_memory_register(ctx, &word, sizeof word, &memory));
	refused(pt2p_memory_release(ctx, memory));
	refused(pt2p_remote_release(ctx, remote));
	refused(pt2p_set_delivery(ctx, peer, PT2P_DELIVERY_SEND));
	refused(pt2p_query(ctx, &info));
	refused(pt2p_peer_query(ctx, peer, &peer_info));
	refused(pt2p_summary(ctx, nullptr, 0, &needed));
	refused(pt2p_finalize(ctx));
	refused(pt2p_finalize(ctx));
	pt2p_context_t *other;
	refused(pt2p_init(nullptr, &other));
	++calls;
	if (pt2p_rank(ctx) != -1)
		_exit(calls);
	// The others are to wait for the parent, however long the child has been in the barrier.
	std::this_thread::sleep_for(std::chrono::milliseconds(300));
	if (me == 0)
		pt2p_abort(ctx, 99, nullptr); // of this process alone
#ifdef __SANITIZE_ADDRESS__
	_exit(99); // what threads of the parent hold counts as leaked here
#endif
	exit(99);
}

void end_of_child(pid_t pid)
{
	int status = 0;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fail("no child");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 99)
		fail("a child ended otherwise: the call that was wrong is number", std::to_string(WEXITSTATUS(status)).c_str());
}

int forked()
{
	join();
	pt2p_memory_t *memory;
	pt2p_remote_t *remote;
	void *address;
	must(pt2p_memory_allocate(ctx, 4096, &memory, &address), "pt2p_memory_allocate:");
	std::vector<unsigned char> blob(PT2P_EXPORT_MAX), theirs(PT2P_EXPORT_MAX);
	size_t needed;
	must(pt2p_memory_export(ctx, memory, blob.data(), blob.size(), &needed), "pt2p_memory_export:");
	const int next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
	pt2p_result_t result;
	must(pt2p_sendrecv(ctx, blob.data(), needed, previous, tag_eager, theirs.data(), theirs.size(), next, tag_eager,
	                   PT2P_TAG_EXACT, &result), "pt2p_sendrecv:");
	must(pt2p_memory_import(ctx, next, theirs.data(), result.length, &remote), "pt2p_memory_import:");
	std::vector<unsigned char> large(300000), in(large.size());
	for (unsigned round = 0; round < 2; ++round) {
		pt2p_request_t *pending;
		must(pt2p_irecv(ctx, in.data(), in.size(), previous, tag_large, PT2P_TAG_EXACT, &pending), "pt2p_irecv:");
		must(pt2p_barrier(ctx), "pt2p_barrier:");
		const double start = now();
		// One rank forks in the first round, all do in the second.
		if (me == 0 || round) {
			const pid_t pid = fork();
			if (pid == 0)
				child(memory, remote, pending);
			end_of_child(pid);
		}
		must(pt2p_barrier(ctx), "pt2p_barrier:");
		if (now() - start < 0.25)
			fail("a barrier has not waited for the parent");
		fill(large, round);
		must(pt2p_put(ctx, large.data(), 4096, remote, 0, nullptr), "pt2p_put:");
		must(pt2p_flush(ctx, next), "pt2p_flush:");
		must(pt2p_send(ctx, large.data(), large.size(), next, tag_large), "pt2p_send:");
		must(pt2p_wait(ctx, pending, &result), "pt2p_wait:");
		verify(in, round);
		must(pt2p_barrier(ctx), "pt2p_barrier:");
		if (memcmp(address, large.data(), 4096) != 0)
			fail("what was put is wrong");
		FILE *pipe = popen("echo hello", "r");
		char text[16] = "";
		if (system("true") != 0 || !pipe || !fgets(text, sizeof text, pipe) || pclose(pipe) != 0 || strcmp(text, "hello\n") != 0)
			fail("system() or popen() fails");
	}
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	printf("parent %d has finalized\n", me);
	return 0;
}

// The launcher is killed: ranks go on with each other and finalize. There is no output any more: each leaves a file.
int orphaned(const std::string &file)
{
	join();
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	if (me == 0)
		kill(getppid(), SIGKILL);
	// In this wait the launcher is asked for news, and its end is told on standard error.
	std::this_thread::sleep_for(std::chrono::milliseconds(100));
	int value = me;
	if (me == 1)
		std::this_thread::sleep_for(std::chrono::milliseconds(1500));
	must(pt2p_sendrecv(ctx, &value, sizeof value, (me + 1) % ranks, tag_eager, &value, sizeof value, (me + ranks - 1) % ranks,
	                   tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_sendrecv:");
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	const double start = now();
	const pt2p_status_t status = pt2p_finalize(ctx);
	if (status == PT2P_OK && now() - start < soon)
		fclose(fopen((file + "." + std::to_string(me)).c_str(), "w"));
	return 0;
}

// The first process above this one that is the launcher.
pid_t launcher()
{
	for (pid_t pid = getppid(); pid > 1;) {
		char name[64] = "";
		int parent = 0;
		FILE *stat = fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
		if (!stat || fscanf(stat, "%*d (%63[^)]) %*c %d", name, &parent) != 2)
			fail("cannot find the launcher");
		fclose(stat);
		if (!strncmp(name, "mpirun", 6) || !strcmp(name, "orterun"))
			return pid;
		pid = parent;
	}
	fail("there is no launcher");
}

// The launcher is killed while one rank has not begun, and while the others are in their first call. Nobody may stay behind.
int orphaned_early(const std::string &file, const std::string &call)
{
	constexpr int launched = 4;
	const int rank = atoi(getenv("PMIX_RANK"));
	if (rank == victim) {
		printf("pid %ld\n", static_cast<long>(getpid()));
		fflush(stdout);
		for (int r = 0; r < launched; ++r)
			if (r != victim)
				wait_for_mark(file + ".joined", r);
		std::this_thread::sleep_for(std::chrono::milliseconds(100)); // they are in their calls
		kill(launcher(), SIGKILL);
		std::this_thread::sleep_for(std::chrono::milliseconds(200));
		if (pt2p_init(nullptr, &ctx) != PT2P_ERR_LAUNCHER)
			return 1;
	} else {
		join();
		leave_mark(file + ".joined", rank);
		char byte;
		const double start = now();
		pt2p_status_t status = PT2P_OK;
		if (call == "probe")
			status = pt2p_probe(ctx, victim, tag_never, PT2P_TAG_EXACT, nullptr);
		else if (call == "recv_any")
			status = pt2p_recv(ctx, &byte, 1, PT2P_ANY_SOURCE, tag_never, PT2P_TAG_EXACT, nullptr);
		else if (me == victim + 1)
			status = pt2p_barrier(ctx);
		// Those that it has told in the barrier leave in order, and are not the one that it waits for.
		while (call == "barrier" && me != victim + 1 && now() - start < 1.2)
			pt2p_progress(ctx);
		pt2p_finalize(ctx);
		if ((status == PT2P_OK && (call != "barrier" || me == victim + 1)) || now() - start > soon)
			return 1;
	}
	fclose(fopen((file + "." + std::to_string(rank)).c_str(), "w"));
	return 0;
}

// A barrier, and the end; with a PMIx that does not come back.
int finalize_stuck()
{
	join();
	pmix_is_stuck = true;
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	const double start = now();
	const pt2p_status_t status = pt2p_finalize(ctx);
	printf("finalize of %d: %d%s\n", me, static_cast<int>(status), now() - start < soon ? "" : ", late");
	pt2p_context_t *again;
	if (pt2p_init(nullptr, &again) != PT2P_ERR_LAUNCHER)
		fail("pt2p_init after it");
	return 0;
}

// Takes all file descriptors away for as long as it lives: what is open stays so, and nothing else can be opened.
class NoDescriptors {
public:
	NoDescriptors()
	{
		if (getrlimit(RLIMIT_NOFILE, &before_) != 0)
			fail("getrlimit");
		const rlimit none{0, before_.rlim_max};
		setrlimit(RLIMIT_NOFILE, &none);
	}
	~NoDescriptors() { give_back(); }
	void give_back() const { setrlimit(RLIMIT_NOFILE, &before_); }

private:
	rlimit before_;
};

// What lacks a descriptor fails with the remedy, and is no verdict on a peer.
void lacks_descriptors(pt2p_status_t status, const char *what)
{
	const std::string text = status == PT2P_OK ? "" : pt2p_last_error(ctx);
	if (status != PT2P_ERR_SYSTEM || text.find("ulimit -n") == std::string::npos)
		fail(what, (std::string(pt2p_strerror(status)) + ": " + text).c_str());
}

// When a rank first sleeps it lacks descriptors: the call goes on all the same, and its buffer stays the call's.
int descriptors_sleeping()
{
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	me = pt2p_rank(ctx);
	int value = 1;
	if (me == 0) {
		const NoDescriptors none;
		std::thread back([&] {
			std::this_thread::sleep_for(std::chrono::milliseconds(300));
			none.give_back();
		});
		must(pt2p_recv(ctx, &value, sizeof value, 1, tag_eager, PT2P_TAG_EXACT, nullptr), "a receive without descriptors:");
		back.join();
		if (value != 2)
			fail("a payload is wrong");
	} else {
		std::this_thread::sleep_for(std::chrono::milliseconds(400));
		value = 2;
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
	}
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	if (me == 0)
		printf("descriptors: came through\n");
	return 0;
}

// Two ranks that have never met; rank 0 turns to rank 1, or has to answer it, while it can open nothing.
int descriptors(bool connecting)
{
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	me = pt2p_rank(ctx);
	ranks = pt2p_size(ctx);
	std::vector<unsigned char> data(3u << 20);
	int value = me;
	if (me == 0 && connecting) {
		{
			const NoDescriptors none;
			for (int i = 0; i < 3; ++i)
				lacks_descriptors(pt2p_send(ctx, &value, sizeof value, 1, tag_eager), "a send without descriptors:");
			lacks_descriptors(pt2p_barrier(ctx), "a barrier without descriptors:");
			// Long enough for it to look after its peers.
			int flag;
			for (const double end = now() + 0.5; now() < end;)
				must(pt2p_iprobe(ctx, 1, tag_never, PT2P_TAG_EXACT, &flag, nullptr), "pt2p_iprobe:");
		}
		must(pt2p_send(ctx, &value, sizeof value, 1, tag_eager), "a send with descriptors again:");
	} else if (me == 1 && connecting) {
		must(pt2p_recv(ctx, &value, sizeof value, 0, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	} else if (me == 0) {
		{
			const NoDescriptors none;
			must(pt2p_recv(ctx, &value, sizeof value, 1, tag_eager, PT2P_TAG_EXACT, nullptr), "a short message:");
			for (int i = 0; i < 3; ++i)
				lacks_descriptors(pt2p_recv(ctx, data.data(), data.size(), 1, tag_large, PT2P_TAG_EXACT, nullptr),
				                  "a receive of a large message without descriptors:");
		}
		must(pt2p_recv(ctx, data.data(), data.size(), 1, tag_large, PT2P_TAG_EXACT, nullptr), "with descriptors again:");
		verify(data, 1);
	} else {
		std::this_thread::sleep_for(std::chrono::milliseconds(400));
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
		fill(data, 1);
		must(pt2p_send(ctx, data.data(), data.size(), 0, tag_large), "pt2p_send:");
	}
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	if (me == 0)
		printf("descriptors: came through\n");
	return 0;
}

// Takes what is left of /dev/shm for as long as it lives.
class FullShm {
public:
	FullShm() : fd_(open("/dev/shm", O_TMPFILE | O_RDWR, 0600))
	{
		const std::vector<char> block(4096);
		while (write(fd_, block.data(), block.size()) > 0)
			;
		if (fd_ < 0 || errno != ENOSPC)
			fail("cannot fill /dev/shm");
	}
	~FullShm() { close(fd_); }

private:
	int fd_;
};

// A first contact that finds no memory can be repeated as often as it takes; and a connection that finds none later goes on.
int no_space()
{
	pt2p_context_t *pair[2];
	if (pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, nullptr, pair) != PT2P_OK)
		fail("pt2p_init_inprocess:", pt2p_last_error(nullptr));
	ctx = pair[0];
	int value = 7, got = 0;
	{
		const FullShm full;
		for (int i = 0; i < 5; ++i)
			if (pt2p_send(ctx, &value, sizeof value, 1, tag_eager) != PT2P_ERR_SHARED_MEMORY)
				fail("a send without memory:", pt2p_last_error(ctx));
	}
	must(pt2p_send(ctx, &value, sizeof value, 1, tag_eager), "a send with memory again:");
	ctx = pair[1];
	must(pt2p_recv(ctx, &got, sizeof got, 0, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "a send the other way:");
	must(pt2p_recv(pair[0], &value, sizeof value, 1, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	const FullShm full;
	for (const size_t length : {size_t{16384}, size_t{5000}, size_t{900000}}) {
		constexpr size_t messages = 20;
		std::vector<unsigned char> out(length), in(messages * length);
		std::vector<pt2p_request_t *> sends(messages), receives(messages);
		fill(out, 3);
		for (size_t i = 0; i < messages; ++i)
			must(pt2p_isend(pair[0], out.data(), length, 1, tag_large, &sends[i]), "pt2p_isend:");
		for (size_t i = 0; i < messages; ++i)
			must(pt2p_irecv(pair[1], in.data() + i * length, length, 0, tag_large, PT2P_TAG_EXACT, &receives[i]), "pt2p_irecv:");
		must(pt2p_waitall(pair[1], messages, receives.data(), nullptr), "receives:");
		must(pt2p_waitall(pair[0], messages, sends.data(), nullptr), "sends:");
		for (size_t i = 0; i < messages; ++i)
			verify({in.begin() + static_cast<ptrdiff_t>(i * length), in.begin() + static_cast<ptrdiff_t>((i + 1) * length)}, 3);
	}
	// From segments, which are packed before it is known how much there is room for. Backwards, so that none touch.
	constexpr size_t length = 900000, segment = 100;
	std::vector<unsigned char> out(length), in(length);
	std::vector<pt2p_iovec_t> from, to;
	fill(out, 4);
	for (size_t at = length; at; at -= segment) {
		from.push_back({out.data() + at - segment, segment});
		to.push_back({in.data() + at - segment, segment});
	}
	pt2p_request_t *send, *receive;
	must(pt2p_isendv(pair[1], from.data(), from.size(), 0, tag_large, &send), "pt2p_isendv:");
	must(pt2p_irecvv(pair[0], to.data(), to.size(), 1, tag_large, PT2P_TAG_EXACT, &receive), "pt2p_irecvv:");
	must(pt2p_wait(pair[0], receive, nullptr), "a receive in segments:");
	must(pt2p_wait(pair[1], send, nullptr), "a send from segments:");
	verify(in, 4);
	for (pt2p_context_t *c : pair)
		if (pt2p_finalize(c) != PT2P_OK)
			fail("pt2p_finalize:", pt2p_last_error(nullptr));
	printf("no space: %d came through\n", got);
	return 0;
}

// ---- alone ------------------------------------------------------------------------------------------------------------

int init()
{
	const double start = now();
	const pt2p_status_t status = pt2p_init(nullptr, &ctx);
	printf("pt2p_init: %d %s\n", static_cast<int>(status), status == PT2P_OK ? "" : pt2p_last_error(nullptr));
	if (now() - start > soon)
		fail("pt2p_init took too long");
	if ((status == PT2P_OK) != (ctx != nullptr))
		fail("status and context disagree");
	return status == PT2P_OK ? pt2p_finalize(ctx) : 0;
}

// The contexts of an in-process job, and a first message from 0 to 1.
int inprocess(int size)
{
	std::vector<pt2p_context_t *> all(static_cast<size_t>(size));
	pt2p_status_t status = pt2p_init_inprocess(size, PT2P_INPROCESS_COOPERATIVE, nullptr, all.data());
	if (status != PT2P_OK) {
		printf("pt2p_init_inprocess: %d %s\n", static_cast<int>(status), pt2p_last_error(nullptr));
		for (pt2p_context_t *c : all)
			if (c)
				fail("a context is left after a failure");
		return 0;
	}
	int value = 7;
	status = pt2p_send(all[0], &value, sizeof value, 1, tag_eager);
	printf("first send: %d %s\n", static_cast<int>(status), status == PT2P_OK ? "" : pt2p_last_error(all[0]));
	for (pt2p_context_t *c : all)
		pt2p_finalize(c);
	return 0;
}

// Finalize with requests of every kind left over.
int unfinished()
{
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	int in[3] = {}, out = 5;
	pt2p_request_t *r;
	must(pt2p_irecv(ctx, &in[0], sizeof in[0], PT2P_ANY_SOURCE, tag_never, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
	must(pt2p_irecv(ctx, &in[1], sizeof in[1], 0, tag_never, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
	must(pt2p_irecv(ctx, &in[2], sizeof in[2], 0, tag_eager, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
	must(pt2p_send(ctx, &out, sizeof out, 0, tag_eager), "pt2p_send:");
	must(pt2p_send(ctx, &out, sizeof out, 0, tag_after), "pt2p_send:"); // stays unexpected
	const double start = now();
	const pt2p_status_t status = pt2p_finalize(ctx);
	const std::string text = pt2p_last_error(nullptr);
	printf("unfinished: %s\n", text.c_str());
	if (status != PT2P_ERR_UNFINISHED || now() - start > soon)
		fail("pt2p_finalize returns otherwise, or late");
	if (text.find("2 receives") == std::string::npos || text.find("1 completed") == std::string::npos)
		fail("the explanation does not count what is left:", text.c_str());
	if (pt2p_finalize(nullptr) != PT2P_ERR_CONTEXT)
		fail("pt2p_finalize(NULL)");
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	const std::string mode = argc > 1 ? argv[1] : "";
	if (mode == "eager")
		return eager();
	if (mode == "large_sender")
		return large(true);
	if (mode == "large_receiver")
		return large(false);
	if (mode == "callbacks")
		return callbacks();
	if (mode == "announced")
		return announced();
	if (mode == "overtaken" || mode == "overtaken_any")
		return overtaken(mode == "overtaken" ? victim : PT2P_ANY_SOURCE);
	if (mode == "ignored" || mode == "ignored_synchronous")
		return ignored(mode == "ignored_synchronous");
	if (mode == "taken")
		return taken();
	if (mode == "barrier")
		return barrier(false);
	if (mode == "barrier_before")
		return barrier(true);
	if (mode.starts_with("starting_"))
		return starting(mode.substr(strlen("starting_")));
	if (mode == "any_source")
		return any_source();
	if (mode == "any_source_probed")
		return any_source_probed();
	if (mode == "finalize_dead" || mode == "finalize_dead_synchronous")
		return finalize_dead(mode == "finalize_dead_synchronous");
	if (mode == "finalized")
		return finalized();
	if (mode == "one_sided" || mode == "one_sided_stopped")
		return one_sided(mode == "one_sided_stopped");
	if (mode == "exchange")
		return exchange();
	if (mode == "first_send")
		return first_send();
	if (mode == "forked")
		return forked();
	if (mode == "orphaned")
		return orphaned(argc > 2 ? argv[2] : "orphan");
	if (mode == "orphaned_early")
		return argc > 3 ? orphaned_early(argv[2], argv[3]) : 2;
	if (mode == "descriptors_sleeping")
		return descriptors_sleeping();
	if (mode == "finalize_stuck")
		return finalize_stuck();
	if (mode == "barrier_lacks")
		return barrier_lacks(argc > 2 ? argv[2] : nullptr);
	if (mode == "descriptors_connecting" || mode == "descriptors_accepting")
		return descriptors(mode == "descriptors_connecting");
	if (mode == "no_space")
		return no_space();
	if (mode == "init")
		return init();
	if (mode == "inprocess")
		return inprocess(argc > 2 ? atoi(argv[2]) : 2);
	if (mode == "unfinished")
		return unfinished();
	fprintf(stderr, "fault: unknown case \"%s\"\n", mode.c_str());
	return 2;
}
