// The conformance cases in in-process jobs, with threads and cooperatively, under several sets of tunables.
//
// Without arguments: everything. Else: conformance_inprocess threads|cooperative RANKS [PT2P_NAME=value ...] [case ...]
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "harness.hpp"

namespace conformance {
namespace {

std::atomic<unsigned> cases_run{0};

[[noreturn]] void give_up(const std::string &setting, const Case &c, int rank, const char *what)
{
	fprintf(stderr, "FAIL %s, case %s, rank %d: %s\n", setting.c_str(), c.name, rank, what);
	fflush(nullptr);
	_Exit(1);
}

void run_cooperatively(const std::string &setting, const Case &c, std::vector<Rank> &ranks)
{
	std::vector<Finish> finishes;
	size_t rank = 0;
	try {
		for (; rank < ranks.size(); ++rank)
			finishes.push_back(c.run(ranks[rank]));
		for (rank = 0; rank < ranks.size(); ++rank)
			if (finishes[rank])
				finishes[rank]();
		for (rank = 0; rank < ranks.size(); ++rank)
			ranks[rank].run_last();
	} catch (const std::exception &e) {
		give_up(setting, c, static_cast<int>(rank), e.what());
	}
}

void run_in_threads(const std::string &setting, const Case &c, std::vector<Rank> &ranks)
{
	std::vector<std::thread> threads;
	std::atomic<size_t> at_end{0};
	for (Rank &r : ranks)
		threads.emplace_back([&] {
			try {
				if (Finish finish = c.run(r))
					finish();
				r.run_last();
				EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
				// A queue pair that breaks may lose the last message of the barrier. Only a rank that calls into the
				// library sends it again.
				for (++at_end; at_end < ranks.size(); std::this_thread::yield())
					EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
			} catch (const std::exception &e) {
				give_up(setting, c, r.me, e.what());
			}
		});
	for (std::thread &t : threads)
		t.join();
}

void run_job(bool cooperative, int size, const std::vector<std::string> &tunables,
             const std::vector<std::string> &names)
{
	std::string setting = std::string(cooperative ? "cooperative" : "threads") + " " + std::to_string(size);
	std::vector<const char *> list;
	for (const std::string &t : tunables) {
		setting += " " + t;
		list.push_back(t.c_str());
	}
	list.push_back(nullptr);
	printf("%s\n", setting.c_str());
	fflush(stdout);

	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list.data();
	std::vector<pt2p_context_t *> contexts(static_cast<size_t>(size));
	// Each context is driven by its own thread, not by the one that makes it.
	options.thread_level = PT2P_THREAD_SERIALIZED;
	const auto mode = cooperative ? PT2P_INPROCESS_COOPERATIVE : PT2P_INPROCESS_THREADS;
	if (pt2p_init_inprocess(size, mode, &options, contexts.data()) != PT2P_OK) {
		fprintf(stderr, "FAIL %s: pt2p_init_inprocess: %s\n", setting.c_str(), pt2p_last_error(nullptr));
		_Exit(1);
	}
	std::vector<Rank> ranks(contexts.size());
	for (size_t i = 0; i < ranks.size(); ++i) {
		ranks[i].ctx = contexts[i];
		ranks[i].me = pt2p_rank(contexts[i]);
		ranks[i].size = pt2p_size(contexts[i]);
		ranks[i].cooperative = cooperative;
		if (cooperative)
			ranks[i].driven_along = contexts;
		learn_tunables(ranks[i], tunables);
	}

	for (const Case &c : choose_cases(names)) {
		if (cooperative && !c.cooperative)
			continue;
		watch(c.name, ranks);
		++cases_run;
		if (cooperative)
			run_cooperatively(setting, c, ranks);
		else
			run_in_threads(setting, c, ranks);
	}
	unwatch();
	for (pt2p_context_t *ctx : contexts)
		if (pt2p_finalize(ctx) != PT2P_OK) {
			fprintf(stderr, "FAIL %s: pt2p_finalize: %s\n", setting.c_str(), pt2p_last_error(nullptr));
			_Exit(1);
		}
}

} // namespace
} // namespace conformance

int main(int argc, char **argv)
{
	using namespace conformance;
	if (argc > 1) {
		if (argc < 3) {
			fprintf(stderr, "usage: %s [threads|cooperative RANKS [PT2P_NAME=value ...] [case ...]]\n", argv[0]);
			return 2;
		}
		std::vector<std::string> tunables, names;
		for (int i = 3; i < argc; ++i)
			(strchr(argv[i], '=') ? tunables : names).push_back(argv[i]);
		run_job(!strcmp(argv[1], "cooperative"), atoi(argv[2]), tunables, names);
	} else {
		const std::vector<std::vector<std::string>> variants = {
		    {"PT2P_TRANSPORTS=self,shm"},
		    {"PT2P_RENDEZVOUS=write"},
		    {"PT2P_SHM_SINGLE_COPY=0"},
		    {"PT2P_SHM_BACKING=devshm"},
		    {"PT2P_SHM_RING_SLOTS=8", "PT2P_SHM_RING_BYTES=4096"},
		    {"PT2P_EAGER_MAX=0"},
		    {"PT2P_UNEXPECTED_MAX=0"},
		    {"PT2P_UNEXPECTED_MAX=64k", "PT2P_SHM_RING_BYTES=32k"},
		    {"PT2P_SPIN_TIME=0", "PT2P_YIELD_TIME=0"},
		    {"PT2P_PROGRESS_THREAD=1"},
		};
		run_job(false, 1, {"PT2P_TRANSPORTS=self"}, {});
		run_job(true, 1, {}, {});
		for (const auto &tunables : variants) {
			run_job(false, 2, tunables, {});
			run_job(true, 2, tunables, {"most"});
		}
		for (const char *ways : {"PT2P_ONE_SIDED=transport", "PT2P_ONE_SIDED=owner"}) {
			run_job(false, 1, {ways}, {"one_sided"});
			run_job(false, 3, {ways}, {"one_sided"});
			run_job(true, 3, {ways}, {"one_sided"});
		}
		run_job(false, 3, {"PT2P_ONE_SIDED=owner", "PT2P_SHM_RING_SLOTS=8", "PT2P_SHM_RING_BYTES=4096"}, {"one_sided"});
		run_job(false, 2, {"PT2P_ONE_SIDED=owner", "PT2P_PROGRESS_THREAD=1"}, {"one_sided"});
		run_job(false, 3, {"PT2P_CALL_WINDOW=1"}, {"calls"});
		run_job(true, 3, {"PT2P_CALL_WINDOW=1"}, {"calls"});
		run_job(false, 2, {"PT2P_CALL_WINDOW=4096", "PT2P_SHM_RING_SLOTS=8", "PT2P_SHM_RING_BYTES=4096"}, {"calls"});
		run_job(false, 4, {}, {});
		run_job(true, 4, {}, {});
		run_job(true, 16, {}, {"empty_messages", "any_source", "random_exact", "wait_all"});
		run_job(false, 3, {"PT2P_SHM_RING_SLOTS=8", "PT2P_SHM_RING_BYTES=4096", "PT2P_SHM_SINGLE_COPY=0"}, {});
	}
	printf("%u cases passed\n", cases_run.load());
	return 0;
}
