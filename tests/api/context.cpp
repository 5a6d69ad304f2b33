// SPDX-License-Identifier: BSD-3-Clause
// Starting with bad options, and what a context says about itself.
#include "tests/api/job.hpp"

#include <climits>
#include <cstring>
#include <string>

TEST_CASE("pt2p_init and pt2p_init_inprocess refuse bad options")
{
	pt2p_context_t *ctx[2];
	const auto reset = [&] { ctx[0] = ctx[1] = reinterpret_cast<pt2p_context_t *>(uintptr_t{8}); };
	refused(nullptr, pt2p_init(nullptr, nullptr), PT2P_ERR_ARGUMENT, "ctx");
	refused(nullptr, pt2p_init_inprocess(2, PT2P_INPROCESS_THREADS, nullptr, nullptr), PT2P_ERR_ARGUMENT, "ctx");
	for (int size : {0, -1, 4097, INT_MAX, INT_MIN})
		refused(nullptr, pt2p_init_inprocess(size, PT2P_INPROCESS_THREADS, nullptr, ctx), PT2P_ERR_ARGUMENT, "size");
	reset();
	refused(nullptr, pt2p_init_inprocess(2, static_cast<pt2p_inprocess_mode_t>(3), nullptr, ctx), PT2P_ERR_ARGUMENT,
	        "mode");
	CHECK(ctx[0] == nullptr);
	CHECK(ctx[1] == nullptr);

	for (size_t size : {size_t{0}, size_t{1}, sizeof(pt2p_options_t) + 8, SIZE_MAX}) {
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.struct_size = size;
		reset();
		refused(nullptr, pt2p_init(&options, ctx), PT2P_ERR_ARGUMENT, "struct_size");
		CHECK(ctx[0] == nullptr);
		refused(nullptr, pt2p_init_inprocess(2, PT2P_INPROCESS_THREADS, &options, ctx), PT2P_ERR_ARGUMENT,
		        "struct_size");
		CHECK(ctx[1] == nullptr);
	}
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.thread_level = static_cast<pt2p_thread_level_t>(3);
	refused(nullptr, pt2p_init(&options, ctx), PT2P_ERR_ARGUMENT, "thread_level");

	const struct {
		const char *text, *word;
	} tunables[] = {
	    {"PT2P_EAGER_MXA=1", "PT2P_EAGER_MAX"},
	    {"PT2P_EAGER_MAX=abc", "PT2P_EAGER_MAX"},
	    {"PT2P_EAGER_MAX=-1", "PT2P_EAGER_MAX"},
	    {"PT2P_SHM_RING_SLOTS=1", "8"},
	    {"PT2P_SHM_BACKING=floppy", "memfd"},
	    {"PT2P_SLEEP=maybe", "PT2P_SLEEP"},
	    {"PT2P_EAGER_MAX", "PT2P_EAGER_MAX"},
	    {"=1", ""},
	    {"", ""},
	    {"EAGER_MAX=1", ""},
	};
	for (const auto &t : tunables) {
		INFO(t.text);
		const char *list[] = {t.text, nullptr};
		options = PT2P_OPTIONS_INIT;
		options.tunables = list;
		reset();
		refused(nullptr, pt2p_init(&options, ctx), PT2P_ERR_TUNABLE, t.word);
		CHECK(ctx[0] == nullptr);
		refused(nullptr, pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx), PT2P_ERR_TUNABLE, t.word);
		CHECK(ctx[1] == nullptr);
	}
}

TEST_CASE("a transport list that reaches nobody")
{
	const char *list[] = {"PT2P_TRANSPORTS=self", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list;
	pt2p_context_t *ctx[2];
	const pt2p_status_t started = pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx);
	REQUIRE(started == PT2P_OK);
	char byte = 1;
	refused(ctx[0], pt2p_send(ctx[0], &byte, 1, 1, 0), PT2P_ERR_UNREACHABLE, "rank 1");
	pt2p_request_t *req = nullptr;
	refused(ctx[0], pt2p_isend(ctx[0], &byte, 1, 1, 0, &req), PT2P_ERR_UNREACHABLE, "rank 1");
	CHECK(req == nullptr);
	pt2p_message_t *message = nullptr;
	const uint64_t word = 0;
	refused(ctx[0], pt2p_probe(ctx[0], 1, 0, PT2P_TAG_EXACT, nullptr), PT2P_ERR_UNREACHABLE, "rank 1");
	refused(ctx[0], pt2p_mprobe(ctx[0], 1, 0, PT2P_TAG_EXACT, &message, nullptr), PT2P_ERR_UNREACHABLE, "rank 1");
	refused(ctx[0], pt2p_signal_wait(ctx[0], &word, 1, 1), PT2P_ERR_UNREACHABLE, "rank 1");
	CHECK(pt2p_send(ctx[0], &byte, 1, 0, 0) == PT2P_OK);
	CHECK(pt2p_recv(ctx[0], &byte, 1, 0, 0, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);

	const char *unknown[] = {"PT2P_TRANSPORTS=self,carrier_pigeon", nullptr};
	options.tunables = unknown;
	refused(nullptr, pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx), PT2P_ERR_TUNABLE,
	        "carrier_pigeon");
}

TEST_CASE("pretended nodes are not reached by shm")
{
	const char *list[] = {"PT2P_RANKS_PER_NODE=1", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list;
	pt2p_context_t *ctx[2];
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
	pt2p_peer_info_t peer;
	CHECK(pt2p_peer_query(ctx[0], 1, &peer) == PT2P_OK);
	CHECK(peer.same_node == 0);
	char byte = 1;
	refused(ctx[0], pt2p_send(ctx[0], &byte, 1, 1, 0), PT2P_ERR_UNREACHABLE, "rank 1");
	CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
}

TEST_CASE("texts, counters, queries")
{
	CHECK(std::string(pt2p_version()) == std::to_string(PT2P_VERSION_MAJOR) + "." + std::to_string(PT2P_VERSION_MINOR) +
	                                         "." + std::to_string(PT2P_VERSION_PATCH));
	CHECK(std::string(pt2p_strerror(PT2P_OK)) == "success");
	for (int code = -3; code < 40; ++code) {
		REQUIRE(pt2p_strerror(static_cast<pt2p_status_t>(code)) != nullptr);
		CHECK(strlen(pt2p_strerror(static_cast<pt2p_status_t>(code))) > 0);
	}
	REQUIRE(pt2p_counter_count() > 5);
	for (int i = 0; i < pt2p_counter_count(); ++i) {
		CHECK(strlen(pt2p_counter_name(i)) > 0);
		CHECK(strlen(pt2p_counter_help(i)) > 0);
	}
	for (int i : {-1, pt2p_counter_count(), INT_MAX, INT_MIN}) {
		CHECK(pt2p_counter_name(i) == nullptr);
		CHECK(pt2p_counter_help(i) == nullptr);
	}
	Job job(2, PT2P_THREAD_SERIALIZED);
	uint64_t value = 1;
	for (int i : {-1, pt2p_counter_count(), INT_MAX, INT_MIN})
		refused(job[0], pt2p_counter_read(job[0], i, &value), PT2P_ERR_ARGUMENT);
	pt2p_info_t info;
	CHECK(pt2p_query(job[1], &info) == PT2P_OK);
	CHECK(info.rank == 1);
	CHECK(info.size == 2);
	CHECK(info.local_rank == 1);
	CHECK(info.local_size == 2);
	CHECK(info.cpus > 0);
	CHECK(strlen(info.host) > 0);
	CHECK(info.thread_level == PT2P_THREAD_SERIALIZED);
	pt2p_peer_info_t peer;
	CHECK(pt2p_peer_query(job[0], 1, &peer) == PT2P_OK);
	CHECK(peer.state == PT2P_PEER_UNKNOWN);
	CHECK(peer.transport[0] == 0);
	CHECK(peer.same_node == 1);
	CHECK(pt2p_dump(job[0]) == PT2P_OK);

	for (const auto write : {pt2p_summary, pt2p_report}) {
		size_t needed = 0;
		CHECK(write(job[0], nullptr, 0, &needed) == PT2P_OK);
		REQUIRE(needed > 20);
		std::string text(needed, 'x');
		CHECK(write(job[0], text.data(), needed, nullptr) == PT2P_OK);
		CHECK(strlen(text.c_str()) == needed - 1);
		char small[6];
		memset(small, 'x', sizeof small);
		CHECK(write(job[0], small, 5, &needed) == PT2P_OK);
		CHECK(needed == text.size());
		CHECK(small[4] == 0);
		CHECK(small[5] == 'x');
		CHECK(text.compare(0, 4, small) == 0);
	}
}
