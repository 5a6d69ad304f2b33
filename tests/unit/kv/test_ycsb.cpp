// The load of examples/kv: frequencies, lengths, and values that say whose they are.
#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <vector>

#include "examples/kv/ycsb.hpp"

TEST_CASE("ycsb: zipf has the frequencies that it should")
{
	constexpr uint64_t items = 1000;
	constexpr int draws = 400'000;
	const ycsb::Zipf zipf(items);
	const double zeta = ycsb::Zipf::zeta(items, 0.99);
	REQUIRE(zeta == Approx(7.73).margin(0.01)); // that of 1/i would be 7.49
	ycsb::Random random(1);
	std::vector<int> counts(items);
	for (int i = 0; i < draws; ++i)
		++counts.at(zipf(random));
	// The first two are exact, others by Gray's approximation.
	for (const uint64_t item : {0, 1})
		REQUIRE(counts[item] == Approx(draws * std::pow(item + 1, -0.99) / zeta).epsilon(0.02));
	const auto share = [&](size_t from, size_t to) {
		double expected = 0, counted = 0;
		for (size_t i = from; i < to; ++i) {
			expected += std::pow(static_cast<double>(i + 1), -0.99) / zeta;
			counted += counts[i];
		}
		return counted / draws / expected;
	};
	REQUIRE(share(2, 10) == Approx(1).epsilon(0.1));
	REQUIRE(share(10, 100) == Approx(1).epsilon(0.1));
	REQUIRE(share(100, 1000) == Approx(1).epsilon(0.1));
}

TEST_CASE("ycsb: the sum for many items")
{
	double sum = 0;
	for (int i = 1; i <= 1'000'000; ++i)
		sum += std::pow(i, -0.99);
	REQUIRE(ycsb::Zipf::zeta(1'000'000, 0.99) == Approx(sum).epsilon(1e-9));
	REQUIRE(ycsb::Zipf::zeta(10'000'000'000, 0.99) == Approx(26.46902820178302).epsilon(1e-9)); // YCSB's own
}

TEST_CASE("ycsb: few items")
{
	ycsb::Random random(3);
	for (const uint64_t items : {1, 2, 3}) {
		const ycsb::Zipf zipf(items);
		for (int i = 0; i < 1000; ++i)
			REQUIRE(zipf(random) < items);
	}
}

TEST_CASE("ycsb: lengths of texts")
{
	ycsb::Random random(9);
	constexpr int draws = 4'000'000;
	double sum = 0;
	size_t shortest = 1000, longest = 0;
	int above_512 = 0;
	for (int i = 0; i < draws; ++i) {
		const size_t length = ycsb::text_length(random);
		sum += static_cast<double>(length);
		shortest = std::min(shortest, length);
		longest = std::max(longest, length);
		above_512 += length > 512;
	}
	REQUIRE(sum / draws == Approx(43).margin(0.2));
	REQUIRE(shortest == 1);
	REQUIRE(longest <= 899);
	REQUIRE(above_512 > 5); // 331 of 50 million would be 26
	REQUIRE(above_512 < 60);
}

TEST_CASE("ycsb: keys differ")
{
	std::set<std::string> keys;
	for (uint64_t item = 0; item < 10'000; ++item) {
		char key[ycsb::key_length];
		ycsb::write_key(item, key);
		keys.emplace(key, sizeof key);
	}
	REQUIRE(keys.size() == 10'000);
}

TEST_CASE("ycsb: a value belongs to its key and has its length")
{
	for (const size_t length : {0, 1, 2, 8, 9, 43, 899}) {
		std::vector<char> value(length);
		ycsb::write_value(7, 200, value);
		REQUIRE(ycsb::right_value(7, value));
		if (length < 8)
			continue; // so few bytes may agree by chance
		REQUIRE_FALSE(ycsb::right_value(8, value));
		REQUIRE_FALSE(ycsb::right_value(7, std::span(value).first(length - 1)));
		for (const size_t at : {size_t(0), size_t(1), length / 2, length - 1}) {
			value[at] ^= 4;
			REQUIRE_FALSE(ycsb::right_value(7, value));
			value[at] ^= 4;
		}
		// Half of one put and half of another.
		std::vector<char> other(length);
		ycsb::write_value(7, 201, other);
		std::copy_n(other.begin() + static_cast<long>(length / 2), length - length / 2,
		            value.begin() + static_cast<long>(length / 2));
		REQUIRE_FALSE(ycsb::right_value(7, value));
	}
}
