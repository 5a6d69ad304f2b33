// The store of examples/kv: against a map, with full memory, and what it evicts.
#include <catch2/catch.hpp>

#include <list>
#include <string>
#include <unordered_map>

#include "examples/kv/store.hpp"
#include "examples/kv/ycsb.hpp"

using kv::Status, kv::Store;

namespace {

std::string random_text(ycsb::Random &random, size_t length)
{
	std::string text(length, 0);
	for (char &c : text)
		c = static_cast<char>(random());
	return text;
}

// It has all that the map has, and nothing else.
void require_same(Store &store, const std::unordered_map<std::string, std::string> &map)
{
	REQUIRE(store.facts().items == map.size());
	for (const auto &[key, value] : map) {
		const auto found = store.get(key);
		REQUIRE(found);
		REQUIRE(*found == value);
	}
}

// Keys whose hashes have the same lower half modulo `slots`.
std::vector<std::string> colliding_keys(size_t count, uint64_t slots)
{
	std::vector<std::string> keys;
	for (int i = 0; keys.size() < count; ++i)
		if (std::string key = "key" + std::to_string(i); kv::hash_of(key) % slots == slots - 1)
			keys.push_back(std::move(key));
	return keys;
}

} // namespace

TEST_CASE("kv store: random operations agree with a map")
{
	for (uint64_t seed = 1; seed <= 8; ++seed) {
		ycsb::Random random(seed);
		Store store(Store::min_memory << seed % 3, false);
		std::unordered_map<std::string, std::string> map;
		std::vector<std::string> keys;
		for (int i = 0; i < 150; ++i)
			keys.push_back(random_text(random, 1 + random.below(i % 10 ? 20 : kv::max_key)));
		size_t full = 0, done = 0;
		for (int i = 0; i < 60'000; ++i) {
			const std::string &key = keys[random.below(keys.size())];
			const uint64_t kind = random.below(10);
			if (kind < 5) {
				const std::string value =
				    random_text(random, random.below(10) ? random.below(300) : random.below(store.value_max() + 1));
				const Status status = store.put(key, value);
				REQUIRE((status == Status::ok || status == Status::full));
				full += status == Status::full;
				done += status == Status::ok;
				if (status == Status::ok)
					map[key] = value;
			} else if (kind < 7) {
				REQUIRE((store.erase(key) == Status::ok) == (map.erase(key) == 1));
			} else {
				const auto found = store.get(key);
				const auto expected = map.find(key);
				REQUIRE(found.has_value() == (expected != map.end()));
				if (found)
					REQUIRE(*found == expected->second);
			}
			REQUIRE(store.facts().bytes <= store.facts().capacity);
			if (i % 2000 == 0)
				require_same(store, map);
		}
		require_same(store, map);
		REQUIRE(store.facts().evicted == 0);
		REQUIRE(done > 10'000);
		if (seed % 3 == 0)
			REQUIRE(full > 0);
	}
}

TEST_CASE("kv store: the empty value, the longest key and the longest value")
{
	Store store(Store::min_memory, false);
	const std::string longest(kv::max_key, 'k'), value(store.value_max(), 'v');
	REQUIRE(store.put("empty", "") == Status::ok);
	REQUIRE(store.get("empty"));
	REQUIRE(store.get("empty")->empty());
	REQUIRE(store.put(longest, value) == Status::ok);
	REQUIRE(*store.get(longest) == value);
	REQUIRE(store.put("", "v") == Status::key_length);
	REQUIRE(store.put(longest + "k", "v") == Status::key_length);
	REQUIRE(store.put("k", value + "v") == Status::value_too_long);
	REQUIRE_FALSE(store.get(""));
	REQUIRE_FALSE(store.get("k"));
	REQUIRE(store.facts().items == 2);
	REQUIRE(Store(1 << 30, false).value_max() == kv::max_value);
}

TEST_CASE("kv store: keys that collide are told apart, also after deletions")
{
	// At the end of the index, so that the search goes on at its begin.
	const std::vector<std::string> keys = colliding_keys(40, 2048);
	Store store(Store::min_memory, false);
	std::unordered_map<std::string, std::string> map;
	for (const std::string &key : keys) {
		REQUIRE(store.put(key, key) == Status::ok);
		map[key] = key;
	}
	require_same(store, map);
	ycsb::Random random(7);
	while (!map.empty()) {
		const std::string &key = keys[random.below(keys.size())];
		REQUIRE((store.erase(key) == Status::ok) == (map.erase(key) == 1));
		require_same(store, map);
		REQUIRE_FALSE(store.get(key));
	}
}

TEST_CASE("kv store: keys whose hashes are the same for the index are told apart")
{
	std::unordered_map<uint32_t, std::string> by_hash;
	std::vector<std::pair<std::string, std::string>> twins;
	for (int i = 0; twins.size() < 3; ++i) {
		const std::string key = "key" + std::to_string(i);
		const auto [at, fresh] = by_hash.try_emplace(static_cast<uint32_t>(kv::hash_of(key)), key);
		if (!fresh)
			twins.emplace_back(at->second, key);
	}
	Store store(Store::min_memory, false);
	for (const auto &[one, other] : twins) {
		REQUIRE(store.put(one, "1") == Status::ok);
		REQUIRE_FALSE(store.get(other));
		REQUIRE(store.put(other, "2") == Status::ok);
		REQUIRE(*store.get(one) == "1");
		REQUIRE(store.erase(one) == Status::ok);
		REQUIRE_FALSE(store.get(one));
		REQUIRE(*store.get(other) == "2");
	}
}

TEST_CASE("kv store: when memory is full a put is refused, and nothing is lost")
{
	Store store(Store::min_memory, false);
	const std::string value(100, 'v');
	std::unordered_map<std::string, std::string> map;
	for (int i = 0;; ++i) {
		const std::string key = std::to_string(i);
		if (store.put(key, value) != Status::ok)
			break;
		map[key] = value;
	}
	// Header, key and value take 128 bytes or some more.
	REQUIRE(map.size() >= store.facts().capacity / 144);
	REQUIRE(map.size() <= store.facts().capacity / 112);
	REQUIRE(store.facts().capacity > Store::min_memory / 2);
	require_same(store, map);
	// A longer value finds no room: the one that is there stays. One of that length does, and after a deletion a new
	// key.
	REQUIRE(store.put("7", std::string(store.value_max(), 'w')) == Status::full);
	REQUIRE(*store.get("7") == value);
	REQUIRE(store.put("7", std::string(100, 'w')) == Status::ok);
	map["7"] = std::string(100, 'w');
	REQUIRE(store.put("new", value) == Status::full);
	REQUIRE(store.erase("8") == Status::ok);
	map.erase("8");
	REQUIRE(store.put("new", value) == Status::ok);
	map["new"] = value;
	// Room is found again and again, wherever in the log it is.
	ycsb::Random random(3);
	for (int i = 0; i < 20'000; ++i) {
		const std::string key = std::to_string(random.below(100));
		if (store.erase(key) == Status::ok)
			map.erase(key);
		else if (const std::string other = random_text(random, random.below(120)); store.put(key, other) == Status::ok)
			map[key] = other;
	}
	require_same(store, map);
}

TEST_CASE("kv store: a store that evicts never refuses, and what it has is right")
{
	for (uint64_t seed = 1; seed <= 4; ++seed) {
		ycsb::Random random(seed);
		Store store(Store::min_memory, true);
		std::unordered_map<std::string, std::string> map;
		size_t found = 0;
		for (int i = 0; i < 40'000; ++i) {
			const std::string key = std::to_string(random.below(2000));
			if (random.below(3)) {
				const auto value = store.get(key);
				found += value.has_value();
				if (value)
					REQUIRE(*value == map.at(key));
			} else if (random.below(20)) {
				const std::string value =
				    random_text(random, random.below(20) ? random.below(80) : random.below(store.value_max()));
				REQUIRE(store.put(key, value) == Status::ok);
				REQUIRE(*store.get(key) == value);
				map[key] = value;
			} else {
				store.erase(key);
				map.erase(key);
			}
		}
		REQUIRE(store.facts().evicted > 1000);
		REQUIRE(found > 1000);
		REQUIRE(store.facts().bytes <= store.facts().capacity);
		REQUIRE(store.facts().capacity < Store::min_memory);
	}
}

TEST_CASE("kv store: what was written first is evicted first, unless it was used")
{
	Store store(Store::min_memory, true);
	const auto key = [](int i) { return "key" + std::to_string(100'000 + i); };
	const std::string value(48, 'v');
	int written = 0;
	while (!store.facts().evicted)
		REQUIRE(store.put(key(written++), value) == Status::ok);
	for (int i = 0; i < 3000; ++i)
		REQUIRE(store.put(key(written++), value) == Status::ok);
	// Those that are left are the last that were written.
	const auto items = static_cast<int>(store.facts().items);
	REQUIRE(items > 100);
	for (int i = 0; i < written; ++i)
		REQUIRE(store.get(key(i)).has_value() == (i >= written - items));
	// Now all of them were used. Those that are not used again go first.
	const int kept = written - items / 2;
	for (int i = 0; i < items; ++i) {
		REQUIRE(store.put(key(written + i), value) == Status::ok);
		REQUIRE(store.get(key(kept)));
	}
	REQUIRE_FALSE(store.get(key(kept - 1)));
	REQUIRE_FALSE(store.get(key(kept + 1)));
}

TEST_CASE("kv store: it evicts about as well as least recently used")
{
	constexpr uint64_t items = 20'000;
	const ycsb::Zipf zipf(items);
	ycsb::Random random(5);
	Store store(256 * 1024, true);
	const std::string value(44, 'v'); // with key and header 76 of 80 bytes
	// The reference has as many items as the store.
	std::list<uint64_t> used;
	std::unordered_map<uint64_t, std::list<uint64_t>::iterator> where;
	size_t asked = 0, found = 0, found_by_lru = 0;
	for (int i = 0; i < 200'000; ++i) {
		const uint64_t item = zipf(random);
		char name[ycsb::key_length];
		ycsb::write_key(item, name);
		const std::string_view key(name, sizeof name);
		const bool counts = i > 50'000;
		asked += counts;
		if (store.get(key))
			found += counts;
		else
			store.put(key, value);
		if (const auto at = where.find(item); at != where.end()) {
			found_by_lru += counts;
			used.erase(at->second);
		}
		used.push_front(item);
		where[item] = used.begin();
		while (used.size() > store.facts().items) {
			where.erase(used.back());
			used.pop_back();
		}
	}
	REQUIRE(store.facts().items > 1500);
	const double share = static_cast<double>(found) / static_cast<double>(asked),
	             share_by_lru = static_cast<double>(found_by_lru) / static_cast<double>(asked);
	INFO(share << " found, least recently used: " << share_by_lru);
	REQUIRE(share > share_by_lru - 0.01);
	REQUIRE(share < 0.99); // else nothing would be shown
}

TEST_CASE("kv store: hashes spread keys over partitions and slots")
{
	std::vector<int> upper(16), lower(16);
	for (int i = 0; i < 16'000; ++i) {
		const uint64_t hash = kv::hash_of("user" + std::to_string(i));
		++upper[hash >> 60];
		++lower[hash & 15];
	}
	for (int i = 0; i < 16; ++i) {
		REQUIRE(std::abs(upper[i] - 1000) < 150);
		REQUIRE(std::abs(lower[i] - 1000) < 150);
	}
	// Whatever the length, and bytes that are zero count.
	REQUIRE(kv::hash_of(std::string(1, 0)) != kv::hash_of(std::string(2, 0)));
	REQUIRE(kv::hash_of(std::string(8, 0)) != kv::hash_of(std::string(9, 0)));
}
