// SPDX-License-Identifier: BSD-3-Clause
// Memory and one-sided operations: bad arguments.
#include "tests/api/job.hpp"

#include <cstring>
#include <sys/sysinfo.h>
#include <vector>

namespace {

// 64 bytes of rank 0 that both ranks have imported.
struct Exposed {
	Exposed()
	{
		REQUIRE(pt2p_memory_register(job[0], bytes, sizeof bytes, &mem) == PT2P_OK);
		REQUIRE(pt2p_memory_export(job[0], mem, blob.data(), blob.size(), &length) == PT2P_OK);
		REQUIRE(pt2p_memory_import(job[0], 0, blob.data(), length, &remote) == PT2P_OK);
		REQUIRE(pt2p_memory_import(job[1], 0, blob.data(), length, &other) == PT2P_OK);
	}
	// The refused calls did nothing, and the context works.
	void check_untouched()
	{
		for (unsigned char byte : bytes)
			CHECK(byte == 0);
		CHECK(pt2p_put(job[0], "x", 1, remote, 5, nullptr) == PT2P_OK);
		CHECK(pt2p_flush_all(job[0]) == PT2P_OK);
		CHECK(bytes[5] == 'x');
		CHECK(pt2p_remote_release(job[0], remote) == PT2P_OK);
		CHECK(pt2p_remote_release(job[1], other) == PT2P_OK);
		CHECK(pt2p_memory_release(job[0], mem) == PT2P_OK);
		CHECK(pt2p_memory_gone(job[0], bytes, sizeof bytes) == PT2P_OK);
	}
	const Job job;
	alignas(8) unsigned char bytes[64] = {};
	pt2p_memory_t *mem = nullptr;
	pt2p_remote_t *remote = nullptr, *other = nullptr; // imported by rank 0, by rank 1
	std::vector<unsigned char> blob = std::vector<unsigned char>(PT2P_EXPORT_MAX);
	size_t length = 0;
};

// A program in C may pass a value outside of the enumeration. C++ does not define what it is to read one, so
// UndefinedBehaviorSanitizer must not look here.
__attribute__((no_sanitize("enum"))) pt2p_status_t put_signal_of_no_kind(pt2p_context_t *c, const unsigned char *bytes,
                                                                         pt2p_remote_t *remote, pt2p_request_t **req)
{
	pt2p_signal_t how;
	std::memset(&how, 7, sizeof how);
	return pt2p_put_signal(c, bytes, 8, remote, 0, remote, 8, how, 1, req);
}

} // namespace

TEST_CASE("a null context is refused by every function for memory and one-sided operations")
{
	char byte = 0;
	size_t index = 0;
	uint64_t value = 0;
	pt2p_request_t *req = nullptr;
	pt2p_memory_t *mem = nullptr;
	pt2p_remote_t *remote = nullptr;
	pt2p_remote_info_t remote_info;
	void *address = nullptr;
	const pt2p_status_t got[] = {
	    pt2p_memory_register(nullptr, &value, 8, &mem),
	    pt2p_memory_allocate(nullptr, 8, &mem, &address),
	    pt2p_memory_release(nullptr, nullptr),
	    pt2p_memory_export(nullptr, nullptr, &byte, 1, &index),
	    pt2p_memory_import(nullptr, 0, &byte, 1, &remote),
	    pt2p_memory_gone(nullptr, &byte, 1),
	    pt2p_remote_release(nullptr, nullptr),
	    pt2p_remote_query(nullptr, nullptr, &remote_info),
	    pt2p_put(nullptr, &byte, 1, nullptr, 0, &req),
	    pt2p_get(nullptr, &byte, 1, nullptr, 0, &req),
	    pt2p_put_signal(nullptr, &byte, 1, nullptr, 0, nullptr, 0, PT2P_SIGNAL_SET, 1, &req),
	    pt2p_fetch_add32(nullptr, nullptr, 0, 1, nullptr, &req),
	    pt2p_fetch_add64(nullptr, nullptr, 0, 1, nullptr, &req),
	    pt2p_swap32(nullptr, nullptr, 0, 1, nullptr, &req),
	    pt2p_swap64(nullptr, nullptr, 0, 1, nullptr, &req),
	    pt2p_compare_swap32(nullptr, nullptr, 0, 1, 2, nullptr, &req),
	    pt2p_compare_swap64(nullptr, nullptr, 0, 1, 2, nullptr, &req),
	    pt2p_flush(nullptr, 0),
	    pt2p_flush_all(nullptr),
	    pt2p_fence(nullptr, 0),
	    pt2p_signal_wait(nullptr, &value, 0, 0),
	    pt2p_put_callback(nullptr, &byte, 1, nullptr, 0, never, nullptr),
	    pt2p_get_callback(nullptr, &byte, 1, nullptr, 0, never, nullptr),
	    pt2p_remote_address(nullptr, nullptr, &address),
	};
	for (pt2p_status_t status : got)
		CHECK(status == PT2P_ERR_CONTEXT);
}

TEST_CASE("memory is registered and allocated: bad arguments")
{
	const Job job;
	pt2p_context_t *c = job[0];
	alignas(8) unsigned char bytes[64] = {};
	pt2p_memory_t *mem = reinterpret_cast<pt2p_memory_t *>(garbage[0]);
	void *address = bytes;
	refused(c, pt2p_memory_register(c, bytes, 64, nullptr), PT2P_ERR_ARGUMENT, "mem");
	refused(c, pt2p_memory_register(c, nullptr, 64, &mem), PT2P_ERR_ARGUMENT, "address");
	CHECK(mem == nullptr);
	refused(c, pt2p_memory_register(c, bytes, 0, &mem), PT2P_ERR_LENGTH);
	refused(c, pt2p_memory_register(c, bytes, negative, &mem), PT2P_ERR_LENGTH, "-5");
	refused(c, pt2p_memory_allocate(c, 64, nullptr, &address), PT2P_ERR_ARGUMENT, "mem");
	refused(c, pt2p_memory_allocate(c, 64, &mem, nullptr), PT2P_ERR_ARGUMENT, "address");
	refused(c, pt2p_memory_allocate(c, negative, &mem, &address), PT2P_ERR_LENGTH, "-5");
	CHECK((mem == nullptr && address == nullptr));
	// More than there is. Memory is reserved at once, so the call fails, and not a later access.
	struct sysinfo host;
	REQUIRE(sysinfo(&host) == 0);
	refused(c, pt2p_memory_allocate(c, (host.totalram + host.totalswap) * host.mem_unit, &mem, &address),
	        PT2P_ERR_SHARED_MEMORY, "bytes needed");
	CHECK((mem == nullptr && address == nullptr));
	refused(c, pt2p_memory_allocate(c, PTRDIFF_MAX, &mem, &address), PT2P_ERR_LENGTH, "this host has");
	CHECK((mem == nullptr && address == nullptr));
}

TEST_CASE("memory is exported and imported: bad arguments")
{
	Exposed exposed;
	const Job &job = exposed.job;
	pt2p_context_t *c = job[0];
	unsigned char bytes[64] = {};
	size_t needed = 5;
	refused(c, pt2p_memory_export(c, nullptr, bytes, 64, &needed), PT2P_ERR_MEMORY, "NULL");
	CHECK(needed == 0);
	refused(c, pt2p_memory_export(c, exposed.mem, nullptr, 64, &needed), PT2P_ERR_ARGUMENT, "blob");
	refused(c, pt2p_memory_export(c, exposed.mem, bytes, 64, nullptr), PT2P_ERR_ARGUMENT, "needed");
	refused(c, pt2p_memory_export(c, exposed.mem, bytes, 64, &needed), PT2P_ERR_TRUNCATED, "room for 64");
	refused(job[1], pt2p_memory_export(job[1], exposed.mem, bytes, 64, &needed), PT2P_ERR_MEMORY); // another context's

	const std::vector<unsigned char> &blob = exposed.blob;
	needed = exposed.length;
	pt2p_remote_t *remote = nullptr;
	refused(c, pt2p_memory_import(c, 0, blob.data(), needed, nullptr), PT2P_ERR_ARGUMENT, "remote");
	refused(c, pt2p_memory_import(c, 0, nullptr, needed, &remote), PT2P_ERR_ARGUMENT, "blob");
	refused(c, pt2p_memory_import(c, 2, blob.data(), needed, &remote), PT2P_ERR_RANK, "2");
	refused(c, pt2p_memory_import(c, 0, blob.data(), needed - 1, &remote), PT2P_ERR_ARGUMENT);
	refused(c, pt2p_memory_import(c, 1, blob.data(), needed, &remote), PT2P_ERR_ARGUMENT, "rank 0");
	const Job another;
	refused(another[0], pt2p_memory_import(another[0], 0, blob.data(), needed, &remote), PT2P_ERR_ARGUMENT,
	        "another job");

	pt2p_remote_info_t info;
	refused(c, pt2p_remote_query(c, exposed.remote, nullptr), PT2P_ERR_ARGUMENT, "info");
	refused(c, pt2p_remote_query(c, exposed.other, &info), PT2P_ERR_MEMORY);
	refused(c, pt2p_remote_release(c, exposed.other), PT2P_ERR_MEMORY);
	exposed.check_untouched();
}

TEST_CASE("one-sided operations: bad arguments")
{
	Exposed exposed;
	pt2p_context_t *c = exposed.job[0];
	pt2p_remote_t *const remote = exposed.remote, *const other = exposed.other;
	unsigned char *const bytes = exposed.bytes;
	pt2p_request_t *req = garbage[1];
	refused(c, pt2p_put(c, nullptr, 8, remote, 0, &req), PT2P_ERR_ARGUMENT, "buffer");
	CHECK(req == nullptr);
	refused(c, pt2p_get(c, bytes, negative, remote, 0, &req), PT2P_ERR_LENGTH, "-5");
	refused(c, pt2p_get(c, bytes, 8, remote, 57, &req), PT2P_ERR_BOUNDS, "57");
	refused(c, pt2p_get(c, bytes, 8, other, 0, &req), PT2P_ERR_MEMORY);
	refused(c, pt2p_put_signal(c, bytes, 8, remote, 0, nullptr, 8, PT2P_SIGNAL_SET, 1, &req), PT2P_ERR_MEMORY,
	        "signal");
	refused(c, pt2p_put_signal(c, bytes, 8, remote, 0, remote, 12, PT2P_SIGNAL_SET, 1, &req), PT2P_ERR_BOUNDS,
	        "aligned");
	refused(c, put_signal_of_no_kind(c, bytes, remote, &req), PT2P_ERR_ARGUMENT, "how");
	for (pt2p_request_t *g : garbage) {
		auto *handle = reinterpret_cast<pt2p_remote_t *>(g);
		refused(c, pt2p_put(c, bytes, 8, handle, 0, &req), PT2P_ERR_MEMORY);
		refused(c, pt2p_fetch_add32(c, handle, 0, 1, nullptr, &req), PT2P_ERR_MEMORY);
		refused(c, pt2p_compare_swap64(c, handle, 0, 1, 2, nullptr, &req), PT2P_ERR_MEMORY);
		refused(c, pt2p_memory_release(c, reinterpret_cast<pt2p_memory_t *>(g)), PT2P_ERR_MEMORY);
	}
	refused(c, pt2p_flush(c, 2), PT2P_ERR_RANK, "2");
	refused(c, pt2p_fence(c, -1), PT2P_ERR_RANK, "-1");
	refused(c, pt2p_signal_wait(c, nullptr, 0, 0), PT2P_ERR_ARGUMENT, "word");
	refused(c, pt2p_signal_wait(c, reinterpret_cast<uint64_t *>(bytes + 4), 0, 0), PT2P_ERR_ARGUMENT, "aligned");
	refused(c, pt2p_signal_wait(c, reinterpret_cast<uint64_t *>(bytes), 0, 2), PT2P_ERR_RANK, "2");
	refused(c, pt2p_memory_gone(c, nullptr, 8), PT2P_ERR_ARGUMENT, "address");
	refused(c, pt2p_memory_gone(c, bytes + 8, 8), PT2P_ERR_ARGUMENT, "registered");
	exposed.check_untouched();
}

TEST_CASE("the address of remote memory: bad arguments")
{
	Job job;
	void *address = &job;
	refused(job[0], pt2p_remote_address(job[0], nullptr, &address), PT2P_ERR_MEMORY, "NULL");
	CHECK(address == nullptr);
	refused(job[0], pt2p_remote_address(job[0], nullptr, nullptr), PT2P_ERR_ARGUMENT, "address");
}
