// First stores into watched memory (softhca/exact/first_stores.hpp).
#include "tests/softhca/parts/trapped.hpp"

#include "softhca/exact/first_stores.hpp"

using namespace trapped;

namespace {

int stores;
void count() { ++stores; }

struct Watched : Memory {
	explicit Watched(size_t pages) : Memory(pages)
	{
		REQUIRE(watch_first_stores(page, bytes, count));
		stores = 0;
	}
	~Watched() { forget_first_stores(page, bytes); }

	// How many stores of two into this page of it are first ones.
	int store(size_t number)
	{
		const int before = stores;
		volatile uint8_t *const there = page + number * page_bytes;
		there[1] = 5;
		there[100] = 7;
		CHECK(alias[number * page_bytes + 1] == 5);
		CHECK(alias[number * page_bytes + 100] == 7);
		return stores - before;
	}
};

} // namespace

TEST_CASE("the first store into watched memory is noticed, and carried out")
{
	Watched one(3), other(1);
	CHECK(one.store(1) == 1);
	CHECK(one.store(2) == 0);
	CHECK(other.store(0) == 1);
	watch_again();
	CHECK(other.store(0) == 1);
	CHECK(one.store(0) == 1);
	watch_again();
	watch_again();
	CHECK(one.store(0) == 1);
}

TEST_CASE("memory that is not watched any more can be written")
{
	Watched memory(3);
	forget_first_stores(memory.page + page_bytes, page_bytes);
	CHECK(memory.store(0) == 0);
	CHECK(memory.store(1) == 0);
	watch_again();
	CHECK(memory.store(2) == 0);
}

TEST_CASE("memory that is mapped over watched memory is watched by itself")
{
	Watched memory(3);
	CHECK(memory.store(2) == 1);
	watch_again();
	REQUIRE(watch_first_stores(memory.page + page_bytes, page_bytes, count));
	CHECK(memory.store(0) == 0);
	CHECK(memory.store(1) == 1);
}

TEST_CASE("trapped and watched memory do not disturb each other")
{
	Watched watched(1);
	Memory trapped(1);
	Stores seen;
	REQUIRE(trap_stores(
	    trapped.page, trapped.bytes, trapped.alias,
	    [](void *argument, size_t offset, size_t bytes) {
		    static_cast<Stores *>(argument)->emplace_back(offset, bytes);
	    },
	    &seen));
	CHECK(watched.store(0) == 1);
	*static_cast<volatile uint64_t *>(static_cast<void *>(trapped.page + 8)) = 1;
	CHECK(seen == Stores{{8, 8}});
	watch_again();
	CHECK(watched.store(0) == 1);
	release_stores(trapped.page);
}
