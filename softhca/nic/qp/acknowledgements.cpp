// The requester's way back: a WQE is complete when the other side has acknowledged it. What was lost is sent again;
// what was refused ends the queue pair (InfiniBand specification, volume 1, 9.7.5, 9.9.2).
#include <algorithm>
#include <cstring>
#include <rdma/ib_user_ioctl_verbs.h>

#include "softhca/nic/memory.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

namespace {

constexpr unsigned for_ever = 7; // as a count of RNR retries

// Whether the program gets a CQE, also when all goes well.
bool completes(const Qp &qp, const Wqe &wqe) { return wqe.signalled || qp.signal_all; }

// In units of 10 us (InfiniBand specification, volume 1, 9.7.5.2.8, table of RNR NAK timer values).
constexpr uint32_t rnr_timers[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                     48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                     2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

} // namespace

void Requester::handle(Nic &nic, const Packet &packet, const uint8_t *payload)
{
	if (qp_.state != QpState::rts && qp_.state != QpState::sqd)
		return;
	const bool current = psn_distance(packet.psn, una_) >= 0 && psn_distance(packet.psn, sent_) < 0;
	if (!current || (qp_.kind == QpKind::dci && packet.connection != target_.connection)) {
		qp_.count(Counter::packets_dropped, 1);
		return;
	}
	switch (packet.kind) {
	case PacketKind::acknowledge: acknowledged(nic, psn_add(packet.psn, 1)); break;
	case PacketKind::refuse: refused(nic, packet); break;
	default: response(nic, packet, payload);
	}
	check_drained();
	if (at_ < in_flight_.size() || fetched_ || next_ != producer_)
		nic.scheduler().ready(qp_);
}

void Requester::check_drained()
{
	if (qp_.state != QpState::sqd || !qp_.drain_event || !drained())
		return;
	qp_.drain_event = false;
	qp_.report(Event::send_queue_drained);
}

// Everything before `psn` has reached the other side. False when a response before that was lost; then it asks again.
bool Requester::acknowledged(Nic &nic, uint32_t psn)
{
	for (const auto &sent : in_flight_) {
		if (psn_distance(psn, sent->psn) <= 0)
			break;
		if (!sent->wqe.is_read() && !sent->wqe.is_atomic())
			continue;
		// Responses come in order and before acknowledgements of what follows.
		const uint32_t missing = psn_distance(una_, sent->psn) > 0 ? una_ : sent->psn;
		if (psn_distance(psn, missing) <= 0)
			break;
		advance(nic, missing);
		ask_again(nic, missing);
		return false;
	}
	advance(nic, psn);
	return true;
}

// Everything before `psn` is done.
void Requester::advance(Nic &nic, uint32_t psn)
{
	if (psn_distance(psn, una_) > 0) {
		una_ = psn;
		retries_ = rnr_retries_ = 0;
		asked_again_ = false;
		not_before_ = 0;
		if (psn_distance(una_, psn_) > 0)
			go_back(una_);
		deadline_ = 0;
	}
	while (!in_flight_.empty()) {
		Sent &sent = *in_flight_.front();
		if (psn_distance(una_, psn_add(sent.psn, sent.packets)) < 0)
			break;
		if (sent.error != Syndrome::none) {
			fail(nic, sent.error);
			return;
		}
		if (sent.wqe.is_read() || sent.wqe.is_atomic())
			--reads_;
		const auto done = std::move(in_flight_.front());
		in_flight_.pop_front();
		if (at_)
			--at_;
		nic.scheduler().completed(qp_, done->wqe);
		complete(*done);
	}
	if (una_ == sent_)
		deadline_ = 0;
	else if (!deadline_)
		arm_timer(nic);
}

// Sends from `psn` on again.
void Requester::go_back(uint32_t psn)
{
	psn_ = psn;
	not_ready_ = false;
	at_ = 0;
	while (at_ < in_flight_.size() && psn_distance(psn_add(in_flight_[at_]->psn, in_flight_[at_]->packets), psn) <= 0)
		++at_;
}

void Requester::retry(Nic &nic, uint32_t psn)
{
	if (retries_ >= qp_.settings.retry_count) {
		fail(nic, Syndrome::retry_exceeded);
		return;
	}
	++retries_;
	asked_again_ = true;
	go_back(psn);
	arm_timer(nic);
	nic.scheduler().ready(qp_);
}

// The response `psn` was lost, as a later packet shows. Every later packet shows it again; only the first counts. If
// the response is lost again, the timer finds out.
void Requester::ask_again(Nic &nic, uint32_t psn)
{
	if (!asked_again_ && psn_ != psn)
		retry(nic, psn);
}

void Requester::refused(Nic &nic, const Packet &packet)
{
	if (!acknowledged(nic, packet.psn) || in_flight_.empty())
		return;
	switch (packet.reason) {
	case Refusal::sequence: retry(nic, packet.psn); break;
	case Refusal::receiver_not_ready:
		if (qp_.settings.rnr_retry != for_ever && rnr_retries_ >= qp_.settings.rnr_retry) {
			fail(nic, Syndrome::rnr_retry_exceeded);
			break;
		}
		++rnr_retries_;
		go_back(packet.psn);
		not_ready_ = true;
		deadline_ = 0;
		not_before_ = nic.now() + rnr_timers[packet.timer % 32] * Time{10'000};
		nic.remind(not_before_);
		break;
	case Refusal::invalid_request: fail(nic, Syndrome::remote_invalid_request); break;
	case Refusal::remote_access: fail(nic, Syndrome::remote_access); break;
	default: fail(nic, Syndrome::remote_operation);
	}
}

// The response to a READ or an atomic operation.
void Requester::response(Nic &nic, const Packet &packet, const uint8_t *payload)
{
	const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const auto &sent) {
		return psn_distance(psn_add(sent->psn, sent->packets), packet.psn) > 0;
	});
	if (found == in_flight_.end())
		return;
	Sent &sent = **found;
	const bool atomic = packet.kind == PacketKind::atomic_response;
	if (atomic ? !sent.wqe.is_atomic() : !sent.wqe.is_read()) {
		qp_.count(Counter::packets_dropped, 1);
		return;
	}
	// All before this WQE has arrived. Responses must come in order.
	if (!acknowledged(nic, sent.psn) || qp_.state == QpState::error)
		return;
	if (packet.psn != una_) {
		ask_again(nic, una_);
		return;
	}
	const uint32_t mtu = qp_.settings.mtu_bytes();
	const uint64_t offset = static_cast<uint64_t>(psn_distance(packet.psn, sent.psn)) * mtu;
	const uint64_t wanted = atomic ? 0 : std::min<uint64_t>(mtu, sent.wqe.length - offset);
	if (packet.payload != wanted) {
		fail(nic, Syndrome::bad_response);
		return;
	}
	const bool placed =
	    atomic ? take_answer(sent, 0, reinterpret_cast<const uint8_t *>(&packet.operand), sizeof packet.operand)
	           : take_answer(sent, offset, payload, packet.payload);
	if (!placed) {
		fail(nic, Syndrome::local_protection);
		return;
	}
	advance(nic, psn_add(packet.psn, 1));
}

// Puts the bytes into memory as the WQE says, or keeps them for the CQE. False when they may not go there.
bool Requester::take_answer(Sent &sent, uint64_t offset, const uint8_t *bytes, uint32_t n)
{
	// An atomic operation brings eight bytes, also when its segments are shorter: libmlx5 would call that an error.
	if (n && completes(qp_, sent.wqe) && sent.wqe.length == n && n <= qp_.payload_in_cqe.answered) {
		std::memcpy(sent.answer.data(), bytes, n);
		sent.brought = n;
		return true;
	}
	return scatter(qp_, sent.wqe.all(), offset, bytes, n);
}

void Requester::complete(const Sent &sent)
{
	if (!completes(qp_, sent.wqe))
		return;
	Completion c{};
	c.kind = CqeKind::request;
	c.opcode = static_cast<uint8_t>(sent.wqe.opcode);
	c.index = sent.wqe.index;
	c.bytes = sent.wqe.is_atomic() ? sizeof(uint64_t) : static_cast<uint32_t>(sent.wqe.length);
	c.payload = {sent.answer.data(), sent.brought};
	qp_.complete(*qp_.send_cq, c, false);
}

void Requester::complete_with_error(const Wqe &wqe, Syndrome syndrome)
{
	Completion c{};
	c.kind = CqeKind::request_error;
	c.syndrome = syndrome;
	c.opcode = static_cast<uint8_t>(wqe.opcode);
	c.index = wqe.index;
	qp_.complete(*qp_.send_cq, c, false);
}

// The oldest WQE has failed, and with it the queue pair.
void Requester::fail(Nic &nic, Syndrome syndrome)
{
	if (!in_flight_.empty()) {
		complete_with_error(in_flight_.front()->wqe, syndrome);
		in_flight_.pop_front();
	}
	if (qp_.kind == QpKind::ud) {
		// A failed datagram stops the send queue only.
		qp_.state = QpState::sqe;
		flush();
	} else {
		qp_.enter_error(nic);
	}
}

void Requester::flush()
{
	for (const auto &sent : in_flight_)
		complete_with_error(sent->wqe, Syndrome::flushed);
	in_flight_.clear();
	if (fetched_)
		complete_with_error(fetched_->wqe, Syndrome::flushed);
	fetched_.reset();
	at_ = reads_ = 0;
	deadline_ = not_before_ = 0;
	psn_ = sent_ = una_ = end_;
	while (next_ != producer_) {
		fetch();
		complete_with_error(fetched_->wqe, Syndrome::flushed);
		fetched_.reset();
	}
}

void Requester::arm_timer(Nic &nic)
{
	// Code 0: wait for ever. Otherwise 4.096 us * 2^code, but not less than a scheduler's tick.
	constexpr Time base = 4096, shortest = 1'000'000;
	deadline_ = qp_.settings.timeout ? nic.now() + std::max(shortest, base << qp_.settings.timeout) : 0;
	nic.remind(deadline_);
}

void Requester::check_time(Nic &nic)
{
	if (not_before_) {
		if (nic.now() < not_before_) {
			nic.remind(not_before_);
			return;
		}
		not_before_ = deadline_ = 0; // the next packet sets a new one
		nic.scheduler().ready(qp_);
	}
	if (!deadline_)
		return;
	if (nic.now() < deadline_) {
		nic.remind(deadline_);
		return;
	}
	// A NIC answers whatever its host's processor does. So a process that has not yet run does not count as silent.
	if (nic.lags(qp_.kind == QpKind::dci ? target_.number : qp_.settings.destination, posted_)) {
		arm_timer(nic);
		return;
	}
	qp_.count(Counter::timeouts, 1);
	retry(nic, una_);
}

} // namespace softhca
