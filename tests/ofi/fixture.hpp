// SPDX-License-Identifier: BSD-3-Clause
// Endpoints of the provider in this process, by the public interface of libfabric alone, for the tests of this folder.
// One thread makes the progress of them all.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

namespace fi_test {

constexpr uint32_t version = FI_VERSION(1, 17);

struct FreeInfo {
	void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// Hints that name this provider.
inline Info make_hints()
{
	Info hints(fi_allocinfo());
	REQUIRE(hints);
	hints->fabric_attr->prov_name = strdup("pt2p");
	return hints;
}

inline int ask(const Info &hints, Info &found, const char *node = nullptr, const char *service = nullptr,
               uint64_t flags = 0)
{
	fi_info *list = nullptr;
	const int error = fi_getinfo(version, node, service, flags, hints.get(), &list);
	found.reset(list);
	return error;
}

struct Options {
	uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV;
	fi_threading threading = FI_THREAD_DOMAIN;
	fi_progress progress = FI_PROGRESS_MANUAL;
	int mr_mode = 0;
	fi_wait_obj wait = FI_WAIT_NONE;
	fi_cq_format format = FI_CQ_FORMAT_TAGGED;
	uint64_t selective = 0; // or FI_SELECTIVE_COMPLETION
	fi_av_type av_type = FI_AV_MAP;
	uint64_t av_flags = 0;
	bool counters = false;
	uint64_t tx_flags = 0;
};

struct Domain {
	explicit Domain(const Options &o)
	{
		const Info hints = make_hints();
		hints->caps = o.caps;
		hints->ep_attr->type = FI_EP_RDM;
		hints->domain_attr->threading = o.threading;
		hints->domain_attr->data_progress = o.progress;
		hints->domain_attr->control_progress = o.progress;
		hints->domain_attr->mr_mode = o.mr_mode;
		hints->tx_attr->op_flags = o.tx_flags;
		REQUIRE(ask(hints, info) == 0);
		REQUIRE(fi_fabric(info->fabric_attr, &fabric, nullptr) == 0);
		REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
	}
	~Domain()
	{
		CHECK(fi_close(&domain->fid) == 0);
		CHECK(fi_close(&fabric->fid) == 0);
	}
	Domain(const Domain &) = delete;
	Domain &operator=(const Domain &) = delete;

	Info info;
	fid_fabric *fabric = nullptr;
	fid_domain *domain = nullptr;
};

// What a queue has told.
struct Event {
	fi_cq_tagged_entry entry{};
	fi_addr_t source = FI_ADDR_NOTAVAIL;
	int error = 0;
	fi_cq_err_entry details{};
};

class Node;
inline std::vector<Node *> &nodes()
{
	static std::vector<Node *> all;
	return all;
}

// An endpoint with what it needs; all its completions go to one queue.
class Node {
public:
	explicit Node(const Options &o = {}, std::shared_ptr<Domain> shared = nullptr)
	    : domain(shared ? std::move(shared) : std::make_shared<Domain>(o)), options(o)
	{
		fid_domain *d = domain->domain;
		fi_cq_attr cq_attr{};
		cq_attr.format = o.format;
		cq_attr.wait_obj = o.wait;
		REQUIRE(fi_cq_open(d, &cq_attr, &cq, nullptr) == 0);
		fi_av_attr av_attr{};
		av_attr.type = o.av_type;
		av_attr.flags = o.av_flags;
		REQUIRE(fi_av_open(d, &av_attr, &av, nullptr) == 0);
		REQUIRE(fi_endpoint(d, domain->info.get(), &ep, nullptr) == 0);
		REQUIRE(fi_ep_bind(ep, &av->fid, 0) == 0);
		REQUIRE(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | o.selective) == 0);
		if (o.counters) {
			fi_cntr_attr attr{};
			attr.events = FI_CNTR_EVENTS_COMP;
			attr.wait_obj = o.wait;
			const std::pair<fid_cntr **, uint64_t> kinds[] = {
			    {&sends, FI_SEND}, {&receives, FI_RECV}, {&reads, FI_READ}, {&writes, FI_WRITE}};
			for (const auto &[place, kind] : kinds) {
				REQUIRE(fi_cntr_open(d, &attr, place, nullptr) == 0);
				REQUIRE(fi_ep_bind(ep, &(*place)->fid, kind) == 0);
			}
		}
		REQUIRE(fi_enable(ep) == 0);
		size_t length = sizeof address;
		REQUIRE(fi_getname(&ep->fid, &address, &length) == 0);
		REQUIRE(length == sizeof address);
		nodes().push_back(this);
	}
	~Node()
	{
		std::erase(nodes(), this);
		close_endpoint();
		for (fid_cntr *counter : {sends, receives, reads, writes})
			if (counter)
				CHECK(fi_close(&counter->fid) == 0);
		CHECK(fi_close(&av->fid) == 0);
		CHECK(fi_close(&cq->fid) == 0);
	}
	Node(const Node &) = delete;
	Node &operator=(const Node &) = delete;

	void close_endpoint()
	{
		if (ep)
			CHECK(fi_close(&std::exchange(ep, nullptr)->fid) == 0);
	}
	fi_addr_t insert(const sockaddr_in &where)
	{
		fi_addr_t number = FI_ADDR_NOTAVAIL;
		REQUIRE(fi_av_insert(av, &where, 1, &number, 0, nullptr) == 1);
		return number;
	}
	fi_addr_t insert(const Node &other) { return insert(other.address); }

	// Reads what the queue has now.
	void look()
	{
		if (asleep)
			return;
		Event e;
		const ssize_t n = fi_cq_readfrom(cq, &e.entry, 1, &e.source);
		if (n == 1) {
			events.push_back(e);
		} else if (n == -FI_EAVAIL) {
			REQUIRE(fi_cq_readerr(cq, &e.details, 0) == 1);
			e.error = e.details.err;
			e.entry.op_context = e.details.op_context;
			e.entry.flags = e.details.flags;
			events.push_back(e);
		} else {
			REQUIRE(n == -FI_EAGAIN);
		}
	}

	std::shared_ptr<Domain> domain;
	Options options;
	fid_cq *cq = nullptr;
	fid_av *av = nullptr;
	fid_ep *ep = nullptr;
	fid_cntr *sends = nullptr, *receives = nullptr, *reads = nullptr, *writes = nullptr;
	sockaddr_in address{};
	std::deque<Event> events;
	bool asleep = false; // its program makes no calls
};

inline void look_at_all()
{
	for (Node *node : nodes())
		node->look();
	std::this_thread::yield();
}

template <class Done>
bool drive(Done &&done, int seconds = 20)
{
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
	while (!done()) {
		if (std::chrono::steady_clock::now() > end)
			return false;
		look_at_all();
	}
	return true;
}

// The next completion or error of a node.
inline Event next(Node &node)
{
	REQUIRE(drive([&] { return !node.events.empty(); }));
	const Event e = node.events.front();
	node.events.pop_front();
	return e;
}

// Nothing more arrives at a node in some turns.
inline bool silent(Node &node)
{
	for (int i = 0; i < 300; ++i)
		look_at_all();
	return node.events.empty();
}

// Two endpoints that know each other.
struct Pair {
	explicit Pair(const Options &o = {}, bool one_domain = false) : Pair(o, o, one_domain) {}
	Pair(const Options &of_a, const Options &of_b, bool one_domain = false)
	    : a(of_a), b(of_b, one_domain ? a.domain : nullptr), b_at_a(a.insert(b)), a_at_b(b.insert(a))
	{
	}
	Node a, b;
	fi_addr_t b_at_a, a_at_b;
};

// Memory that peers may reach.
struct Memory {
	Memory(Node &node, void *bytes, size_t length, uint64_t key,
	       uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, uint64_t flags = 0)
	{
		REQUIRE(fi_mr_reg(node.domain->domain, bytes, length, access, 0, key, flags, &mr, nullptr) == 0);
	}
	~Memory() { close(); }
	void close()
	{
		if (mr)
			CHECK(fi_close(&std::exchange(mr, nullptr)->fid) == 0);
	}
	Memory(const Memory &) = delete;
	Memory &operator=(const Memory &) = delete;
	uint64_t key() const { return fi_mr_key(mr); }
	fid_mr *mr = nullptr;
};

using Bytes = std::vector<unsigned char>;

inline Bytes pattern(size_t length, unsigned seed)
{
	Bytes bytes(length);
	for (size_t i = 0; i < length; ++i)
		bytes[i] = static_cast<unsigned char>(i * 7 + i / 251 + seed);
	return bytes;
}

// A value of a program that it finds again in the completion.
inline void *mark(uintptr_t n)
{
	return reinterpret_cast<void *>(n); // NOLINT
}

} // namespace fi_test
