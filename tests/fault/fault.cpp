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

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int victim = 1;
constexpr double soon = 10; // seconds
constexpr uint64_t tag_eager = 1, tag_large = 2, tag_after = 3, tag_never = 4;

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

// The victim never receives what was announced to it.
int ignored()
{
	join();
	std::vector<unsigned char> data(4u << 20);
	if (is_victim())
		progress_until_death(500);
	const double start = now();
	const pt2p_status_t status = pt2p_send(ctx, data.data(), data.size(), victim, tag_large);
	survived(status, now() - start - 0.5);
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

// Finalize with a large message on its way to the dead.
int finalize_dead()
{
	join();
	std::vector<unsigned char> data(4u << 20);
	if (is_victim())
		progress_until_death(300);
	pt2p_request_t *r;
	must(pt2p_isend(ctx, data.data(), data.size(), victim, tag_large, &r), "pt2p_isend:");
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
	if (mode == "announced")
		return announced();
	if (mode == "ignored")
		return ignored();
	if (mode == "barrier")
		return barrier(false);
	if (mode == "barrier_before")
		return barrier(true);
	if (mode == "any_source")
		return any_source();
	if (mode == "any_source_probed")
		return any_source_probed();
	if (mode == "finalize_dead")
		return finalize_dead();
	if (mode == "finalized")
		return finalized();
	if (mode == "one_sided" || mode == "one_sided_stopped")
		return one_sided(mode == "one_sided_stopped");
	if (mode == "exchange")
		return exchange();
	if (mode == "first_send")
		return first_send();
	if (mode == "init")
		return init();
	if (mode == "inprocess")
		return inprocess(argc > 2 ? atoi(argv[2]) : 2);
	if (mode == "unfinished")
		return unfinished();
	fprintf(stderr, "fault: unknown case \"%s\"\n", mode.c_str());
	return 2;
}
