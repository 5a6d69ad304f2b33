// A thread of verbs_load that posts work requests as fast as its window allows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <sched.h>
#include <string>
#include <vector>

#include "softhca/studies/programs/verbs_load_receiver.hpp"
#include "softhca/time/virtual_time.h"

namespace verbs_load {

struct Peer {
	unsigned machine;
	uint16_t lid;
	uint32_t number; // DC, UD: of the target
	uint32_t key;    // of its memory
	const Memory *memory;
	ibv_ah *ah = nullptr;
};

class Loader {
public:
	// `memory`: of its machine, for those who are connected to it. `team`: the threads of its machine, first to last,
	// up to this one.
	Loader(const Plan &plan, Progress &progress, unsigned machine, unsigned thread, bool polite, const Memory &memory,
	       std::vector<Loader *> &team)
	    : plan_(plan), progress_(progress), machine_(machine), thread_(thread), polite_(polite), team_(team),
	      port_(plan.share && thread ? team[0]->port_ : Port(machine)),
	      slot_((std::max(plan.bytes, 1u) + line - 1) / line * line), memory_(port_, slot_ * plan.slots()),
	      quiet_(port_.cq(1)), random_(UINT64_C(0x9e3779b97f4a7c15) * (machine * plan.threads + thread + 1)),
	      posted_at_(plan.slots()), source_(plan.slots()), key_(memory.key_for(port_)), arrived_(plan.qps)
	{
		for (size_t i = 0; i < memory_.bytes; ++i)
			memory_.data[i] = plan.op == op_read ? 0 : pattern_at(i);
		const unsigned users = plan.share == shares_queue ? plan.threads : 1;
		if (users > 1 && thread) {
			cqs_ = team[0]->cqs_;
			qps_ = team[0]->qps_;
		}
		while (qps_.size() < plan.qps) {
			const unsigned depth = users * std::max(plan.window, 2 * plan.period) + 1;
			cqs_.push_back(port_.cq(depth));
			qps_.push_back(make_qp(port_, plan, cqs_.back(), nullptr, depth));
		}
		posts_.resize(plan.qps);
		seen_.resize(plan.qps);
		team.push_back(this);
	}
	const Port &port() const { return port_; }
	uint32_t key() const { return key_; }
	ibv_qp *qp(unsigned i) const { return qps_[i]; }
	void add(Peer peer)
	{
		ibv_ah_attr path = path_to(peer.lid);
		peer.ah = must(ibv_create_ah(port_.pd, &path), "an address handle");
		peers_.push_back(peer);
	}
	std::vector<uint32_t> latencies;
	uint64_t posted() const { return total_; }

	void run()
	{
		const uint64_t warm = plan_.ops / 4, enough = warm + plan_.ops;
		while (progress_.done < enough && !progress_.wrong)
			post_list();
		drain();
		check_written();
		--progress_.posting;
	}

private:
	struct Source {
		size_t offset;
		unsigned peer, qp;
	};
	bool signals_all() const { return plan_.period == 1; }
	uint64_t random()
	{
		random_ ^= random_ << 13;
		random_ ^= random_ >> 7;
		random_ ^= random_ << 17;
		return random_ >> 11;
	}

	unsigned choose_peer(unsigned qp)
	{
		const auto n = static_cast<unsigned>(peers_.size());
		if (plan_.transport == rc)
			return qp % n;
		switch (plan_.target) {
		case same: return thread_ % n;
		case in_turn: return static_cast<unsigned>(total_ % n);
		default: return static_cast<unsigned>(random() % n);
		}
	}

	// Until something happens; in virtual time a poll yields.
	void wait()
	{
		if (polite_)
			sched_yield();
	}
	void poll(unsigned qp)
	{
		ibv_wc wc;
		while (arrived_[qp] == 0) {
			const int n = ibv_poll_cq(cqs_[qp], 1, &wc);
			if (n && (n != 1 || wc.status != IBV_WC_SUCCESS))
				fail(std::string("a completion says ") + ibv_wc_status_str(wc.status));
			if (n)
				++(plan_.share == shares_queue ? *team_[wc.wr_id >> thread_shift] : *this).arrived_[qp];
			else
				wait();
		}
		--arrived_[qp];
		++seen_[qp];
	}
	// The oldest operation of the window has ended.
	void await(uint64_t number)
	{
		const size_t slot = number % posted_at_.size();
		if (signals_all()) {
			poll(source_[slot].qp);
		} else if (plan_.op == op_read) {
			const volatile uint8_t *first = memory_.data + slot * slot_;
			ibv_wc none;
			while (*first == 0) {
				ibv_poll_cq(quiet_, 1, &none);
				wait();
			}
		} else {
			return; // the period bounds it
		}
		ended(slot);
	}
	void await_room()
	{
		if (total_ < plan_.window || (plan_.burst && total_ % plan_.window != 0))
			return;
		for (unsigned i = 0; i < (plan_.burst ? plan_.window : 1); ++i)
			await(total_ - plan_.window + i);
	}
	// How many of the last ones nobody has waited for.
	uint64_t awaited_by_none() const
	{
		const uint64_t of_burst = (total_ + plan_.window - 1) % plan_.window + 1;
		return std::min<uint64_t>(total_, plan_.burst ? of_burst : plan_.window);
	}
	void ended(size_t slot)
	{
		const uint64_t now = now_ns();
		if (progress_.begin)
			latencies.push_back(static_cast<uint32_t>(std::min<uint64_t>(now - posted_at_[slot], UINT32_MAX)));
		count(1, now);
		if (plan_.op != op_read)
			return;
		if (plan_.check)
			for (size_t i = 0; i < plan_.bytes; ++i)
				if (memory_.data[slot * slot_ + i] != pattern_at(source_[slot].offset + i)) {
					++progress_.wrong;
					break;
				}
		std::memset(memory_.data + slot * slot_, 0, plan_.check ? plan_.bytes : 1);
	}
	void count(uint64_t n, uint64_t now)
	{
		if (!plan_.counts_received())
			progress_.count(plan_, n, now);
	}

	size_t remote_offset(size_t slot)
	{
		const size_t lines = region_bytes / line, places = lines - (plan_.bytes + line - 1) / line;
		if (plan_.op == op_atomic)
			return plan_.spread ? (machine_ * plan_.threads + thread_) * line % region_bytes : 0;
		if (plan_.op == op_write && plan_.check) { // a place of its own
			const size_t place = ((machine_ * plan_.threads + thread_) * posted_at_.size() + slot) * slot_;
			if (place + slot_ > region_bytes)
				fail("too much to be checked");
			return place;
		}
		return random() % places * line;
	}

	void post_list()
	{
		const auto q = static_cast<unsigned>(plan_.random_qp ? random() % plan_.qps : lists_ % plan_.qps);
		++lists_;
		std::vector<ibv_send_wr> &wr = wr_;
		std::vector<ibv_sge> &sge = sge_;
		wr.assign(plan_.postlist, {});
		sge.resize(plan_.postlist);
		for (unsigned i = 0; i < plan_.postlist; ++i, ++total_) {
			await_room();
			if (plan_.work && softhca_time_compute)
				softhca_time_compute(uint64_t{plan_.work} * 1000);
			const size_t slot = total_ % posted_at_.size();
			const uint64_t mod = posts_[q] % plan_.period;
			wr[i].send_flags = mod == 0 ? IBV_SEND_SIGNALED : 0;
			// Waits for the last signalled operation as late as possible; it must not be in this list.
			if (!signals_all() && (plan_.postlist == 1 ? mod == plan_.period - 1 : mod == 0 && posts_[q])) {
				poll(q);
				if (plan_.op != op_read)
					count(plan_.period, now_ns());
			}
			++posts_[q];
			prepare(wr[i], sge[i], slot, q);
			wr[i].next = i + 1 < plan_.postlist ? &wr[i + 1] : nullptr;
		}
		const uint64_t now = now_ns();
		for (unsigned i = 1; i <= plan_.postlist; ++i)
			posted_at_[(total_ - i) % posted_at_.size()] = now;
		post(q, wr);
	}
	void prepare(ibv_send_wr &wr, ibv_sge &sge, size_t slot, unsigned q)
	{
		const unsigned p = choose_peer(q);
		const Peer &peer = peers_[p];
		source_[slot] = {remote_offset(slot), p, q};
		sge = {memory_.at(slot * slot_), plan_.bytes, memory_.mr->lkey};
		wr.wr_id = uint64_t{thread_} << thread_shift | p;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		constexpr ibv_wr_opcode codes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
		                                   IBV_WR_ATOMIC_FETCH_AND_ADD};
		wr.opcode = codes[plan_.op];
		if (plan_.in_line && (plan_.op == op_write || plan_.op == op_send))
			wr.send_flags |= IBV_SEND_INLINE;
		const uint64_t remote = peer.memory->at(source_[slot].offset);
		if (plan_.op == op_atomic) {
			wr.wr.atomic = {remote, 1, 0, peer.key};
		} else if (plan_.op != op_send) {
			wr.wr.rdma.remote_addr = remote;
			wr.wr.rdma.rkey = peer.key;
		} else if (plan_.transport == ud) {
			wr.wr.ud = {peer.ah, peer.number, qkey};
		}
	}
	void post(unsigned q, std::vector<ibv_send_wr> &wr)
	{
		if (plan_.transport != dc) {
			ibv_send_wr *bad;
			must(ibv_post_send(qps_[q], wr.data(), &bad), "ibv_post_send");
			return;
		}
		ibv_qp_ex *ex = ibv_qp_to_qp_ex(qps_[q]);
		mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
		ibv_wr_start(ex);
		for (const ibv_send_wr &w : wr) {
			const Peer &peer = peers_[static_cast<uint32_t>(w.wr_id)];
			ex->wr_flags = w.send_flags;
			switch (plan_.op) {
			case op_read: ibv_wr_rdma_read(ex, w.wr.rdma.rkey, w.wr.rdma.remote_addr); break;
			case op_write: ibv_wr_rdma_write(ex, w.wr.rdma.rkey, w.wr.rdma.remote_addr); break;
			case op_send: ibv_wr_send(ex); break;
			default: ibv_wr_atomic_fetch_add(ex, w.wr.atomic.rkey, w.wr.atomic.remote_addr, 1);
			}
			mlx5dv_wr_set_dc_addr(dv, peer.ah, peer.number, dc_key);
			if (w.send_flags & IBV_SEND_INLINE)
				ibv_wr_set_inline_data(ex, reinterpret_cast<void *>(w.sg_list->addr), w.sg_list->length);
			else
				ibv_wr_set_sge(ex, w.sg_list->lkey, w.sg_list->addr, w.sg_list->length);
		}
		must(ibv_wr_complete(ex), "ibv_wr_complete");
	}

	void drain()
	{
		if (signals_all() || plan_.op == op_read)
			for (uint64_t n = total_ - awaited_by_none(); n < total_; ++n)
				await(n);
		// The first of each period is signalled; what has not been waited for yet, and what comes after it.
		if (!signals_all())
			for (unsigned q = 0; q < plan_.qps; ++q) {
				const uint64_t signalled = (posts_[q] + plan_.period - 1) / plan_.period;
				while (seen_[q] < signalled)
					poll(q);
				if (!posts_[q])
					continue;
				wr_.assign(1, {});
				sge_.resize(1);
				prepare(wr_[0], sge_[0], total_ % posted_at_.size(), q);
				wr_[0].send_flags |= IBV_SEND_SIGNALED;
				++total_;
				post(q, wr_);
				poll(q);
			}
	}
	// What lies at the peers is what was sent last from each slot.
	void check_written()
	{
		if (!plan_.check || plan_.op != op_write)
			return;
		for (uint64_t n = total_ - std::min<uint64_t>(total_, plan_.window); n < total_; ++n) {
			const size_t slot = n % posted_at_.size();
			if (std::memcmp(peers_[source_[slot].peer].memory->data + source_[slot].offset, memory_.data + slot * slot_,
			                plan_.bytes) != 0)
				++progress_.wrong;
		}
	}

	const Plan &plan_;
	static constexpr unsigned thread_shift = 32; // in numbers of work requests; below: the peer

	Progress &progress_;
	const unsigned machine_, thread_;
	const bool polite_;
	const std::vector<Loader *> &team_;
	Port port_;
	const size_t slot_;
	Memory memory_;
	ibv_cq *quiet_; // nothing ever completes there: to wait for memory
	uint64_t random_, total_ = 0, lists_ = 0;
	std::vector<uint64_t> posted_at_;
	std::vector<Source> source_;
	std::vector<ibv_cq *> cqs_;
	std::vector<ibv_qp *> qps_;
	std::vector<Peer> peers_;
	std::vector<uint64_t> posts_, seen_;
	const uint32_t key_;                         // of this machine's memory, for those connected to it
	std::vector<std::atomic<uint64_t>> arrived_; // completions of this thread that nobody has waited for
	std::vector<ibv_send_wr> wr_;
	std::vector<ibv_sge> sge_;
};

} // namespace verbs_load
