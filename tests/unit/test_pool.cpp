#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "base/memory/pool.hpp"

using namespace pt2p;

namespace {

struct Thing {
	uint64_t handle = 0;
	Thing *next_free = nullptr;
	bool used = false;
};

} // namespace

TEST_CASE("a handle finds its object until the object is released, and never again")
{
	HandlePool<Thing> pool(7);
	std::mt19937 random(1);
	std::vector<Thing *> live;
	std::vector<uint64_t> dead;
	for (int step = 0; step < 20000; ++step) {
		if (live.size() < 700 && random() % 3) {
			Thing *t = pool.take();
			CHECK_FALSE(t->used);
			t->used = true;
			live.push_back(t);
			REQUIRE(pool.find(t->handle) == t);
		} else if (!live.empty()) {
			const size_t i = random() % live.size();
			dead.push_back(live[i]->handle);
			live[i]->used = false;
			pool.give(live[i]);
			live[i] = live.back();
			live.pop_back();
		}
	}
	for (uint64_t handle : dead)
		REQUIRE(pool.find(handle) == nullptr);
	std::set<Thing *> distinct(live.begin(), live.end());
	CHECK(distinct.size() == live.size());
}

TEST_CASE("invented handles find nothing or an object of the pool, and do not crash")
{
	HandlePool<Thing> pool(0x12345678);
	Thing *t = pool.take();
	std::mt19937_64 random(2);
	CHECK(pool.find(0) == nullptr);
	CHECK(pool.find(UINT64_MAX) == nullptr);
	for (int i = 0; i < 100000; ++i) {
		Thing *found = pool.find(random());
		CHECK((!found || found == t));
	}
	CHECK(pool.find(t->handle) == t);
}

TEST_CASE("a pool reuses released objects")
{
	Pool<int> pool;
	std::set<int *> first;
	for (int i = 0; i < 100; ++i)
		first.insert(pool.take());
	CHECK(first.size() == 100);
	CHECK(pool.in_use() == 100);
	for (int *p : first)
		pool.give(p);
	CHECK(pool.in_use() == 0);
	const size_t capacity = pool.capacity();
	for (size_t i = 0; i < capacity; ++i)
		pool.take();
	CHECK(pool.capacity() == capacity);
}

TEST_CASE("buffers are as large as asked for, and reused")
{
	BufferPool pool;
	for (size_t n : {size_t{1}, size_t{64}, size_t{65}, size_t{4096}, size_t{65536}, size_t{65537}, size_t{1} << 20}) {
		void *a = pool.take(n);
		std::memset(a, 0xab, n);
		void *b = pool.take(n);
		std::memset(b, 0xcd, n);
		CHECK(static_cast<unsigned char *>(a)[n - 1] == 0xab);
		pool.give(a, n);
		if (n <= 65536)
			CHECK(pool.take(n) == a);
		else
			a = nullptr;
		if (a)
			pool.give(a, n);
		pool.give(b, n);
	}
}
