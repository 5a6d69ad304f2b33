// SPDX-License-Identifier: BSD-3-Clause
// Garbage into the receive path. Two contexts of an in-process job exchange real messages while the input forges slots,
// words, offsets, data and segment fields in what rank 1 reads from rank 0, and calls the engine of rank 1 with messages
// that no peer would send. Whatever comes, nothing may crash; receives end with a status.
//
// A libFuzzer target: with clang's -fsanitize=fuzzer it is a program, else driver.cpp feeds it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "api/context.hpp"
#include "tests/fuzz/input.hpp"
#include "transports/shm/shm.hpp"

namespace {

using namespace pt2p;

constexpr size_t buffer_bytes = 4096, receives = 12, most_steps = 400;
// Forged announcements point here: within one process a get reads the address that it is told without asking the kernel.
constexpr size_t accessible = 1u << 16;
unsigned char accessible_memory[accessible];
// And those of segments here: what the list names is accessible as well, and nobody is told to write to it.
constexpr size_t listed = 256, listed_bytes = 200; // segments; bytes of each
Segment accessible_list[listed];

class Pair {
public:
	// gentle: a peer that lies only in ways that look right, so that it is not given up at the first message.
	Pair(bool single_copy, bool tight, bool gentle) : single_copy_(single_copy), gentle_(gentle)
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
		// Both rings are there and have carried something.
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
		slots_ = shm_->peer_of(0)->segment->shape().slots;
		data_bytes_ = shm_->peer_of(0)->segment->shape().data_bytes;
		ring_ = shm::Ring::at(&shm_->peer_of(0)->in.head(), slots_);
	}
	~Pair()
	{
		for (pt2p_context_t *c : ctx_)
			if (c)
				pt2p_finalize(c);
	}

	void run(Input in)
	{
		// Some more steps once the peer has been given up: late answers must do no harm either.
		for (size_t i = 0, after = 0; i < most_steps && after < 30 && !in.empty(); ++i, after += given_up())
			step(in);
		check_guards();
		// Everything that can end ends, and what the library tells of it is readable.
		for (int i = 0; i < 8; ++i)
			for (pt2p_context_t *c : ctx_)
				pt2p_progress(c);
		char text[4096];
		size_t needed;
		pt2p_summary(ctx_[1], text, sizeof text, &needed);
		for (int i = 0; i < 2; ++i)
			for (Held &held : requests_[i]) {
				int done = 0;
				pt2p_result_t result;
				pt2p_cancel(ctx_[i], held.request);
				pt2p_test(ctx_[i], held.request, &done, &result);
			}
	}

private:
	void step(Input &in)
	{
		const unsigned what = in.byte() % 18;
		if (what >= 14)
			return what < 17 ? forge_one_sided(in) : one_sided(in);
		if (what < 8 && gentle_ && in.byte() % 64)
			return plausible(in);
		switch (what) {
		case 0:
		case 1:
		case 2:
			forge_slot(in);
			break;
		case 3:
		case 4:
		case 5:
			forge_message(in);
			break;
		case 6: // any bytes in the data area
			for (size_t n = in.byte() % 16, at = in.number(2); n; --n, ++at)
				ring_.data[at % data_bytes_] = in.byte();
			break;
		case 7: // the header of the ring and of the segment, as far as peers write there
			forge_header(in);
			break;
		case 8:
			receive(in, 1);
			break;
		case 9:
			send(in, 0, 1);
			break;
		case 10:
			send(in, 1, 0);
			break;
		case 11:
			receive(in, 0);
			break;
		case 12:
			collect(in);
			break;
		default:
			for (int n = in.byte() % 4; n >= 0; --n)
				pt2p_progress(ctx_[n % 2]);
		}
	}

	// Rank 1 has memory that rank 0 may operate on, amid bytes that nobody may touch.
	void share(unsigned char *memory)
	{
		std::memset(guarded_, 0xa5, sizeof guarded_);
		pt2p_memory_register(ctx_[1], memory, shared_bytes, &mem_);
		unsigned char blob[PT2P_EXPORT_MAX];
		size_t length = 0;
		pt2p_memory_export(ctx_[1], mem_, blob, sizeof blob, &length);
		for (int i = 0; i < 2; ++i)
			pt2p_memory_import(ctx_[i], 1, blob, length, &remote_[i]);
	}
	void check_guards() const
	{
		for (size_t i = 0; i < sizeof guarded_; ++i)
			if ((i < 64 || i >= 64 + shared_bytes) && guarded_[i] != 0xa5) {
				fprintf(stderr, "byte %zu outside of registered memory was changed\n", i);
				abort();
			}
	}

	// Operations of rank 0 on memory of rank 1 as a peer would ask for them, with numbers that are nearly right.
	void forge_one_sided(Input &in)
	{
		using namespace onesided;
		unsigned char payload[512];
		std::memset(payload, in.byte(), sizeof payload);
		const auto near = [&](uint64_t right) {
			const uint8_t how = in.byte();
			return how < 160 ? right : how < 200 ? right + in.byte() - 128 : any_number(in);
		};
		const auto memory = [&] { return near(reinterpret_cast<uint64_t>(mem_)); };
		const auto offset = [&] { return near(in.byte() % (shared_bytes / 8) * 8); };
		const auto tell = [&](uint8_t id, uint64_t header, size_t length) {
			ctx_[1]->engine->on_message(0, id, header, payload, in.byte() < 8 ? in.number(2) % sizeof payload : length);
		};
		switch (in.byte() % 8) {
		case 0:
		case 1: {
			const uint64_t whole = in.byte() % 160;
			const PutHead head{memory(), offset(), near(whole), memory(), offset(), any_number(in), near(in.byte() % 3)};
			std::memcpy(payload, &head, sizeof head);
			return tell(id_put, 7, sizeof head + whole);
		}
		case 2: {
			const PutHead head{memory(), offset(), near(in.number(2) % 700), memory(), offset(), 1, in.byte() % 3u};
			std::memcpy(payload, &head, sizeof head);
			return tell(id_put, 7, sizeof head);
		}
		case 3:
			return tell(id_piece, near(7), in.number(2) % sizeof payload);
		case 4: {
			const GetHead head{memory(), offset(), near(in.number(2) % 700)};
			std::memcpy(payload, &head, sizeof head);
			return tell(id_get, 7, sizeof head);
		}
		case 5: {
			const AtomicHead head{memory(), offset(), any_number(in), any_number(in), static_cast<uint32_t>(near(in.byte() % 3)),
			                      static_cast<uint32_t>(near(in.byte() % 2 ? 4 : 8))};
			std::memcpy(payload, &head, sizeof head);
			return tell(id_atomic, 7, sizeof head);
		}
		case 6: {
			const Result result{any_number(in), static_cast<uint32_t>(near(PT2P_OK)), 0};
			std::memcpy(payload, &result, sizeof result);
			return tell(id_result, any_number(in), sizeof result);
		}
		default:
			return tell(id_data, any_number(in), in.number(2) % sizeof payload);
		}
	}

	// Honest ones beside them; and now and then the memory goes.
	void one_sided(Input &in)
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
		case 2:
			pt2p_put(c, private_, length, remote_[0], offset, nullptr);
			break;
		case 3:
		case 4:
			pt2p_get(c, private_, length, remote_[0], offset, nullptr);
			break;
		case 5:
			pt2p_put_signal(c, private_, length, remote_[0], offset, remote_[0], 8, PT2P_SIGNAL_ADD, 1, nullptr);
			break;
		default:
			pt2p_fetch_add32(c, remote_[0], offset & ~size_t{3}, 1, nullptr, nullptr);
		}
		pt2p_progress(ctx_[how % 2]);
		check_guards();
	}

	bool given_up() const
	{
		pt2p_peer_info_t info;
		pt2p_peer_query(ctx_[1], 0, &info);
		return info.state == PT2P_PEER_LOST;
	}

	// The handle of one of rank 1's sends or receives.
	uint64_t live_handle(Input &in, bool is_send) const
	{
		const auto &list = requests_[1];
		for (size_t i = 0, at = in.byte(); i < list.size(); ++i, ++at)
			if (list[at % list.size()].is_send == is_send)
				return reinterpret_cast<uint64_t>(list[at % list.size()].request);
		return 0;
	}

	// A message that an honest peer could send, though perhaps not now.
	void plausible(Input &in)
	{
		unsigned char payload[1024];
		const auto tell = [&](uint8_t id, uint64_t header, const void *data, size_t length) {
			ctx_[1]->engine->on_message(0, id, header, data, length);
		};
		const uint8_t how = in.byte();
		std::memset(payload, how, sizeof payload);
		switch (how % 10) {
		case 9: {
			const uint64_t token = any_number(in);
			std::memcpy(payload, &token, sizeof token);
			return tell(wire::id_synchronous, in.byte() % 4, payload, in.number(2) % (sizeof payload + 1));
		}
		case 0:
			return tell(wire::id_eager, in.byte() % 4, payload, in.number(2) % (sizeof payload + 1));
		case 1: {
			uint64_t words[5] = {1 + in.number(2), any_number(in), 0, any_number(in), in.byte() % 4u};
			bound(wire::id_announce, words);
			return tell(wire::id_announce, in.byte() % 4, words, sizeof words);
		}
		case 2:
		case 3: {
			const uint64_t send = live_handle(in, true);
			uint64_t words[5] = {any_number(in), 1 + in.number(2) % 1500, 0, any_number(in), in.byte() % 2u};
			bound(wire::id_accept, words);
			return send ? tell(wire::id_accept, send, words, sizeof words) : void();
		}
		case 4: {
			const uint64_t receive = live_handle(in, false);
			return receive ? tell(wire::id_piece, receive, payload, 1 + in.number(2) % sizeof payload) : void();
		}
		case 5: {
			const bool finished = in.byte() % 2;
			const uint64_t request = live_handle(in, finished);
			const uint32_t status = in.byte() % 4 ? PT2P_OK : PT2P_ERR_SYSTEM;
			return request ? tell(finished ? wire::id_finished : wire::id_written, request, &status, sizeof status) : void();
		}
		case 6:
			return tell(in.byte() % 2 ? wire::id_stop_eager : wire::id_resume_eager, 0, nullptr, 0);
		case 7: {
			const uint64_t failure = static_cast<uint64_t>(PT2P_ERR_PEER_LOST) << 40 | UINT64_C(0x100);
			return tell(wire::id_barrier, in.byte() % 2 ? failure : 0, nullptr, 0);
		}
		default: { // an eager message whose payload ends where the data area does
			const auto position = shm_->peer_of(0)->in.position();
			const auto length = static_cast<uint32_t>(in.number(2) % (data_bytes_ / 4 + 1));
			const uint32_t offset = data_bytes_ - length;
			shm::Slot &slot = ring_.slots[position % slots_];
			std::memcpy(slot.payload, &offset, sizeof offset);
			slot.header = in.byte() % 4;
			slot.word.store(shm::Word::pack(static_cast<uint8_t>(position / slots_ + 1), wire::id_eager, length, in.byte()),
			                std::memory_order_release);
			ring_doorbell();
			pt2p_progress(ctx_[1]);
		}
		}
	}

	void ring_doorbell()
	{
		shm::SegmentHeader *h = shm_->header();
		shm::doorbells(h, 2)[0].fetch_or(1);
		h->doorbell_summary.fetch_or(1);
	}

	// Payloads of the engine's own messages with the numbers that tell most: what was handed out, and its neighbours.
	size_t control_payload(Input &in, uint8_t id, unsigned char *payload)
	{
		uint64_t words[6];
		for (uint64_t &w : words)
			w = any_number(in);
		bound(id, words);
		const size_t usual[] = {0, sizeof(wire::Announcement), sizeof(wire::Acceptance), sizeof(uint32_t), sizeof(shm::Help)};
		size_t length = usual[in.byte() % 5];
		if (in.byte() % 8 == 0)
			length = in.byte() % (sizeof words + 1);
		switch (id) {
		case wire::id_announce:
			length = in.byte() % 8 ? sizeof(wire::Announcement) : length;
			break;
		case wire::id_accept:
			length = in.byte() % 8 ? sizeof(wire::Acceptance) : length;
			break;
		case wire::id_finished:
		case wire::id_written:
			length = in.byte() % 8 ? sizeof(uint32_t) : length;
			words[0] %= 32;
			break;
		default:
			break;
		}
		std::memcpy(payload, words, length);
		return length;
	}

	// Announcements are length, token, address, key, flag; acceptances token, length, and the same. The address is not what
	// is under test here, see above.
	static void bound(uint8_t id, uint64_t *words)
	{
		if (id != wire::id_announce && id != wire::id_accept)
			return;
		words[2] = reinterpret_cast<uint64_t>(accessible_memory);
		uint64_t &length = words[id == wire::id_announce ? 0 : 1];
		if (length <= PTRDIFF_MAX && length > accessible)
			length %= accessible + 1;
		if (id != wire::id_announce || words[4] < 2)
			return;
		for (size_t i = 0; i < listed; ++i)
			accessible_list[i] = {reinterpret_cast<uint64_t>(accessible_memory + i * listed_bytes), listed_bytes, 0};
		// A list that fits its message, one that does not, and any other.
		const uint64_t count = words[4] = words[4] % listed;
		if (count > 1)
			words[2] = reinterpret_cast<uint64_t>(accessible_list);
		if (count > 1 && count % 3)
			length = count * listed_bytes + (count % 3 == 2);
	}

	uint64_t any_number(Input &in)
	{
		const uint8_t kind = in.byte();
		switch (kind % 6) {
		case 0:
			return in.number(8);
		case 1:
			return in.byte();
		case 2:
			return UINT64_C(1) << in.byte() % 64;
		case 3:
			return ~in.number(1);
		case 4: // a handle that is, or was, somebody's
			if (!tokens_.empty())
				return tokens_[in.byte() % tokens_.size()];
			return 0;
		default:
			return in.number(2);
		}
	}

	// Where the reader looks next, or anywhere.
	size_t a_slot(Input &in)
	{
		const uint8_t far = in.byte();
		return (shm_->peer_of(0)->in.position() + (far < 200 ? 0 : far)) % slots_;
	}

	void forge_slot(Input &in)
	{
		const uint64_t position = shm_->peer_of(0)->in.position();
		shm::Slot &slot = ring_.slots[a_slot(in)];
		const uint8_t how = in.byte();
		uint8_t id = in.byte();
		if (how & 1)
			id = id % 16 < 10 ? id % 16 : static_cast<uint8_t>(onesided::id_put + id % 16 - 10); // those that exist
		if (how & 2)
			id = static_cast<uint8_t>(0xfe | (id & 1));
		slot.header = any_number(in);
		auto length = static_cast<uint32_t>(control_payload(in, id, slot.payload));
		if (how & 4) {
			length = static_cast<uint32_t>(in.number(3));
			if (how & 8)
				length %= 2048;
			if (length > shm::inline_max) {
				auto offset = static_cast<uint32_t>(any_number(in));
				if (how & 16)
					offset %= data_bytes_;
				std::memcpy(slot.payload, &offset, sizeof offset);
			}
		}
		// A long announcement does not exist, but a short one must not name foreign memory.
		if (length == sizeof(wire::Announcement)) {
			uint64_t words[5];
			std::memcpy(words, slot.payload, sizeof words);
			bound(id, words);
			std::memcpy(slot.payload, words, sizeof words);
		}
		const auto lap = static_cast<uint8_t>(how & 32 ? in.byte() : position / slots_ + 1);
		slot.word.store(shm::Word::pack(lap, id, length, static_cast<uint32_t>(any_number(in))), std::memory_order_release);
		ring_doorbell();
		pt2p_progress(ctx_[1]);
	}

	// Straight to the engine, as a transport would.
	void forge_message(Input &in)
	{
		unsigned char payload[2048];
		const uint8_t how = in.byte();
		const auto id = static_cast<uint8_t>(how & 1 ? in.byte() : how & 64 ? onesided::id_put + in.byte() % 7 : in.byte() % 10);
		const uint64_t header = any_number(in);
		size_t length = control_payload(in, id, payload);
		if (how & 2 && id != wire::id_announce) {
			length = in.number(2) % sizeof payload;
			std::memset(payload, in.byte(), length);
		}
		ctx_[1]->engine->on_message(0, id, header, payload, length);
	}

	void forge_header(Input &in)
	{
		shm::SegmentHeader *h = shm_->header();
		shm::RingHeader &r = *ring_.head;
		const uint64_t n = any_number(in);
		const auto small = static_cast<uint32_t>(n);
		switch (in.byte() % 9) {
		case 0:
			h->doorbell_summary.store(n);
			break;
		case 1:
			shm::doorbells(h, 2)[0].store(n);
			h->doorbell_summary.fetch_or(1);
			break;
		case 2:
			shm::directory(h)[small % 2].store(in.number(8));
			break;
		case 3:
			r.starved.store(small);
			break;
		case 4:
			r.claims[in.byte() % shm::claims_per_ring].next.store(n);
			break;
		case 5:
			r.claims[in.byte() % shm::claims_per_ring].finished.store(small);
			break;
		case 6:
			r.attention.store(small);
			break;
		case 7: // what the reader of the other ring told about its position
			shm_->peer_of(0)->out.head().consumed.store(n);
			break;
		default:
			h->wake_word.store(small);
			h->sleeping.store(small % 2);
		}
		pt2p_progress(ctx_[1]);
	}

	struct Held {
		pt2p_request_t *request;
		std::unique_ptr<unsigned char[]> buffer;
		bool is_send;
	};

	void keep(int rank, pt2p_request_t *r, std::unique_ptr<unsigned char[]> buffer, bool is_send)
	{
		if (!r)
			return;
		requests_[rank].push_back({r, std::move(buffer), is_send});
		tokens_.push_back(reinterpret_cast<uint64_t>(r));
		if (tokens_.size() > 64)
			tokens_.erase(tokens_.begin());
	}

	void receive(Input &in, int rank)
	{
		if (requests_[rank].size() >= receives)
			return collect_from(rank);
		pt2p_request_t *r = nullptr;
		const uint8_t how = in.byte();
		const size_t capacity = how & 1 ? in.number(2) % (buffer_bytes + 1) : buffer_bytes;
		auto buffer = fresh(capacity);
		const int source = how & 2 ? PT2P_ANY_SOURCE : 1 - rank;
		const uint64_t tag = in.byte() % 4, mask = how & 4 ? PT2P_TAG_ANY : PT2P_TAG_EXACT;
		if (how & 8) { // some of the messages that are taken are left
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

	void send(Input &in, int from, int to)
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

	void collect(Input &in) { collect_from(in.byte() % 2); }

	// Frees the buffers of what has ended: whoever still uses them is caught by AddressSanitizer. Not so those that the
	// other context may get with single copy: it has the address from the announcement, and between processes the kernel
	// would check it.
	void collect_from(int rank)
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

	// Of exactly that size, so that a byte too much is seen.
	static std::unique_ptr<unsigned char[]> fresh(size_t bytes)
	{
		return std::make_unique<unsigned char[]>(bytes ? bytes : 1);
	}

	std::vector<std::unique_ptr<unsigned char[]>> sent_;
	pt2p_context_t *ctx_[2] = {};
	shm::ShmTransport *shm_ = nullptr;
	shm::Ring ring_;
	uint32_t slots_ = 0, data_bytes_ = 0;
	bool single_copy_, gentle_;
	std::vector<Held> requests_[2];
	std::vector<uint64_t> tokens_;
	static constexpr size_t shared_bytes = 600;
	alignas(8) unsigned char guarded_[64 + shared_bytes + 64];
	unsigned char *const in_reach_ = guarded_ + 64;
	unsigned char private_[shared_bytes] = {};
	pt2p_memory_t *mem_ = nullptr;
	pt2p_remote_t *remote_[2] = {};
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input in{data, size};
	const uint8_t first = in.byte();
	Pair(first & 1, first & 2, first & 12).run(in);
	return 0;
}
