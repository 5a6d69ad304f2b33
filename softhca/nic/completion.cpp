#include "softhca/nic/completion.hpp"

#include <cstddef>
#include <cstring>
#include <endian.h>
#include <rdma/ib_user_verbs.h>
#include <utility>

#include "softhca/kernel/context.hpp"
#include "softhca/kernel/objects.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

namespace {

struct Cqe {
	uint8_t unused1[22];
	uint16_t slid;
	uint32_t flags_rqpn;
	uint8_t unused2[4];
	uint32_t user_index;
	uint32_t immediate;
	uint8_t unused3[4];
	uint32_t byte_count;
	union {
		uint64_t timestamp; // unless it is an error
		struct {
			uint8_t unused4[6], vendor_syndrome, syndrome;
		};
	};
	uint32_t opcode_qpn;
	uint16_t wqe_counter;
	uint8_t signature;
	uint8_t op_own;
};
static_assert(sizeof(Cqe) == 64);
static_assert(offsetof(Cqe, user_index) >= payload_room(sizeof(Cqe)));

// Where the payload is, as the CQE tells libmlx5: in the CQE's first half, or in the 64 bytes before it.
constexpr unsigned payload_inside = 1 << 2, payload_before = 1 << 3;

constexpr uint32_t index_mask = 0xffffff; // consumer and producer indices as the doorbell records have them

// An arm command: sequence number, whether only solicited CQEs count, consumer index.
struct ArmCommand {
	uint8_t sequence;
	bool solicited_only;
	uint32_t index;
};
ArmCommand arm_command(const uint32_t *doorbell)
{
	const uint32_t value = be32toh(__atomic_load_n(doorbell + 1, __ATOMIC_ACQUIRE));
	return {static_cast<uint8_t>(value >> 28 & 3), (value >> 24 & 1) != 0, value & index_mask};
}

// Whether `a` lies beyond `b`, both modulo 2^24.
bool beyond(uint32_t a, uint32_t b) { return static_cast<int32_t>((a - b) << 8) > 0; }

} // namespace

bool Cq::put(const Completion &c, bool is_solicited)
{
	if (overrun)
		return false;
	const uint32_t consumer = be32toh(__atomic_load_n(doorbell, __ATOMIC_ACQUIRE));
	if (!ignore_overrun && ((producer - consumer) & index_mask) >= cqes) {
		overrun = true;
		async_events += context->report(Event::cq_error, user_handle);
		return false;
	}
	const bool error = c.kind == CqeKind::request_error || c.kind == CqeKind::receive_error;
	Cqe cqe{};
	cqe.slid = htobe16(c.source_lid);
	cqe.flags_rqpn = htobe32(static_cast<uint32_t>(c.route) << 28 | c.source_qpn);
	cqe.user_index = htobe32(c.user_index);
	cqe.immediate = htobe32(c.immediate);
	cqe.byte_count = htobe32(c.bytes);
	if (error)
		cqe.syndrome = static_cast<uint8_t>(c.syndrome);
	else
		cqe.timestamp = htobe64(read_clock());
	cqe.opcode_qpn = htobe32(static_cast<uint32_t>(c.opcode) << 24 | c.qpn);
	cqe.wqe_counter = htobe16(c.index);
	uint8_t *slot = buffer + static_cast<size_t>(producer & (cqes - 1)) * cqe_bytes + (cqe_bytes - sizeof cqe);
	unsigned payload_flag = 0;
	if (!c.payload.empty() && cqe_bytes > sizeof cqe) {
		std::memcpy(slot - sizeof cqe, c.payload.data(), c.payload.size());
		payload_flag = payload_before;
	} else if (!c.payload.empty()) {
		// This overwrites the fields that name the sender; the connection does, too.
		std::memset(static_cast<void *>(&cqe), 0, payload_room(sizeof cqe));
		std::memcpy(static_cast<void *>(&cqe), c.payload.data(), c.payload.size());
		payload_flag = payload_inside;
	}
	// The owner bit changes with each round of the ring.
	const bool round = producer & cqes;
	cqe.op_own = static_cast<uint8_t>(static_cast<unsigned>(c.kind) << 4 | payload_flag |
	                                  static_cast<unsigned>(is_solicited || error) << 1 | static_cast<unsigned>(round));
	std::memcpy(slot, &cqe, sizeof cqe - 1);
	__atomic_store_n(slot + sizeof cqe - 1, cqe.op_own, __ATOMIC_RELEASE);
	++producer;
	context->nic().scheduler().completed(*this);
	if (is_solicited || error) // errors count as solicited
		solicited = producer;
	if (channel) {
		// The device writes the CQE, then reads the arm command; libmlx5 arms, then reads CQEs.
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		check_armed();
	}
	return true;
}

uint32_t Cq::take_consumed()
{
	const uint32_t now = be32toh(__atomic_load_n(doorbell, __ATOMIC_ACQUIRE));
	return (now - std::exchange(consumed, now)) & index_mask;
}

// A CQE of a kind of its own ends the old buffer. libmlx5 waits for it and copies the CQEs before it to the new buffer,
// one index further on.
bool Cq::move(uint8_t *to, uint32_t count)
{
	const uint32_t unpolled = (producer - be32toh(__atomic_load_n(doorbell, __ATOMIC_ACQUIRE))) & index_mask;
	if (overrun || unpolled >= cqes || unpolled >= count)
		return false;
	constexpr unsigned resized = 5;
	const bool round = producer & cqes;
	uint8_t *last = buffer + static_cast<size_t>(producer & (cqes - 1)) * cqe_bytes + (cqe_bytes - 1);
	__atomic_store_n(last, static_cast<uint8_t>(resized << 4 | static_cast<unsigned>(round)), __ATOMIC_RELEASE);
	// All indices move on with those of the program. This CQE raises no event.
	++producer;
	++solicited;
	notified = unpolled ? notified + 1 : producer;
	buffer = to;
	cqes = count;
	return true;
}

bool Cq::check_armed()
{
	const ArmCommand arm = arm_command(doorbell);
	// Each command raises one event: the sequence number changes with every event that the program takes.
	if (arm.sequence == fired || !channel)
		return false;
	// A CQE from before the command counts until the program has polled it or an event has told of it. A program that
	// arms again before it polls (perftest does) gets no second event for the same CQE.
	const uint32_t last = (arm.solicited_only ? solicited : producer) & index_mask;
	if (!beyond(last, arm.index) || !beyond(last, notified))
		return false;
	notified = producer;
	fired = arm.sequence;
	const ib_uverbs_comp_event_desc event{user_handle};
	if (channel->put(&event, sizeof event))
		++completion_events;
	return true;
}

} // namespace softhca
