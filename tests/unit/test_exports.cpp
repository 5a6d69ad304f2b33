// Exports of memory: damaged or forged ones are refused. And impossible memory is refused.
#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "api/context.hpp"

using namespace pt2p;

namespace {

struct Ranks {
	explicit Ranks(const char *transports)
	{
		const std::string list = std::string("PT2P_TRANSPORTS=") + transports;
		const char *tunables[] = {list.c_str(), nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = tunables;
		REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
	}
	~Ranks()
	{
		for (pt2p_context_t *c : ctx)
			pt2p_finalize(c);
	}
	std::string exported(pt2p_memory_t *memory)
	{
		char blob[PT2P_EXPORT_MAX];
		size_t needed = 0;
		REQUIRE(pt2p_memory_export(ctx[1], memory, blob, sizeof blob, &needed) == PT2P_OK);
		return {blob, needed};
	}
	uint64_t refused(int rank) const { return ctx[rank]->reporter.read(Counter::auth_refused); }

	pt2p_context_t *ctx[2];
};

} // namespace

TEST_CASE("a proof is SipHash-2-4")
{
	// The example of the paper's appendix.
	Secret secret;
	unsigned char key[16], input[15];
	for (unsigned char i = 0; i < 16; ++i)
		key[i] = i;
	std::memcpy(&secret, key, sizeof key);
	std::memcpy(input, key, sizeof input);
	CHECK(proof_of(secret, input, sizeof input) == 0xa129ca6149be45e5);
	CHECK(proof_of(secret, input, 8) == 0x93f5f5799a932462); // of its authors' test vectors
	const Secret one = random_secret(), other = random_secret();
	CHECK(proof_of(one, input, sizeof input) != proof_of(other, input, sizeof input));
	CHECK(proof_of(one, input, 14) != proof_of(one, input, 15));
}

TEST_CASE("an export with a changed bit is refused, and does no harm")
{
	Ranks ranks("self,shm");
	const int importer = GENERATE(0, 1); // another rank, and the owner itself
	const bool allocated = GENERATE(false, true);
	std::vector<unsigned char> bytes(1000);
	void *address = bytes.data();
	pt2p_memory_t *memory;
	if (allocated)
		REQUIRE(pt2p_memory_allocate(ranks.ctx[1], bytes.size(), &memory, &address) == PT2P_OK);
	else
		REQUIRE(pt2p_memory_register(ranks.ctx[1], address, bytes.size(), &memory) == PT2P_OK);
	const std::string good = ranks.exported(memory);
	pt2p_context_t *ctx = ranks.ctx[importer];
	pt2p_remote_t *remote;
	size_t accepted = 0;
	const auto refused = [&](const std::string &blob) {
		const pt2p_status_t status = pt2p_memory_import(ctx, 1, blob.data(), blob.size(), &remote);
		accepted += status == PT2P_OK;
		return status == PT2P_ERR_ARGUMENT && !remote;
	};
	for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
		std::string bad = good;
		bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
		INFO("bit " << bit % 8 << " of byte " << bit / 8);
		REQUIRE(refused(bad));
	}
	std::mt19937 random(7);
	for (int i = 0; i < 20'000; ++i) {
		std::string bad = good;
		for (auto n = random() % 8 + 1; n--;)
			bad[random() % bad.size()] = static_cast<char>(random());
		if (random() % 8 == 0)
			bad.resize(random() % (bad.size() + 1));
		if (bad != good)
			REQUIRE(refused(bad));
	}
	CHECK(accepted == 0);
	CHECK(ranks.refused(importer) > 500);
	// Made by somebody who knows everything but the owner's secret.
	std::string forged = good;
	const uint64_t proof = proof_of(random_secret(), forged.data(), forged.size() - 8);
	std::memcpy(forged.data() + forged.size() - 8, &proof, 8);
	CHECK(refused(forged));
	CHECK(std::string(pt2p_last_error(ctx)).find("not what rank 1 exported") != std::string::npos);
	REQUIRE(pt2p_memory_import(ctx, 1, good.data(), good.size(), &remote) == PT2P_OK);
	const uint64_t word = 5;
	REQUIRE(pt2p_put(ctx, &word, sizeof word, remote, 8, nullptr) == PT2P_OK);
	REQUIRE(pt2p_flush_all(ctx) == PT2P_OK);
	CHECK(static_cast<unsigned char *>(address)[8] == 5);
	REQUIRE(pt2p_remote_release(ctx, remote) == PT2P_OK);
	REQUIRE(pt2p_memory_release(ranks.ctx[1], memory) == PT2P_OK);
}

TEST_CASE("impossible memory is not registered, allocated or transferred, and the error says why")
{
	Ranks ranks("self,shm");
	pt2p_context_t *ctx = ranks.ctx[1];
	const auto says = [&](const char *what) {
		return std::string(pt2p_last_error(ctx)).find(what) != std::string::npos;
	};
	auto *high = reinterpret_cast<void *>(UINTPTR_MAX - 100);
	pt2p_memory_t *memory;
	CHECK(pt2p_memory_register(ctx, high, 200, &memory) == PT2P_ERR_ARGUMENT);
	CHECK(!memory);
	CHECK(says("end of the address space"));
	CHECK(pt2p_memory_gone(ctx, high, 200) == PT2P_ERR_ARGUMENT);
	std::vector<unsigned char> bytes(1000);
	REQUIRE(pt2p_memory_register(ctx, bytes.data(), bytes.size(), &memory) == PT2P_OK);
	const std::string blob = ranks.exported(memory);
	pt2p_remote_t *remote;
	REQUIRE(pt2p_memory_import(ctx, 1, blob.data(), blob.size(), &remote) == PT2P_OK);
	CHECK(pt2p_put(ctx, high, 200, remote, 0, nullptr) == PT2P_ERR_ARGUMENT);
	CHECK(pt2p_get(ctx, high, 200, remote, 0, nullptr) == PT2P_ERR_ARGUMENT);
	CHECK(pt2p_remote_release(ctx, remote) == PT2P_OK);
	CHECK(pt2p_memory_release(ctx, memory) == PT2P_OK);
	void *address;
	for (const size_t most : {size_t{PTRDIFF_MAX}, size_t{1} << 60}) {
		CHECK(pt2p_memory_allocate(ctx, most, &memory, &address) == PT2P_ERR_LENGTH);
		CHECK(!memory);
		CHECK(says("this host has"));
		CHECK(!says("/dev/shm"));
	}
}
