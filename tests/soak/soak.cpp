// SPDX-License-Identifier: BSD-3-Clause
// A run of the soak: a configuration and a load that follow from a seed. Every byte and the order of messages are
// checked.
//
//     soak [--show] SEED [NAME=VALUE ...]
//
// Run in the build tree. It sets the tunables and starts itself again below softhca and mpirun as the plan says. With
// --show it prints the command instead. plan.hpp lists what can be changed. Each rank prints a line "done RANK ..."
// with what it did.
#include <barrier>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <malloc.h>
#include <memory>
#include <thread>
#include <unistd.h>

#include "lane.hpp"
#include "remote.hpp"
#include "softhca/softhca.h"

namespace soak {
namespace {

std::vector<pt2p_context_t *> watched;

struct Run;
std::vector<Run *> runs_under_way;
void tell_states();

void too_long(int)
{
	// A second signal ends the program, as the dump may wait for a lock.
	signal(SIGALRM, SIG_DFL);
	alarm(5);
	const char text[] = "FAIL: hangs\n";
	[[maybe_unused]] const ssize_t n = write(2, text, sizeof text - 1);
	tell_states();
	for (pt2p_context_t *ctx : watched)
		pt2p_dump(ctx);
	_exit(1);
}

void break_later(const Plan &plan)
{
	char why[200] = "";
	if (!plan.late_fault.empty() && (!softhca_fault || softhca_fault(plan.late_fault.c_str(), why, sizeof why) != 0))
		fail("softhca does not take \"" + plan.late_fault + "\": " + why);
}

void die_in(unsigned us)
{
	std::thread([us] {
		usleep(us);
		kill(getpid(), SIGKILL);
	}).detach();
}

// A rank's share of the run, in steps.
struct Run {
	Run(const Plan &plan, pt2p_context_t *ctx, const std::vector<std::vector<Message>> &messages) : rank(plan, ctx)
	{
		if (plan.memory)
			window = std::make_unique<Window>(rank);
		for (int t = 0; t < plan.threads; ++t) {
			loads.push_back(window ? std::make_unique<RemoteLoad>(*window, rank, t) : nullptr);
			lanes.push_back(std::make_unique<Lane>(rank, t, messages, loads.back().get()));
			if (window)
				loads.back()->attach(*lanes.back());
		}
		runs_under_way.push_back(this);
	}
	~Run() { std::erase(runs_under_way, this); }
	void lane(size_t t)
	{
		for (size_t e = 0; e < static_cast<size_t>(rank.plan.episodes); ++e) {
			lanes[t]->post(e);
			lanes[t]->receive(e);
			lanes[t]->finish(e);
			if (!rank.plan.barriers)
				continue;
			together.arrive_and_wait();
			if (t == 0)
				rank.ok(pt2p_barrier(rank.ctx), rank.me, "pt2p_barrier");
			together.arrive_and_wait();
		}
		if (loads[t])
			loads[t]->last();
	}
	// Waits until all ranks that live have come here.
	void meet()
	{
		if (!rank.has_victim()) {
			rank.ok(pt2p_barrier(rank.ctx), rank.me, "pt2p_barrier");
			return;
		}
		for (int peer = 0; peer < rank.plan.ranks; ++peer)
			if (peer != rank.me && peer != rank.plan.victim)
				rank.ok(exchange(peer), peer, "the last exchange");
	}
	// Connects each rank to each other one.
	void greet()
	{
		for (int peer = 0; peer < rank.plan.ranks; ++peer)
			if (peer != rank.me)
				rank.ok(exchange(peer), peer, "greeting");
	}
	pt2p_status_t exchange(int peer)
	{
		return pt2p_sendrecv(rank.ctx, nullptr, 0, peer, tag_met, nullptr, 0, peer, tag_met, PT2P_TAG_EXACT, nullptr);
	}
	// The victim goes on until it is killed. The others see it lost in the end.
	void mourn()
	{
		if (rank.me == rank.plan.victim)
			for (;;)
				pt2p_progress(rank.ctx);
		if (rank.ok(pt2p_recv(rank.ctx, nullptr, 0, rank.plan.victim, tag_met, PT2P_TAG_EXACT, nullptr),
		            rank.plan.victim, "waiting for the loss"))
			fail("something came from the victim");
		pt2p_peer_info_t info{};
		rank.ok(pt2p_peer_query(rank.ctx, rank.plan.victim, &info), rank.me, "pt2p_peer_query");
		if (rank.ok(pt2p_send(rank.ctx, nullptr, 0, rank.plan.victim, tag_met), rank.plan.victim,
		            "a send after the loss"))
			fail("a send to the victim succeeds after the loss");
	}
	void all()
	{
		if (window) {
			window->lend();
			window->take();
		}
		std::vector<std::thread> threads;
		for (size_t t = 1; t < lanes.size(); ++t)
			threads.emplace_back([this, t] { as_rank([this, t] { lane(t); }); });
		lane(0);
		for (std::thread &t : threads)
			t.join();
		if (rank.has_victim())
			mourn();
		if (!window && !rank.has_victim())
			return;
		if (window) {
			window->account();
			window->verify();
			window->give_up();
		}
		meet();
		if (window)
			window->withdraw();
	}
	template <class F>
	void as_rank(F &&f)
	{
		acting = rank.me;
		f();
	}
	void leave()
	{
		lanes.clear();
		const int me = rank.me;
		if (pt2p_finalize(rank.ctx) != PT2P_OK)
			fail(std::string("pt2p_finalize: ") + pt2p_last_error(nullptr));
		const Counts &c = rank.counts;
		const auto n = [](const std::atomic<uint64_t> &v) { return static_cast<unsigned long long>(v); };
		printf("done %d messages %llu bytes %llu operations %llu cancelled %llu truncated %llu probed %llu lost %llu\n",
		       me, n(c.messages), n(c.bytes), n(c.operations), n(c.cancelled), n(c.truncated), n(c.probed), n(c.lost));
		fflush(stdout);
	}

	static constexpr uint64_t tag_met = UINT64_C(12) << 60;
	Rank rank;
	std::unique_ptr<Window> window;
	std::vector<std::unique_ptr<RemoteLoad>> loads;
	std::vector<std::unique_ptr<Lane>> lanes;
	std::barrier<> together{rank.plan.threads};
};

// Not safe in a signal handler, but better than nothing.
void tell_states()
{
	for (const Run *r : runs_under_way)
		for (const auto &l : r->lanes)
			fprintf(stderr, "%s\n", l->state().c_str());
}

using Runs = std::vector<std::unique_ptr<Run>>;

void cooperate(Runs &runs, const Plan &plan)
{
	const auto each = [&runs](auto &&step) {
		for (auto &r : runs)
			r->as_rank([&] { step(*r); });
	};
	if (plan.memory) {
		each([](Run &r) { r.window->lend(); });
		each([](Run &r) { r.window->take(); });
	}
	for (size_t e = 0; e < static_cast<size_t>(plan.episodes); ++e) {
		each([e](Run &r) { r.lanes[0]->post(e); });
		each([e](Run &r) { r.lanes[0]->receive(e); });
		each([e](Run &r) { r.lanes[0]->finish(e); });
	}
	if (plan.memory) {
		each([](Run &r) { r.loads[0]->last(); });
		each([](Run &r) { r.window->account(); });
		each([](Run &r) { r.window->verify(); });
		each([](Run &r) { r.window->give_up(); });
		each([](Run &r) { r.window->withdraw(); });
	}
	each([](Run &r) { r.leave(); });
}

void inside(const Plan &plan)
{
	const auto messages = plan.messages_of_all_episodes();
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.thread_level = plan.threads > 1 ? PT2P_THREAD_MULTIPLE : PT2P_THREAD_SERIALIZED;
	if (plan.mode == Mode::launched) {
		if (plan.victim >= 0 && plan.kill_from == 1 && atoi(getenv("OMPI_COMM_WORLD_RANK") ?: "-1") == plan.victim)
			die_in(plan.kill_us);
		for (int join = 0; join < plan.joins; ++join) {
			watched.assign(1, nullptr);
			if (pt2p_init(&options, watched.data()) != PT2P_OK)
				fail(std::string("pt2p_init: ") + pt2p_last_error(nullptr));
			break_later(plan);
			Run run(plan, watched[0], messages);
			run.as_rank([&] {
				if (plan.victim >= 0 && plan.kill_from == 0)
					run.greet();
				if (run.rank.me == plan.victim && plan.kill_from != 1)
					die_in(plan.kill_us);
				run.all();
			});
			watched.clear();
			run.leave();
		}
		return;
	}
	watched.resize(static_cast<size_t>(plan.ranks));
	const auto mode = plan.mode == Mode::cooperative ? PT2P_INPROCESS_COOPERATIVE : PT2P_INPROCESS_THREADS;
	if (pt2p_init_inprocess(plan.ranks, mode, &options, watched.data()) != PT2P_OK)
		fail(std::string("pt2p_init_inprocess: ") + pt2p_last_error(nullptr));
	break_later(plan);
	Runs runs;
	for (pt2p_context_t *ctx : watched) {
		runs.push_back(std::make_unique<Run>(plan, ctx, messages));
		if (plan.mode == Mode::cooperative)
			runs.back()->rank.siblings = watched;
	}
	if (plan.mode == Mode::cooperative)
		return cooperate(runs, plan);
	std::vector<std::thread> threads;
	for (auto &r : runs)
		threads.emplace_back([&r] {
			r->as_rank([&r] { r->all(); });
			r->leave();
		});
	for (std::thread &t : threads)
		t.join();
}

int main(int argc, char **argv)
{
	std::vector<std::string> words(argv + 1, argv + argc);
	const bool rank = !words.empty() && words[0] == "--rank", show = !words.empty() && words[0] == "--show";
	if (rank || show)
		words.erase(words.begin());
	if (words.empty() || words[0].find_first_not_of("0123456789") != std::string::npos) {
		fprintf(stderr, "usage: %s [--show] SEED [NAME=VALUE ...]\n", argv[0]);
		return 2;
	}
	const Plan plan = make_plan(strtoull(words[0].c_str(), nullptr, 10), {words.begin() + 1, words.end()});
	if (rank) {
		// The heap keeps its memory, so the library need not be told of freed buffers.
		mallopt(M_MMAP_MAX, 0);
		mallopt(M_TRIM_THRESHOLD, -1);
		mallopt(M_ARENA_MAX, 1);
		signal(SIGALRM, too_long);
		alarm(plan.bound);
		inside(plan);
		return 0;
	}
	const std::vector<std::string> command = plan.command(argv[0], words);
	printf("seed %llu: %s\n", static_cast<unsigned long long>(plan.seed), plan.text().c_str());
	if (show)
		return 0;
	fflush(stdout);
	for (const std::string &t : plan.tunables)
		putenv(strdup(t.c_str()));
	for (const char *name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
		setenv(name, "1", 1);
	setenv("PT2P_CONF", "/dev/null", 1);
	std::vector<char *> arguments;
	for (const std::string &word : command)
		arguments.push_back(strdup(word.c_str()));
	arguments.push_back(nullptr);
	execvp(arguments[0], arguments.data());
	fprintf(stderr, "soak: %s: %s\n", arguments[0], strerror(errno));
	return 127;
}

} // namespace
} // namespace soak

int main(int argc, char **argv) { return soak::main(argc, argv); }
