// SPDX-License-Identifier: BSD-3-Clause
// The pair itself, and its honest operations.
#include "tests/fuzz/pair.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fuzz {

namespace {

constexpr size_t buffer_bytes = 4096, receives = 12;

// Of exactly that size, so that a byte too much is seen.
std::unique_ptr<unsigned char[]> fresh(size_t bytes) { return std::make_unique<unsigned char[]>(bytes ? bytes : 1); }

} // namespace

Pair::Pair(bool single_copy, bool tight, bool gentle) : single_copy_(single_copy), gentle_(gentle)
{
	const char *tunables[] = {single_copy ? "PT2P_SHM_SINGLE_COPY=1" : "PT2P_SHM_SINGLE_COPY=0",
	                          "PT2P_SHM_RING_SLOTS=8",
	                          "PT2P_SHM_RING_BYTES=4096",
	                          "PT2P_LOG_LEVEL=error",
	                          "PT2P_FINALIZE_TIME=0",
	                          tight ? "PT2P_UNEXPECTED_MAX=2k" : "PT2P_UNEXPECTED_MAX=64m",
	                          tight ? "PT2P_ONE_SIDED=owner" : "PT2P_ONE_SIDED=auto",
	                          nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = tunables;
	if (pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx_) != PT2P_OK) {
		fprintf(stderr, "pt2p_init_inprocess: %s\n", pt2p_last_error(nullptr));
		exit(1);
	}
	// Both rings exist and have carried a message.
	char byte = 0;
	for (int i = 0; i < 2; ++i)
		pt2p_send(ctx_[i], &byte, 1, 1 - i, 0);
	for (int i = 0; i < 2; ++i)
		pt2p_recv(ctx_[i], &byte, 1, 1 - i, 0, PT2P_TAG_EXACT, nullptr);
	for (auto &t : ctx_[1]->router->transports())
		if (auto *shm = dynamic_cast<shm::ShmTransport *>(t.get()))
			shm_ = shm;
	if (!shm_ || !shm_->peer_of(0) || !shm_->peer_of(0)->in.is_open()) {
		fprintf(stderr, "rank 1 has no ring from rank 0\n");
		exit(1);
	}
	share(in_reach_);
	open_services();
	slots_ = shm_->peer_of(0)->segment->shape().slots;
	data_bytes_ = shm_->peer_of(0)->segment->shape().data_bytes;
	ring_ = shm::Ring::at(&shm_->peer_of(0)->in.head(), slots_);
}

Pair::~Pair()
{
	for (pt2p_context_t *c : ctx_)
		if (c)
			pt2p_finalize(c);
}

void Pair::share(unsigned char *memory)
{
	std::memset(guarded_, 0xa5, sizeof guarded_);
	pt2p_memory_register(ctx_[1], memory, shared_bytes, &mem_);
	unsigned char blob[PT2P_EXPORT_MAX];
	size_t length = 0;
	pt2p_memory_export(ctx_[1], mem_, blob, sizeof blob, &length);
	for (int i = 0; i < 2; ++i)
		pt2p_memory_import(ctx_[i], 1, blob, length, &remote_[i]);
}

void Pair::check_guards() const
{
	for (size_t i = 0; i < sizeof guarded_; ++i)
		if ((i < 64 || i >= 64 + shared_bytes) && guarded_[i] != 0xa5) {
			fprintf(stderr, "byte %zu outside of registered memory was changed\n", i);
			abort();
		}
}

void Pair::one_sided(Input &in)
{
	const uint8_t how = in.byte();
	pt2p_context_t *c = ctx_[0];
	const size_t offset = in.number(2) % shared_bytes, length = in.number(2) % (shared_bytes - offset + 1);
	switch (how % 8) {
	case 0:
		if (how < 16)
			pt2p_memory_release(ctx_[1], mem_);
		break;
	case 1:
	case 2: pt2p_put(c, private_, length, remote_[0], offset, nullptr); break;
	case 3:
	case 4: pt2p_get(c, private_, length, remote_[0], offset, nullptr); break;
	case 5: pt2p_put_signal(c, private_, length, remote_[0], offset, remote_[0], 8, PT2P_SIGNAL_ADD, 1, nullptr); break;
	default: pt2p_fetch_add32(c, remote_[0], offset & ~size_t{3}, 1, nullptr, nullptr);
	}
	pt2p_progress(ctx_[how % 2]);
	check_guards();
}

bool Pair::given_up() const
{
	pt2p_peer_info_t info;
	pt2p_peer_query(ctx_[1], 0, &info);
	return info.state == PT2P_PEER_LOST;
}

void Pair::keep(int rank, pt2p_request_t *r, std::unique_ptr<unsigned char[]> buffer, bool is_send)
{
	if (!r)
		return;
	requests_[rank].push_back({r, std::move(buffer), is_send});
	tokens_.push_back(reinterpret_cast<uint64_t>(r));
	if (tokens_.size() > 64)
		tokens_.erase(tokens_.begin());
}

void Pair::receive(Input &in, int rank)
{
	if (requests_[rank].size() >= receives)
		return collect_from(rank);
	pt2p_request_t *r = nullptr;
	const uint8_t how = in.byte();
	const size_t capacity = how & 1 ? in.number(2) % (buffer_bytes + 1) : buffer_bytes;
	auto buffer = fresh(capacity);
	const int source = how & 2 ? PT2P_ANY_SOURCE : 1 - rank;
	const uint64_t tag = in.byte() % 4, mask = how & 4 ? PT2P_TAG_ANY : PT2P_TAG_EXACT;
	if (how & 8) { // some of the matched messages are not received
		pt2p_message_t *m = nullptr;
		pt2p_improbe(ctx_[rank], source, tag, mask, &m, nullptr);
		if (m)
			tokens_.push_back(reinterpret_cast<uint64_t>(m));
		if (m && how & 48)
			pt2p_imrecv(ctx_[rank], buffer.get(), capacity, m, &r);
	} else {
		pt2p_irecv(ctx_[rank], buffer.get(), capacity, source, tag, mask, &r);
	}
	keep(rank, r, std::move(buffer), false);
}

void Pair::send(Input &in, int from, int to)
{
	if (requests_[from].size() >= receives)
		return collect_from(from);
	pt2p_request_t *r = nullptr;
	const size_t length = in.number(2) % (buffer_bytes + 1);
	auto buffer = fresh(length);
	const uint8_t how = in.byte();
	(how & 64 ? pt2p_issend : pt2p_isend)(ctx_[from], buffer.get(), length, to, how % 4, &r);
	keep(from, r, std::move(buffer), true);
}

void Pair::collect_from(int rank)
{
	auto &list = requests_[rank];
	for (size_t i = 0; i < list.size();) {
		int done = 0;
		pt2p_result_t result;
		pt2p_test(ctx_[rank], list[i].request, &done, &result);
		if (!done) {
			++i;
			continue;
		}
		if (single_copy_ && list[i].is_send)
			sent_.push_back(std::move(list[i].buffer));
		list.erase(list.begin() + static_cast<ptrdiff_t>(i));
	}
}

} // namespace fuzz
