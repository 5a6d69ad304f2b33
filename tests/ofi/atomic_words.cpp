// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations on one integer, which libpt2p itself executes once the memory is known, and that they are atomic
// with all others, which the owner executes.
#include "tests/ofi/fixture.hpp"

#include <atomic>
#include <limits>

#include <sys/mman.h>

using namespace fi_test;

namespace {

constexpr uint64_t key = 9;

template <class T>
void try_words(Pair &p, fi_datatype type)
{
	T target[3] = {T(1), T(2), T(3)};
	Memory memory(p.b, target, sizeof target, key);
	const auto ended = [&] {
		const Event e = next(p.a);
		CHECK(e.error == 0);
		CHECK(e.entry.op_context == mark(1));
		CHECK((e.entry.flags & FI_ATOMIC) != 0);
		CHECK(target[0] == T(1));
		CHECK(target[2] == T(3));
	};
	for (const T value : {T(5), T(-3), std::numeric_limits<T>::max(), std::numeric_limits<T>::min()}) {
		INFO("type " << int(type) << ", value " << value);
		T was[3] = {T(77), T(77), T(77)};
		target[1] = value;
		const T operand = T(2), sum = static_cast<T>(static_cast<uint64_t>(value) + 2);
		REQUIRE(fi_atomic(p.a.ep, &operand, 1, nullptr, p.b_at_a, sizeof(T), key, type, FI_SUM, mark(1)) == 0);
		ended();
		CHECK(target[1] == sum);
		REQUIRE(fi_fetch_atomic(p.a.ep, nullptr, 1, nullptr, was + 1, nullptr, p.b_at_a, sizeof(T), key, type,
		                        FI_ATOMIC_READ, mark(1)) == 0);
		ended();
		CHECK(was[1] == sum);
		REQUIRE(fi_fetch_atomic(p.a.ep, &value, 1, nullptr, was + 1, nullptr, p.b_at_a, sizeof(T), key, type,
		                        FI_ATOMIC_WRITE, mark(1)) == 0);
		ended();
		CHECK(was[1] == sum);
		CHECK(target[1] == value);
		for (const T compare : {sum, value}) {
			REQUIRE(fi_compare_atomic(p.a.ep, &operand, 1, nullptr, &compare, nullptr, was + 1, nullptr, p.b_at_a,
			                          sizeof(T), key, type, FI_CSWAP, mark(1)) == 0);
			ended();
			CHECK(was[1] == value);
			CHECK(target[1] == (compare == value ? operand : value));
		}
		CHECK(was[0] == T(77));
		CHECK(was[2] == T(77));
	}
}

} // namespace

TEST_CASE("atomic operations on one integer")
{
	for (const bool threads : {false, true}) {
		Options o;
		if (threads)
			o.threading = FI_THREAD_SAFE;
		Pair p(o);
		try_words<int32_t>(p, FI_INT32);
		try_words<uint32_t>(p, FI_UINT32);
		try_words<int64_t>(p, FI_INT64);
		try_words<uint64_t>(p, FI_UINT64);
	}
}

TEST_CASE("atomic operations on one integer: not aligned, beyond the end, not allowed, gone")
{
	Pair p;
	alignas(8) unsigned char target[24] = {};
	Memory memory(p.b, target, sizeof target, key), to_read(p.b, target, 8, 10, FI_REMOTE_READ),
	    to_write(p.b, target, 8, 11, FI_REMOTE_WRITE);
	uint64_t one = 1;
	alignas(8) unsigned char places[24] = {};
	const auto add = [&](uint64_t at, uint64_t where, size_t place) {
		REQUIRE(fi_fetch_atomic(p.a.ep, &one, 1, nullptr, places + place, nullptr, p.b_at_a, at, where, FI_UINT64,
		                        FI_SUM, mark(1)) == 0);
		return next(p.a).error;
	};
	const auto value = [](const unsigned char *at) {
		uint64_t v;
		std::memcpy(&v, at, 8);
		return v;
	};
	for (uint64_t round = 0; round < 4; ++round) { // the memory is known after the first one
		CHECK(add(8, key, 3) == 0);
		CHECK(value(places + 3) == round);
		CHECK(value(target + 8) == round + 1);
	}
	std::memset(target, 0, sizeof target);
	CHECK(add(3, key, 8) == 0);
	CHECK(value(target + 3) == 1);
	CHECK(value(places + 8) == 0);
	for (int round = 0; round < 3; ++round) {
		for (const uint64_t at : {uint64_t{17}, uint64_t{24}, UINT64_MAX - 7})
			CHECK(add(at, key, 0) == FI_EKEYREJECTED);
		CHECK(add(0, 10, 0) == FI_EKEYREJECTED);
		CHECK(add(0, 11, 0) == FI_EKEYREJECTED);
		REQUIRE(fi_fetch_atomic(p.a.ep, nullptr, 1, nullptr, places, nullptr, p.b_at_a, 0, 10, FI_UINT64,
		                        FI_ATOMIC_READ, mark(1)) == 0);
		CHECK(next(p.a).error == 0);
		REQUIRE(fi_atomic(p.a.ep, &one, 1, nullptr, p.b_at_a, 0, 11, FI_UINT64, FI_ATOMIC_WRITE, mark(1)) == 0);
		CHECK(next(p.a).error == 0);
	}
	memory.close();
	CHECK(silent(p.a));
	CHECK(add(8, key, 0) == FI_EKEYREJECTED);
	Memory again(p.b, target, sizeof target, key);
	CHECK(add(8, key, 0) == 0);
}

TEST_CASE("atomic reads of memory that cannot be written")
{
	Pair p;
	const size_t length = 4096;
	void *const page = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(page != MAP_FAILED);
	*static_cast<uint64_t *>(page) = 5;
	REQUIRE(mprotect(page, length, PROT_READ) == 0);
	{
		Memory memory(p.b, page, length, key, FI_REMOTE_READ);
		for (int round = 0; round < 3; ++round) {
			uint64_t in = 0;
			REQUIRE(fi_fetch_atomic(p.a.ep, nullptr, 1, nullptr, &in, nullptr, p.b_at_a, 0, key, FI_UINT64,
			                        FI_ATOMIC_READ, mark(1)) == 0);
			CHECK(next(p.a).error == 0);
			CHECK(in == 5);
		}
	}
	munmap(page, length);
}

TEST_CASE("an atomic operation that is refused leaves nothing behind")
{
	Pair p;
	uint64_t target = 0, in = 0, out = 5;
	Memory memory(p.b, &target, 8, key);
	fi_ioc many[9], result{&in, 1};
	std::fill(std::begin(many), std::end(many), fi_ioc{&out, 1});
	const fi_rma_ioc there{0, 1, key};
	const fi_msg_atomic m{many, nullptr, 9, p.b_at_a, &there, 1, FI_UINT64, FI_ATOMIC_READ, mark(1), 0};
	for (int round = 0; round < 2; ++round) {
		CHECK(fi_fetch_atomicmsg(p.a.ep, &m, &result, nullptr, 1, 0) == -FI_EINVAL);
		// Nothing is under way.
		const iovec here{&out, 8};
		const fi_rma_iov place{0, 8, key};
		const fi_msg_rma w{&here, nullptr, 1, p.b_at_a, &place, 1, mark(2), 0};
		REQUIRE(fi_writemsg(p.a.ep, &w, FI_FENCE) == 0);
		CHECK(next(p.a).entry.op_context == mark(2));
	}
}

// Additions by libpt2p, and at the same time products with 1 by the owner, which change nothing: no addition is lost.
TEST_CASE("atomic operations on one integer are atomic with those that the owner executes")
{
	constexpr uint64_t rounds = 20000;
	Options o;
	o.threading = FI_THREAD_SAFE;
	o.progress = FI_PROGRESS_AUTO;
	Node owner(o), adds(o), multiplies(o);
	uint64_t target = 0;
	Memory memory(owner, &target, 8, key);
	const auto work = [&](Node &node, fi_op op) {
		const fi_addr_t to = node.insert(owner);
		return std::thread([&node, to, op] {
			const uint64_t one = 1;
			fi_cq_tagged_entry entry;
			for (uint64_t started = 0, ended = 0; ended < rounds;) {
				if (started < rounds && started - ended < 64 &&
				    fi_atomic(node.ep, &one, 1, nullptr, to, 0, key, FI_UINT64, op, nullptr) == 0)
					++started;
				const ssize_t n = fi_cq_read(node.cq, &entry, 1);
				if (n == 1)
					++ended;
				else if (n != -FI_EAGAIN)
					return;
			}
		});
	};
	std::thread first = work(adds, FI_SUM), second = work(multiplies, FI_PROD);
	first.join();
	second.join();
	CHECK(std::atomic_ref<uint64_t>(target).load() == rounds);
}
