// Loads devices as the raw benchmarks of the literature did: threads that post one-sided operations, datagrams or messages as
// fast as their windows allow, on one machine for many, many for one, or all for all; a device is a machine. One line of CSV
// comes out. Plain libibverbs and mlx5dv, so that what is measured is the device and its model and nothing of the library.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <map>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "softhca/softhca.h"

namespace
{

constexpr const char *usage = R"(usage: verbs_load [option=value ...]
  op=read|write|send|atomic  transport=rc|ud|dc  bytes=32  inline=0|1
  pattern=out|in|all   machine 0 loads the others, the others load machine 0, or each loads all others
  machines=2 threads=1 devices, and threads that post on each that loads
  qps=1                queue pairs (DC: initiators) of each thread; RC: the k-th goes to the k-th other machine, round and round
  choose=turn|random   which queue pair is next
  target=same|turn|random|any  DC, UD: which machine is next; any: the thread's own too
  window=1             operations outstanding of each thread; with period > 1 those of WRITE and SEND are bounded by it alone
  postlist=1           work requests for each doorbell
  period=1             each so-manieth work request of a queue pair is signalled
  spread=0             atomic operations: of each thread on a word of its own (0: all on one word)
  depth=16             READs and atomics outstanding of a queue pair
  receivers=1          op=send: threads of each machine that take messages
  ops=20000            operations that are measured, after a quarter as many that are not
  check=0|1            check that the right bytes came to the right place
  header=0|1           print names of columns first
)";

[[noreturn]] void fail(const std::string &why)
{
	std::fprintf(stderr, "verbs_load: %s\n", why.c_str());
	std::exit(1);
}

template <class T>
T *must(T *made, const char *what)
{
	if (!made)
		fail(std::string("cannot make ") + what);
	return made;
}
void must(int error, const char *what)
{
	if (error)
		fail(std::string(what) + ": " + std::strerror(error));
}

struct Options {
	std::map<std::string, std::string> values = {
		{"op", "read"},     {"transport", "rc"}, {"bytes", "32"},    {"inline", "0"}, {"pattern", "out"},
		{"machines", "2"},  {"threads", "1"},    {"qps", "1"},       {"window", "1"}, {"postlist", "1"},
		{"period", "1"},    {"choose", "turn"},  {"target", "turn"}, {"spread", "0"}, {"depth", "16"},
		{"receivers", "1"}, {"ops", "20000"},    {"check", "0"},     {"header", "0"},
	};
	Options(int argc, char **argv)
	{
		for (int i = 1; i < argc; ++i) {
			const std::string text = argv[i];
			const size_t equals = text.find('=');
			const auto found = values.find(text.substr(0, equals));
			if (equals == std::string::npos || found == values.end()) {
				std::fputs(usage, stderr);
				std::exit(2);
			}
			found->second = text.substr(equals + 1);
		}
	}
	unsigned number(const char *name, unsigned least = 0) const
	{
		char *end;
		const unsigned long n = std::strtoul(values.at(name).c_str(), &end, 10);
		if (*end || values.at(name).empty() || n < least)
			fail(std::string(name) + " is to be a number, at least " + std::to_string(least));
		return static_cast<unsigned>(n);
	}
	unsigned one_of(const char *name, std::initializer_list<const char *> words) const
	{
		unsigned i = 0;
		for (const char *word : words) {
			if (values.at(name) == word)
				return i;
			++i;
		}
		fail(std::string(name) + " cannot be " + values.at(name));
	}
};

enum Operation : unsigned { op_read, op_write, op_send, op_atomic };
enum Transport : unsigned { rc, ud, dc };
enum Pattern : unsigned { out, in, all };
enum Target : unsigned { same, in_turn, at_random, any };

struct Plan {
	explicit Plan(const Options &o)
		: op(o.one_of("op", {"read", "write", "send", "atomic"})), transport(o.one_of("transport", {"rc", "ud", "dc"})),
		  pattern(o.one_of("pattern", {"out", "in", "all"})), target(o.one_of("target", {"same", "turn", "random", "any"})),
		  bytes(o.number("bytes")), machines(o.number("machines", 2)), threads(o.number("threads", 1)), qps(o.number("qps", 1)),
		  window(o.number("window", 1)), postlist(o.number("postlist", 1)), period(o.number("period", 1)),
		  depth(o.number("depth", 1)), receivers(o.number("receivers", 1)), ops(o.number("ops", 1)),
		  in_line(o.one_of("inline", {"0", "1"})), random_qp(o.one_of("choose", {"turn", "random"})),
		  spread(o.one_of("spread", {"0", "1"})), check(o.one_of("check", {"0", "1"}))
	{
		if (op == op_atomic)
			bytes = 8;
		if (transport == ud && op != op_send)
			fail("datagrams can only be sent");
		if (postlist > window || (period > 1 && postlist > period))
			fail("a list of work requests is to fit the window and the signal period");
		if (op == op_read && period > 1 && bytes == 0)
			fail("a READ of nothing that is not signalled cannot be seen to end");
	}
	bool loads(unsigned machine) const { return pattern == all || (pattern == out) == (machine == 0); }
	bool serves(unsigned machine) const { return pattern == all || (pattern == in) == (machine == 0); }
	// Datagrams can be lost: what one machine is sent counts when it comes.
	bool counts_received() const { return transport == ud && pattern == in; }
	unsigned slots() const { return op == op_read || op == op_atomic || period == 1 ? window : window + 2 * period * qps; }

	unsigned op, transport, pattern, target, bytes, machines, threads, qps, window, postlist, period, depth, receivers, ops;
	bool in_line, random_qp, spread, check;
};

constexpr uint64_t dc_key = 0x5eed;
constexpr uint32_t qkey = 0x1111;
constexpr int access_all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr size_t line = 64, region_bytes = size_t{1} << 20;
constexpr uint32_t receive_depth = 4096;
constexpr size_t route_bytes = 40; // before a datagram

uint8_t pattern_at(size_t offset) { return static_cast<uint8_t>(1 + offset % 251); }

uint64_t now_ns()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// One thread's view of a device.
struct Port {
	explicit Port(unsigned machine)
	{
		int n = 0;
		ibv_device **list = must(ibv_get_device_list(&n), "a list of devices");
		if (machine >= static_cast<unsigned>(n))
			fail("there are only " + std::to_string(n) + " devices");
		context = must(ibv_open_device(list[machine]), "a context");
		ibv_free_device_list(list);
		pd = must(ibv_alloc_pd(context), "a protection domain");
		ibv_port_attr port;
		must(ibv_query_port(context, 1, &port), "ibv_query_port");
		lid = port.lid;
	}
	ibv_cq *cq(unsigned entries) const
	{
		return must(ibv_create_cq(context, static_cast<int>(entries), nullptr, nullptr, 0), "a completion queue");
	}

	ibv_context *context;
	ibv_pd *pd;
	uint16_t lid;
};

struct Memory {
	Memory(const Port &port, size_t size) : bytes(size)
	{
		void *mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (mapped == MAP_FAILED)
			fail("no memory");
		data = static_cast<uint8_t *>(mapped);
		mr = must(ibv_reg_mr(port.pd, data, size, access_all), "a memory region");
	}
	// The same for queue pairs of another context.
	uint32_t key_for(const Port &port) const
	{
		return must(ibv_reg_mr(port.pd, data, bytes, access_all), "a memory region")->rkey;
	}
	uint64_t at(size_t offset) const { return reinterpret_cast<uintptr_t>(data) + offset; }
	size_t bytes;
	uint8_t *data;
	ibv_mr *mr;
};

ibv_ah_attr path_to(uint16_t lid)
{
	ibv_ah_attr path{};
	path.dlid = lid;
	path.port_num = 1;
	return path;
}

void modify(ibv_qp *qp, ibv_qp_attr attributes, int mask) { must(ibv_modify_qp(qp, &attributes, mask), "ibv_modify_qp"); }

void to_init(ibv_qp *qp, int right)
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	a.qkey = qkey;
	a.qp_access_flags = access_all;
	modify(qp, a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | right);
}

void to_ready(ibv_qp *qp, const Plan &plan, unsigned transport, uint16_t lid, uint32_t number)
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.max_dest_rd_atomic = 16;
	a.min_rnr_timer = 1;
	a.ah_attr = path_to(lid);
	a.dest_qp_num = number;
	constexpr int connected =
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	modify(qp, a, IBV_QP_STATE | (transport == rc ? connected : transport == dc ? IBV_QP_PATH_MTU : 0));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 20;
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = static_cast<uint8_t>(plan.depth);
	constexpr int reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	modify(qp, a, IBV_QP_STATE | IBV_QP_SQ_PSN | (transport == ud ? 0 : reliable));
}

ibv_qp *make_qp(const Port &port, const Plan &plan, ibv_cq *cq, ibv_srq *srq, unsigned send_depth)
{
	ibv_qp_init_attr_ex a{};
	a.send_cq = a.recv_cq = cq;
	a.srq = srq;
	a.cap = {send_depth, srq ? 0u : 1u, 1, srq ? 0u : 1u, plan.in_line ? plan.bytes : 0};
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	a.pd = port.pd;
	ibv_qp *qp;
	if (plan.transport == dc) {
		a.qp_type = IBV_QPT_DRIVER;
		a.cap.max_recv_wr = a.cap.max_recv_sge = 0;
		a.srq = nullptr;
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags =
			IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
		mlx5dv_qp_init_attr driver{};
		driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
		driver.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
		driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		qp = mlx5dv_create_qp(port.context, &a, &driver);
	} else {
		a.qp_type = plan.transport == rc ? IBV_QPT_RC : IBV_QPT_UD;
		mlx5dv_qp_init_attr driver{};
		driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
		driver.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
		qp = mlx5dv_create_qp(port.context, &a, &driver);
	}
	must(qp, "a queue pair");
	to_init(qp, plan.transport == rc ? IBV_QP_ACCESS_FLAGS : plan.transport == ud ? IBV_QP_QKEY : 0);
	if (plan.transport != rc)
		to_ready(qp, plan, plan.transport, 0, 0);
	return qp;
}

ibv_qp *make_dct(const Port &port, ibv_cq *cq, ibv_srq *srq)
{
	ibv_qp_init_attr_ex a{};
	a.qp_type = IBV_QPT_DRIVER;
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	a.pd = port.pd;
	a.send_cq = a.recv_cq = cq;
	a.srq = srq;
	mlx5dv_qp_init_attr driver{};
	driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
	driver.dc_init_attr.dct_access_key = dc_key;
	ibv_qp *qp = must(mlx5dv_create_qp(port.context, &a, &driver), "a DC target");
	to_init(qp, IBV_QP_ACCESS_FLAGS);
	ibv_qp_attr b{};
	b.qp_state = IBV_QPS_RTR;
	b.path_mtu = IBV_MTU_4096;
	b.min_rnr_timer = 1;
	b.ah_attr = path_to(0);
	modify(qp, b, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU);
	return qp;
}

// What one process shares among its threads.
struct Progress {
	std::atomic<uint64_t> done = 0, begin = 0, end = 0, received = 0, wrong = 0;
	std::atomic<unsigned> posting = 0;

	void count(const Plan &plan, uint64_t n, uint64_t now)
	{
		const uint64_t warm = plan.ops / 4, before = done.fetch_add(n);
		if (before < warm && before + n >= warm)
			begin = now;
		if (before < warm + plan.ops && before + n >= warm + plan.ops)
			end = now;
	}
};

// Where messages of one machine come in.
struct Receiver {
	Receiver(const Plan &plan, unsigned machine)
		: port(machine), slot((plan.bytes + route_bytes + line - 1) / line * line), cq(port.cq(receive_depth)),
		  memory(port, std::max(slot * receive_depth, line))
	{
		ibv_srq_init_attr a{};
		a.attr = {receive_depth, 1, 0};
		srq = must(ibv_create_srq(port.pd, &a), "a shared receive queue");
	}
	void post(unsigned first, unsigned count)
	{
		constexpr unsigned most = 64;
		ibv_recv_wr wr[most], *bad;
		ibv_sge sge[most];
		for (unsigned i = 0; i < count; ++i) {
			const unsigned n = (first + i) % receive_depth;
			sge[i] = {memory.at(n * slot), static_cast<uint32_t>(slot), memory.mr->lkey};
			wr[i] = {n, i + 1 < count ? &wr[i + 1] : nullptr, &sge[i], 1};
		}
		must(ibv_post_srq_recv(srq, wr, &bad), "ibv_post_srq_recv");
	}
	Port port;
	size_t slot;
	ibv_cq *cq;
	ibv_srq *srq;
	Memory memory;
};

struct Peer {
	unsigned machine;
	uint16_t lid;
	uint32_t number; // DC, UD: of the target
	uint32_t key;    // of its memory
	const Memory *memory;
	ibv_ah *ah = nullptr;
};

struct Machine {
	Machine(const Plan &plan, unsigned number) : port(number), memory(port, region_bytes), cq(port.cq(16))
	{
		for (size_t i = 0; i < region_bytes; ++i)
			memory.data[i] = plan.op == op_read ? pattern_at(i) : 0;
		if (plan.serves(number) && (plan.op == op_send || plan.transport == dc))
			for (unsigned i = 0; i < plan.receivers; ++i) {
				Receiver &r = *receivers.emplace_back(std::make_unique<Receiver>(plan, number));
				keys.push_back(memory.key_for(r.port));
				targets.push_back(plan.transport == dc   ? make_dct(r.port, r.cq, r.srq)
								  : plan.transport == ud ? make_qp(r.port, plan, r.cq, r.srq, 1)
														 : nullptr);
				if (plan.op == op_send)
					for (unsigned n = 0; n < receive_depth; n += 64)
						r.post(n, 64);
			}
	}
	Port port;
	Memory memory; // what is read and written
	ibv_cq *cq;    // of queue pairs that are only sent to
	std::vector<std::unique_ptr<Receiver>> receivers;
	std::vector<ibv_qp *> targets;
	std::vector<uint32_t> keys;
};

class Loader
{
public:
	Loader(const Plan &plan, Progress &progress, unsigned machine, unsigned thread, bool polite)
		: plan_(plan), progress_(progress), machine_(machine), thread_(thread), polite_(polite), port_(machine),
		  slot_((std::max(plan.bytes, 1u) + line - 1) / line * line), memory_(port_, slot_ * plan.slots()), quiet_(port_.cq(1)),
		  random_(UINT64_C(0x9e3779b97f4a7c15) * (machine * plan.threads + thread + 1)), posted_at_(plan.slots()),
		  source_(plan.slots())
	{
		for (size_t i = 0; i < memory_.bytes; ++i)
			memory_.data[i] = plan.op == op_read ? 0 : pattern_at(i);
		for (unsigned i = 0; i < plan.qps; ++i) {
			const unsigned depth = std::max(plan.window, 2 * plan.period) + 1;
			cqs_.push_back(port_.cq(depth));
			qps_.push_back(make_qp(port_, plan, cqs_.back(), nullptr, depth));
		}
		posts_.resize(plan.qps);
		seen_.resize(plan.qps);
	}
	const Port &port() const { return port_; }
	void serve(const Memory &memory) { key_ = memory.key_for(port_); }
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
		case same:
			return thread_ % n;
		case in_turn:
			return static_cast<unsigned>(total_ % n);
		default:
			return static_cast<unsigned>(random() % n);
		}
	}

	// Until something happens; a poll gives way in virtual time.
	void wait()
	{
		if (polite_)
			sched_yield();
	}
	void poll(unsigned qp)
	{
		ibv_wc wc;
		for (;;) {
			const int n = ibv_poll_cq(cqs_[qp], 1, &wc);
			if (n == 1 && wc.status == IBV_WC_SUCCESS)
				break;
			if (n)
				fail(std::string("a completion says ") + ibv_wc_status_str(wc.status));
			wait();
		}
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

	size_t remote_offset(unsigned peer, size_t slot)
	{
		const size_t lines = region_bytes / line, places = lines - (plan_.bytes + line - 1) / line;
		if (plan_.op == op_atomic)
			return plan_.spread ? (machine_ * plan_.threads + thread_) * line % region_bytes : 0;
		if (plan_.op == op_write && plan_.check) { // a place of its own
			const size_t place = ((machine_ * plan_.threads + thread_) * posted_at_.size() + slot) * slot_;
			if (place + slot_ > region_bytes)
				fail("too much to be checked");
			(void)peer;
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
			if (total_ >= plan_.window)
				await(total_ - plan_.window);
			const size_t slot = total_ % posted_at_.size();
			const uint64_t mod = posts_[q] % plan_.period;
			wr[i].send_flags = mod == 0 ? IBV_SEND_SIGNALED : 0;
			// What was signalled last is waited for as late as can be; it must not be in this very list.
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
		source_[slot] = {remote_offset(p, slot), p, q};
		sge = {memory_.at(slot * slot_), plan_.bytes, memory_.mr->lkey};
		wr.wr_id = p;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		constexpr ibv_wr_opcode codes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD};
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
			const Peer &peer = peers_[w.wr_id];
			ex->wr_flags = w.send_flags;
			switch (plan_.op) {
			case op_read:
				ibv_wr_rdma_read(ex, w.wr.rdma.rkey, w.wr.rdma.remote_addr);
				break;
			case op_write:
				ibv_wr_rdma_write(ex, w.wr.rdma.rkey, w.wr.rdma.remote_addr);
				break;
			case op_send:
				ibv_wr_send(ex);
				break;
			default:
				ibv_wr_atomic_fetch_add(ex, w.wr.atomic.rkey, w.wr.atomic.remote_addr, 1);
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
			for (uint64_t n = total_ - std::min<uint64_t>(total_, plan_.window); n < total_; ++n)
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
	Progress &progress_;
	const unsigned machine_, thread_;
	const bool polite_;
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
	uint32_t key_ = 0; // of our machine's memory, for those who are connected to us
	std::vector<ibv_send_wr> wr_;
	std::vector<ibv_sge> sge_;
};

struct Taking {
	const Plan *plan;
	Progress *progress;
	Receiver *receiver;
	bool polite;
};

// Takes messages until nobody posts any more.
void *take(void *argument)
{
	const Taking &t = *static_cast<Taking *>(argument);
	unsigned first = 0, free = 0;
	constexpr int most = 16;
	ibv_wc wc[most];
	const size_t before = t.plan->transport == ud ? route_bytes : 0;
	for (;;) {
		const bool last = t.progress->posting == 0;
		const int n = ibv_poll_cq(t.receiver->cq, most, wc);
		if (n == 0 && last)
			return nullptr;
		for (int i = 0; i < n; ++i) {
			if (wc[i].status != IBV_WC_SUCCESS || wc[i].byte_len != t.plan->bytes + before)
				fail(std::string("a receive says ") + ibv_wc_status_str(wc[i].status));
			const uint8_t *data = t.receiver->memory.data + wc[i].wr_id * t.receiver->slot + before;
			if (t.plan->check && t.plan->bytes &&
				data[t.plan->bytes - 1] != static_cast<uint8_t>(1 + (data[0] - 1u + t.plan->bytes - 1) % 251))
				++t.progress->wrong;
		}
		t.progress->received += static_cast<uint64_t>(n);
		if (n && t.plan->counts_received())
			t.progress->count(*t.plan, static_cast<uint64_t>(n), now_ns());
		for (free += static_cast<unsigned>(n); free >= most; free -= most, first += most)
			t.receiver->post(first, most);
		if (n == 0 && t.polite)
			sched_yield();
	}
}

uint64_t counter(const char *name)
{
	uint64_t value = 0;
	if (softhca_counter)
		softhca_counter(name, -1, 0, &value);
	return value;
}

double percentile(std::vector<uint32_t> &sorted, double part)
{
	return sorted.empty() ? 0
						  : sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * static_cast<double>(sorted.size())))];
}

} // namespace

int main(int argc, char **argv)
{
	const Options options(argc, argv);
	const Plan plan(options);
	const char *model = std::getenv("SOFTHCA_MODEL");
	const bool polite = !(model && *model);
	Progress progress;

	std::vector<std::unique_ptr<Machine>> machines;
	for (unsigned m = 0; m < plan.machines; ++m)
		machines.push_back(std::make_unique<Machine>(plan, m));
	std::vector<std::unique_ptr<Loader>> loaders;
	for (unsigned m = 0; m < plan.machines; ++m)
		if (plan.loads(m))
			for (unsigned t = 0; t < plan.threads; ++t) {
				loaders.push_back(std::make_unique<Loader>(plan, progress, m, t, polite));
				loaders.back()->serve(machines[m]->memory);
			}
	const auto loader = [&](unsigned machine, unsigned thread) -> Loader & {
		return *loaders[(plan.pattern == in ? machine - 1 : machine) * plan.threads + thread];
	};
	for (unsigned m = 0; m < plan.machines; ++m) {
		if (!plan.loads(m))
			continue;
		for (unsigned t = 0; t < plan.threads; ++t) {
			std::vector<unsigned> others;
			for (unsigned k = 0; k < plan.machines; ++k)
				if (plan.serves(k) && (k != m || plan.target == any))
					others.push_back(k);
			for (unsigned k : others) {
				const Machine &peer = *machines[k];
				const size_t i = peer.targets.empty() ? 0 : (m * plan.threads + t) % peer.targets.size();
				uint32_t number = 0, key = plan.pattern == all ? loader(k, t).key() : peer.memory.mr->rkey;
				if (!peer.targets.empty() && peer.targets[i]) {
					number = peer.targets[i]->qp_num;
					key = peer.keys[i];
				}
				loader(m, t).add({k, peer.port.lid, number, key, &peer.memory});
			}
			if (plan.transport != rc)
				continue;
			// All for all: the same queue pairs carry both directions, as in a program that has one connection to each peer.
			for (unsigned i = 0; i < plan.qps; ++i) {
				const unsigned other = others[i % others.size()];
				ibv_qp *mine = loader(m, t).qp(i), *theirs;
				Machine &server = *machines[other];
				if (plan.pattern == all && plan.op != op_send) {
					const unsigned back = m < other ? m : m - 1; // our place in their list
					const unsigned there = static_cast<unsigned>(i / others.size() * others.size()) + back;
					if (there >= plan.qps)
						fail("all for all: queue pairs of a thread are to be a multiple of the other machines");
					theirs = loader(other, t).qp(there);
				} else {
					Receiver *r = server.receivers.empty() ? nullptr : server.receivers[t % server.receivers.size()].get();
					theirs = make_qp(r ? r->port : server.port, plan, r ? r->cq : server.cq, r ? r->srq : nullptr, 1);
					to_ready(theirs, plan, rc, loader(m, t).port().lid, mine->qp_num);
				}
				to_ready(mine, plan, rc, server.port.lid, theirs->qp_num);
			}
		}
	}

	progress.posting = static_cast<unsigned>(loaders.size());
	std::vector<pthread_t> threads;
	std::deque<Taking> taking;
	const auto start = [&](void *(*function)(void *), void *argument) {
		threads.emplace_back();
		must(pthread_create(&threads.back(), nullptr, function, argument), "pthread_create");
	};
	if (plan.op == op_send)
		for (const auto &m : machines)
			for (const auto &r : m->receivers)
				start(take, &taking.emplace_back(Taking{&plan, &progress, r.get(), polite}));
	for (const auto &l : loaders)
		start([](void *l) -> void * { return static_cast<Loader *>(l)->run(), nullptr; }, l.get());
	for (pthread_t t : threads)
		pthread_join(t, nullptr);

	if (plan.check) {
		uint64_t sum = 0, posted = 0;
		for (const auto &m : machines)
			for (size_t i = 0; i + 8 <= region_bytes && plan.op == op_atomic; i += line)
				sum += *reinterpret_cast<uint64_t *>(m->memory.data + i);
		for (const auto &l : loaders)
			posted += l->posted();
		if (progress.wrong || (plan.op == op_atomic && sum != posted) ||
			(plan.op == op_send && plan.transport != ud && progress.received != posted))
			fail("wrong bytes: " + std::to_string(progress.wrong) + " of " + std::to_string(posted) + " operations, sum " +
				 std::to_string(sum) + ", received " + std::to_string(progress.received));
	}
	std::vector<uint32_t> latencies;
	double mean = 0;
	for (const auto &l : loaders)
		for (uint32_t ns : l->latencies) {
			latencies.push_back(ns);
			mean += ns;
		}
	std::sort(latencies.begin(), latencies.end());
	const double elapsed = static_cast<double>(progress.end - progress.begin), rate = 1000.0 * plan.ops / elapsed;
	const double total = static_cast<double>(std::max<uint64_t>(counter("wqes"), 1));
	if (options.number("header")) {
		for (const auto &[name, value] : options.values)
			if (name != "header" && name != "check")
				std::printf("%s,", name.c_str());
		std::printf("rate,rate_per_machine,mean_ns,median_ns,p99_ns");
		for (const char *name :
			 {"wqe_reads", "wqe_misses", "requester_misses", "responder_misses", "payload_reads", "cqes", "dc_connects"})
			std::printf(",%s_per_op", name);
		std::printf("\n");
	}
	for (const auto &[name, value] : options.values)
		if (name != "header" && name != "check")
			std::printf("%s,", value.c_str());
	std::printf("%.4g,%.4g,%.0f,%.0f,%.0f", rate, plan.pattern == all ? rate / plan.machines : rate,
				latencies.empty() ? 0 : mean / static_cast<double>(latencies.size()), percentile(latencies, 0.5),
				percentile(latencies, 0.99));
	for (const char *name :
		 {"wqe_reads", "wqe_misses", "requester_misses", "responder_misses", "payload_reads", "cqes", "dc_connects"})
		std::printf(",%.3f", static_cast<double>(counter(name)) / total);
	std::printf("\n");
	return 0;
}
