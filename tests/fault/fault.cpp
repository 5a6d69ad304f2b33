// SPDX-License-Identifier: BSD-3-Clause
// fault CASE [ARGUMENT ...]: something goes wrong, and the other ranks notice. run.sh starts the cases.
#include "tests/fault/cases.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fault/rank.hpp"

namespace {

using namespace fault;

struct Case {
	const char *name;
	int arguments; // how many it needs
	int (*run)(char **arguments);
};

// An argument that may be left out.
const char *given(const char *argument, const char *otherwise) { return argument ? argument : otherwise; }

const Case cases[] = {
    {"eager", 0, [](char **) { return eager(); }},
    {"large_sender", 0, [](char **) { return large(true); }},
    {"large_receiver", 0, [](char **) { return large(false); }},
    {"callbacks", 0, [](char **) { return callbacks(); }},
    {"announced", 0, [](char **) { return announced(); }},
    {"overtaken", 0, [](char **) { return overtaken(victim); }},
    {"overtaken_any", 0, [](char **) { return overtaken(PT2P_ANY_SOURCE); }},
    {"ignored", 0, [](char **) { return ignored(false); }},
    {"ignored_synchronous", 0, [](char **) { return ignored(true); }},
    {"taken", 0, [](char **) { return taken(); }},
    {"calls", 0, [](char **) { return calls(false); }},
    {"calls_kept", 0, [](char **) { return calls(true); }},
    {"one_sided", 0, [](char **) { return one_sided(false); }},
    {"one_sided_stopped", 0, [](char **) { return one_sided(true); }},

    {"barrier", 0, [](char **) { return barrier(false); }},
    {"barrier_before", 0, [](char **) { return barrier(true); }},
    {"starting_barrier", 0, [](char **) { return starting("barrier", false); }},
    {"starting_barrier_early", 0, [](char **) { return starting("barrier", true); }},
    {"starting_send", 0, [](char **) { return starting("send", false); }},
    {"starting_send_early", 0, [](char **) { return starting("send", true); }},
    {"starting_recv", 0, [](char **) { return starting("recv", false); }},
    {"starting_delivery", 0, [](char **) { return starting("delivery", false); }},
    {"starting_flush", 0, [](char **) { return starting("flush", false); }},
    {"any_source", 0, [](char **) { return any_source(); }},
    {"any_source_probed", 0, [](char **) { return any_source_probed(); }},
    {"finalize_dead", 0, [](char **) { return finalize_dead(false); }},
    {"finalize_dead_synchronous", 0, [](char **) { return finalize_dead(true); }},
    {"finalized", 0, [](char **) { return finalized(); }},

    {"exchange", 0, [](char **) { return exchange(); }},
    {"first_send", 0, [](char **) { return first_send(); }},
    {"barrier_lacks", 0, [](char **a) { return barrier_lacks(a[0], a[0] && a[1] ? atof(a[1]) : 0); }},
    {"descriptors_sleeping", 0, [](char **) { return descriptors_sleeping(); }},
    {"descriptors_connecting", 0, [](char **) { return descriptors(true); }},
    {"descriptors_accepting", 0, [](char **) { return descriptors(false); }},
    {"no_space", 0, [](char **) { return no_space(); }},

    {"forked", 0, [](char **) { return forked(); }},
    {"orphaned", 0, [](char **a) { return orphaned(given(a[0], "orphan")); }},
    {"orphaned_early", 2, [](char **a) { return orphaned_early(a[0], a[1]); }},
    {"finalize_stuck", 0, [](char **) { return finalize_stuck(); }},

    {"init", 0, [](char **) { return init(); }},
    {"inprocess", 0, [](char **a) { return inprocess(atoi(given(a[0], "2"))); }},
    {"unfinished", 0, [](char **) { return unfinished(); }},
};

} // namespace

int main(int argc, char **argv)
{
	for (const Case &c : cases)
		if (argc > 1 && strcmp(argv[1], c.name) == 0)
			return argc - 2 >= c.arguments ? c.run(argv + 2) : 2;
	fprintf(stderr, "fault: unknown case \"%s\"\n", argc > 1 ? argv[1] : "");
	return 2;
}
