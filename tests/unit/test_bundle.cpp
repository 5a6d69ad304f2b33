// Several messages in one work request: what is written is read, and what no sender writes is refused.
#include <catch2/catch.hpp>

#include <cstddef>
#include <random>
#include <vector>

#include "transports/verbs/message/bundle.hpp"

using namespace pt2p::verbs;

namespace {

struct Message {
	uint8_t id;
	uint64_t header;
	std::vector<unsigned char> payload;
	bool operator==(const Message &) const = default;
};

std::vector<unsigned char> bundle_of(const std::vector<Message> &messages)
{
	size_t length = 0;
	for (const Message &m : messages)
		length += framed_bytes(m.payload.size());
	std::vector<unsigned char> bytes(length, 0xee);
	unsigned char *to = bytes.data();
	for (const Message &m : messages)
		to = write_frame(to, m.id, m.header, m.payload.data(), m.payload.size());
	REQUIRE(to == bytes.data() + length);
	return bytes;
}

const char *read(uint64_t count, const std::vector<unsigned char> &bytes, std::vector<Message> &messages)
{
	return read_bundle(count, bytes.data(), bytes.size(), [&](const BundleFrame &frame, const unsigned char *payload) {
		messages.push_back({static_cast<uint8_t>(frame.id), frame.header, {payload, payload + frame.length}});
	});
}

std::vector<Message> some(std::mt19937 &random, size_t count)
{
	std::vector<Message> messages(count);
	for (Message &m : messages) {
		m = {static_cast<uint8_t>(random() % first_own_id), random(), {}};
		m.payload.resize(random() % 60);
		for (unsigned char &byte : m.payload)
			byte = static_cast<unsigned char>(random());
	}
	return messages;
}

} // namespace

TEST_CASE("a bundle has the messages that were put into it, each aligned to 8 bytes")
{
	std::mt19937 random(1);
	for (size_t count = 2; count <= max_bundled; ++count) {
		const std::vector<Message> messages = some(random, count);
		const std::vector<unsigned char> bytes = bundle_of(messages);
		CHECK(bytes.size() % 8 == 0);
		std::vector<Message> found;
		CHECK(read(count, bytes, found) == nullptr);
		CHECK(found == messages);
	}
}

TEST_CASE("a message can be framed where it lies")
{
	for (size_t length = 0; length <= 64; ++length) {
		std::vector<unsigned char> bytes(framed_bytes(length)), wanted(length);
		for (size_t i = 0; i < length; ++i)
			bytes[i] = wanted[i] = static_cast<unsigned char>(i + 1);
		write_frame(bytes.data(), 7, 8, bytes.data(), length);
		CHECK(std::vector<unsigned char>(bytes.begin() + sizeof(BundleFrame),
		                                 bytes.begin() + static_cast<ptrdiff_t>(sizeof(BundleFrame) + length)) ==
		      wanted);
	}
}

TEST_CASE("malformed bundles are refused, and nothing beyond their end is read")
{
	std::mt19937 random(2);
	std::vector<Message> messages = some(random, 3), found;
	const std::vector<unsigned char> good = bundle_of(messages);
	for (const uint64_t count :
	     {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{4}, uint64_t{max_bundled + 1}, UINT64_MAX})
		CHECK(read(count, good, found));
	for (size_t length = 0; length < good.size(); ++length) {
		found.clear();
		CHECK(read(3, {good.begin(), good.begin() + static_cast<ptrdiff_t>(length)}, found));
		CHECK(found.size() < 3);
	}
	// Each wrong length and id of the second message.
	const size_t second = framed_bytes(messages[0].payload.size());
	for (const uint32_t length : {UINT32_MAX, UINT32_MAX - 7, UINT32_MAX - 15, static_cast<uint32_t>(good.size())}) {
		std::vector<unsigned char> bad = good;
		std::memcpy(&bad[second + offsetof(BundleFrame, length)], &length, sizeof length);
		CHECK(read(3, bad, found));
	}
	for (const uint32_t id : {uint32_t{first_own_id}, uint32_t{id_bundle}, uint32_t{id_bye}, UINT32_MAX}) {
		std::vector<unsigned char> bad = good;
		std::memcpy(&bad[second + offsetof(BundleFrame, id)], &id, sizeof id);
		found.clear();
		CHECK(read(3, bad, found));
		CHECK(found.size() == 1);
	}
	// Any other bytes, in memory of exactly that length.
	for (int i = 0; i < 20000; ++i) {
		std::vector<unsigned char> bytes(random() % 200);
		for (unsigned char &byte : bytes)
			byte = random() % 4 ? 0 : static_cast<unsigned char>(random());
		found.clear();
		read(2 + random() % 4, bytes, found);
	}
}
