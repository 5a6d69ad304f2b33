// The requester's way out: takes WQEs in order and cuts them into packets (InfiniBand specification, volume 1, 9.7.2 to
// 9.7.4).
#include <algorithm>
#include <cstring>
#include <endian.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/kernel/context.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

namespace {

constexpr uint32_t window_packets = 128; // sent and not acknowledged
constexpr size_t window_wqes = 256;
constexpr uint32_t window_psns = 1u << 22; // less than half of all PSNs, so that earlier and later differ
constexpr uint32_t ack_every = 32;         // packets of a long message

uint16_t wqebbs_of(const Wqe &wqe)
{
	return static_cast<uint16_t>(std::max<size_t>(1, (wqe.bytes + wqebb_bytes - 1) / wqebb_bytes));
}

} // namespace

void Requester::reset()
{
	next_ = producer_ = 0;
	fetched_.reset();
	in_flight_.clear();
	at_ = 0;
	psn_ = sent_ = una_ = end_ = 0;
	reads_ = retries_ = rnr_retries_ = 0;
	deadline_ = not_before_ = 0;
	asked_again_ = false;
	target_.connected = false;
}

void Requester::begin(uint32_t psn) { psn_ = sent_ = una_ = end_ = psn; }

void Requester::doorbell(uint16_t producer)
{
	// One read fetches all new WQEs of a doorbell; it wraps as the ring does.
	fetch_reads_ = fetch_bytes_ = 0;
	const std::span<const uint8_t> ring = qp_.rings.send;
	const size_t wqebbs = ring.size() / wqebb_bytes;
	size_t from = producer_ % wqebbs, n = static_cast<uint16_t>(producer - producer_);
	producer_ = producer;
	while (n) {
		const size_t piece = std::min(n, wqebbs - from);
		fetch_reads_ += pcie_reads(reinterpret_cast<uintptr_t>(&ring[from * wqebb_bytes]), piece * wqebb_bytes);
		fetch_bytes_ += piece * wqebb_bytes;
		n -= piece;
		from = 0;
	}
	qp_.count(Counter::wqe_reads, fetch_reads_);
	qp_.count(Counter::wqe_read_bytes, fetch_bytes_);
}

void Requester::blueflame()
{
	qp_.count(Counter::wqe_reads, -fetch_reads_);
	qp_.count(Counter::wqe_read_bytes, -fetch_bytes_);
	fetch_reads_ = fetch_bytes_ = 0;
}

bool Requester::run(Nic &nic, unsigned burst)
{
	if (qp_.overrun)
		qp_.enter_error(nic);
	if (qp_.state == QpState::error || qp_.state == QpState::sqe) {
		flush();
		return false;
	}
	if ((qp_.state != QpState::rts && qp_.state != QpState::sqd) || not_before_)
		return false;
	for (; burst; --burst) {
		if (at_ == in_flight_.size()) {
			if (qp_.state == QpState::sqd)
				return false;
			if (!fetched_ && !fetch())
				return false;
			if (!may_start(*fetched_))
				return false;
			if (fetched_->error != Syndrome::none) {
				in_flight_.push_back(std::move(fetched_));
				fail(nic, in_flight_.back()->error);
				return false;
			}
			if (!nic.faults.none() && strike(nic))
				return false;
			if (qp_.kind == QpKind::ud) {
				if (!send_datagram(nic))
					return true;
				continue;
			}
			start(nic);
		}
		Sent &sent = *in_flight_[at_];
		if (sent.error != Syndrome::none)
			return false;
		if (sent.packets == 0) {
			++at_;
			advance(nic, una_);
			continue;
		}
		if (psn_ == sent_ && outstanding() >= window_packets)
			return false;
		if (!segments_allowed(qp_, sent.wqe.all(), 0)) {
			// The region was deregistered meanwhile: the WQE fails when all before it is complete.
			sent.error = Syndrome::local_protection;
			sent.packets = static_cast<uint32_t>(psn_distance(psn_, sent.psn));
			advance(nic, una_);
			return false;
		}
		if (!send(nic, sent))
			return true;
	}
	return true;
}

// Whether a fault rule hits the next work request.
bool Requester::strike(Nic &nic)
{
	const unsigned device = qp_.context.device();
	if (nic.faults.fatal(device)) {
		nic.fail(device);
		return true;
	}
	if (!nic.faults.breaks(qp_.number, device))
		return false;
	qp_.report(Event::qp_fatal);
	qp_.enter_error(nic);
	return true;
}

// Reads the next WQE; false when there is none.
bool Requester::fetch()
{
	if (next_ == producer_)
		return false;
	fetched_ = std::make_unique_for_overwrite<Sent>();
	Wqe &wqe = fetched_->wqe;
	Syndrome error = Syndrome::none;
	if (!parse_wqe(qp_.rings.send, next_, qp_.kind, wqe) || wqe.qpn != qp_.number)
		error = Syndrome::local_operation;
	next_ = static_cast<uint16_t>(next_ + wqebbs_of(wqe));
	// What lies beyond the doorbell is not the device's.
	if (static_cast<uint16_t>(producer_ - next_) >= 0x8000) {
		error = Syndrome::local_operation;
		next_ = producer_;
	}
	if (error == Syndrome::none) {
		const bool brings_back = wqe.is_read() || wqe.is_atomic();
		if (wqe.length > (qp_.kind == QpKind::ud ? max_mtu : max_message))
			error = Syndrome::local_length;
		else if (brings_back && qp_.settings.max_rd_atomic == 0)
			error = Syndrome::local_operation;
		else if (!segments_allowed(qp_, wqe.all(), brings_back ? IB_UVERBS_ACCESS_LOCAL_WRITE : 0))
			error = Syndrome::local_protection;
	}
	fetched_->error = error;
	fetched_->brought = 0;
	const uint32_t mtu = qp_.settings.mtu_bytes();
	fetched_->packets = wqe.opcode == Opcode::nop || error != Syndrome::none
	                        ? 0
	                        : std::max<uint32_t>(1, static_cast<uint32_t>((wqe.length + mtu - 1) / mtu));
	qp_.count(Counter::wqes, 1);
	qp_.count(Counter::wqe_bytes, wqebbs_of(wqe) * wqebb_bytes);
	for (const DataSegment &data : wqe.all())
		if (data.is_inline)
			qp_.count(Counter::inline_bytes, data.length);
	return true;
}

bool Requester::may_start(const Sent &sent) const
{
	// An error is reported when everything before it is complete. A DC initiator has one target at a time.
	if (sent.error != Syndrome::none)
		return in_flight_.empty();
	const Wqe &wqe = sent.wqe;
	const uint32_t n = outstanding();
	if (in_flight_.size() >= window_wqes || n >= window_packets || (n && n + sent.packets > window_psns))
		return false;
	if (wqe.fence && reads_)
		return false;
	if ((wqe.is_read() || wqe.is_atomic()) && reads_ >= qp_.settings.max_rd_atomic)
		return false;
	return qp_.kind != QpKind::dci || wqe.opcode == Opcode::nop || is_target(wqe) || in_flight_.empty();
}

bool Requester::is_target(const Wqe &wqe) const
{
	return target_.connected && target_.number == wqe.destination && target_.lid == wqe.lid &&
	       target_.key == wqe.access_key;
}

void Requester::start(Nic &nic)
{
	if (qp_.kind == QpKind::dci && fetched_->wqe.opcode != Opcode::nop && !is_target(fetched_->wqe))
		switch_target(nic, fetched_->wqe);
	fetched_->psn = end_;
	end_ = psn_add(end_, fetched_->packets);
	if (fetched_->wqe.is_read() || fetched_->wqe.is_atomic())
		++reads_;
	in_flight_.push_back(std::move(fetched_));
}

// DC: connects to another target. Nothing is in flight.
void Requester::switch_target(Nic &nic, const Wqe &wqe)
{
	if (target_.connected)
		qp_.count(Counter::dc_switches, 1);
	leave(nic);
	target_.connected = true;
	target_.number = wqe.destination;
	target_.lid = wqe.lid;
	target_.key = wqe.access_key;
	target_.connection = nic.next_connection();
	target_.connect_psn = end_;
	qp_.count(Counter::dc_connects, 1);
}

void Requester::leave(Nic &nic)
{
	if (!target_.connected)
		return;
	Packet packet{};
	packet.kind = PacketKind::disconnect;
	address(packet);
	// When the packet is lost, the target keeps the connection until this initiator connects again.
	nic.transmit(qp_, packet);
	target_.connected = false;
}

void Requester::address(Packet &packet) const
{
	const bool dc = qp_.kind == QpKind::dci;
	packet.destination = dc ? target_.number : qp_.settings.destination;
	packet.destination_lid = dc ? target_.lid : qp_.settings.path.dlid;
	packet.key = dc ? target_.key : 0;
	packet.connection = target_.connection;
}

// The packet of number psn_, which belongs to `sent`; `psns` is how many numbers it takes.
Packet Requester::packet_of(const Sent &sent, uint32_t &psns) const
{
	const Wqe &wqe = sent.wqe;
	const uint32_t mtu = qp_.settings.mtu_bytes();
	const uint32_t i = static_cast<uint32_t>(psn_distance(psn_, sent.psn));
	const uint64_t offset = static_cast<uint64_t>(i) * mtu;
	Packet p{};
	address(p);
	p.psn = psn_;
	p.remote_address = wqe.remote_address;
	p.remote_key = wqe.remote_key;
	p.length = static_cast<uint32_t>(wqe.length);
	psns = 1;
	bool first = i == 0, last = i + 1 == sent.packets;
	switch (wqe.opcode) {
	case Opcode::rdma_read:
		p.kind = PacketKind::read;
		p.remote_address += offset;
		p.length -= static_cast<uint32_t>(offset);
		psns = sent.packets - i;
		first = last = true;
		break;
	case Opcode::compare_swap:
	case Opcode::fetch_add:
		p.kind = PacketKind::atomic;
		p.flags = wqe.opcode == Opcode::compare_swap ? packet_compare : 0;
		p.operand = wqe.swap_or_add;
		p.compare = wqe.compare;
		break;
	case Opcode::rdma_write:
	case Opcode::rdma_write_imm: p.kind = PacketKind::write; break;
	default: p.kind = PacketKind::send;
	}
	if (p.kind == PacketKind::send || p.kind == PacketKind::write)
		p.payload = static_cast<uint32_t>(std::min<uint64_t>(mtu, wqe.length - offset));
	if (first)
		p.flags |= packet_first;
	if (last) {
		p.flags |= packet_last | packet_ack_request;
		if (wqe.solicited)
			p.flags |= packet_solicited;
		if (wqe.opcode == Opcode::send_imm || wqe.opcode == Opcode::rdma_write_imm)
			p.flags |= packet_immediate;
		p.immediate = wqe.immediate;
	}
	if (psn_ % ack_every == ack_every - 1)
		p.flags |= packet_ack_request;
	if (qp_.kind == QpKind::dci && psn_ == target_.connect_psn)
		p.flags |= packet_connect;
	return p;
}

// Sends the packet of number psn_, which belongs to `sent`. False when there is no room for it now.
bool Requester::send(Nic &nic, const Sent &sent)
{
	uint32_t psns;
	Packet p = packet_of(sent, psns);
	const uint64_t offset = static_cast<uint64_t>(psn_distance(psn_, sent.psn)) * qp_.settings.mtu_bytes();
	if (!nic.transmit(qp_, p,
	                  [&](uint8_t *to) { gather(qp_, sent.wqe.all(), sent.wqe.raw.data(), offset, to, p.payload); }))
		return false;
	if (psn_distance(psn_, sent_) < 0) {
		qp_.count(Counter::retransmissions, 1);
		qp_.count(Counter::rnr_resent, not_ready_);
	}
	psn_ = psn_add(psn_, psns);
	if (psn_distance(psn_, sent_) > 0)
		sent_ = psn_;
	if (psn_distance(psn_, psn_add(sent.psn, sent.packets)) >= 0)
		++at_;
	posted_ = nic.posted(p.destination);
	if (!deadline_)
		arm_timer(nic);
	return true;
}

// Sends the fetched WQE, which is then complete. False when there is no room for it now.
bool Requester::send_datagram(Nic &nic)
{
	const Wqe &wqe = fetched_->wqe;
	if (wqe.opcode != Opcode::nop) {
		Packet p{};
		p.kind = PacketKind::datagram;
		p.flags = packet_first | packet_last;
		if (wqe.solicited)
			p.flags |= packet_solicited;
		if (wqe.opcode == Opcode::send_imm)
			p.flags |= packet_immediate;
		if (wqe.route) {
			p.flags |= packet_route;
			p.remote_address = qp_.context.guid();
			std::memcpy(&p.operand, wqe.gid + sizeof p.operand, sizeof p.operand);
			p.operand = be64toh(p.operand);
		}
		p.destination = wqe.destination;
		p.destination_lid = wqe.lid;
		// The top bit asks for the queue pair's own key (InfiniBand specification, volume 1, 10.2.5).
		const uint32_t key = static_cast<uint32_t>(wqe.access_key >> 32);
		p.key = key >> 31 ? qp_.settings.qkey : key;
		p.immediate = wqe.immediate;
		p.psn = psn_;
		p.payload = static_cast<uint32_t>(wqe.length);
		if (!nic.transmit(qp_, p, [&](uint8_t *to) { gather(qp_, wqe.all(), wqe.raw.data(), 0, to, p.payload); }))
			return false;
		psn_ = psn_add(psn_, 1);
	}
	const auto sent = std::move(fetched_);
	complete(*sent);
	return true;
}

} // namespace softhca
