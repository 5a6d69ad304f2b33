// SPDX-License-Identifier: BSD-3-Clause
// fi_getinfo: hints that are honoured, and hints that are refused.
#include "tests/ofi/fixture.hpp"

#include <functional>

#include <arpa/inet.h>

using namespace fi_test;

namespace {

using Change = std::function<void(fi_info &)>;

int answer(const Change &change)
{
	const Info hints = make_hints();
	change(*hints);
	Info found;
	return ask(hints, found);
}

Info found_with(const Change &change)
{
	const Info hints = make_hints();
	change(*hints);
	Info found;
	REQUIRE(ask(hints, found) == 0);
	return found;
}

sockaddr_in address_of(const char *host, uint16_t port)
{
	sockaddr_in address{};
	address.sin_family = AF_INET;
	address.sin_port = htons(port);
	REQUIRE(inet_pton(AF_INET, host, &address.sin_addr) == 1);
	return address;
}

bool same(const void *found, size_t length, const sockaddr_in &wanted)
{
	if (!found || length != sizeof wanted)
		return false;
	sockaddr_in address;
	std::memcpy(&address, found, sizeof address);
	return address.sin_family == AF_INET && address.sin_port == wanted.sin_port &&
	       address.sin_addr.s_addr == wanted.sin_addr.s_addr;
}

} // namespace

TEST_CASE("what is offered without wishes")
{
	const Info i = found_with([](fi_info &) {});
	CHECK(std::string(i->fabric_attr->prov_name) == "pt2p");
	CHECK(i->ep_attr->type == FI_EP_RDM);
	CHECK((i->caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)) == (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC));
	CHECK(i->mode == 0);
	CHECK(i->addr_format == FI_SOCKADDR_IN);
	CHECK(i->tx_attr->inject_size == 1024);
	CHECK(i->tx_attr->iov_limit == 8);
	CHECK(i->domain_attr->cq_data_size == 8);
	CHECK(i->domain_attr->mr_mode == 0);
	CHECK(i->domain_attr->threading == FI_THREAD_SAFE);
	CHECK((i->tx_attr->msg_order & FI_ORDER_SAS) == FI_ORDER_SAS);
	CHECK((i->ep_attr->mem_tag_format >> 63) == 0);
	CHECK(i->next == nullptr);
}

TEST_CASE("wishes that cannot be met")
{
	CHECK(answer([](fi_info &h) { h.ep_attr->type = FI_EP_MSG; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.ep_attr->type = FI_EP_DGRAM; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.caps = FI_MSG | FI_MULTICAST; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.caps = FI_MSG | FI_HMEM; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.caps = FI_TAGGED | FI_VARIABLE_MSG; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.ep_attr->mem_tag_format = UINT64_MAX; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.ep_attr->mem_tag_format = UINT64_C(1) << 63; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.ep_attr->protocol = FI_PROTO_RXM; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.ep_attr->msg_prefix_size = 8; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.ep_attr->tx_ctx_cnt = 2; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.tx_attr->inject_size = 1025; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.tx_attr->iov_limit = 9; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.tx_attr->comp_order = FI_ORDER_STRICT; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.tx_attr->msg_order = FI_ORDER_RAW; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.rx_attr->iov_limit = 9; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.domain_attr->cq_data_size = 9; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.domain_attr->mr_key_size = 9; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.domain_attr->mr_mode = FI_MR_BASIC | FI_MR_LOCAL; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.domain_attr->name = strdup("eth0"); }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.addr_format = FI_SOCKADDR_IB; }) == -FI_ENODATA);
	CHECK(answer([](fi_info &h) { h.addr_format = FI_SOCKADDR_IN6; }) == -FI_ENODATA);
}

TEST_CASE("wishes at the limits")
{
	CHECK(answer([](fi_info &h) { h.ep_attr->type = FI_EP_RDM; }) == 0);
	CHECK(answer([](fi_info &h) { h.ep_attr->mem_tag_format = INT64_MAX; }) == 0);
	CHECK(answer([](fi_info &h) { h.tx_attr->inject_size = 1024; }) == 0);
	CHECK(answer([](fi_info &h) { h.tx_attr->iov_limit = 8; }) == 0);
	CHECK(answer([](fi_info &h) { h.domain_attr->cq_data_size = 8; }) == 0);
	CHECK(answer([](fi_info &h) { h.tx_attr->msg_order = FI_ORDER_SAS; }) == 0);
	CHECK(answer([](fi_info &h) { h.addr_format = FI_SOCKADDR_IN; }) == 0);
	CHECK(answer([](fi_info &h) { h.addr_format = FI_SOCKADDR; }) == 0);
	CHECK(answer([](fi_info &h) { h.domain_attr->name = strdup("pt2p"); }) == 0);
}

TEST_CASE("wishes that are kept")
{
	for (const fi_threading t :
	     {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_ENDPOINT}) {
		const Info i = found_with([t](fi_info &h) { h.domain_attr->threading = t; });
		CHECK(i->domain_attr->threading == t);
	}
	for (const fi_progress p : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
		const Info i =
		    found_with([p](fi_info &h) { h.domain_attr->data_progress = h.domain_attr->control_progress = p; });
		CHECK(i->domain_attr->data_progress == p);
		CHECK(i->domain_attr->control_progress == p);
	}
	CHECK(found_with([](fi_info &h) { h.domain_attr->mr_mode = FI_MR_BASIC; })->domain_attr->mr_mode == FI_MR_BASIC);
	CHECK(found_with([](fi_info &h) { h.domain_attr->mr_mode = FI_MR_SCALABLE; })->domain_attr->mr_mode ==
	      FI_MR_SCALABLE);
	const int needless = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED | FI_MR_ENDPOINT;
	CHECK((found_with([](fi_info &h) { h.domain_attr->mr_mode = needless; })->domain_attr->mr_mode & ~needless) == 0);
	CHECK(found_with([](fi_info &h) { h.domain_attr->av_type = FI_AV_TABLE; })->domain_attr->av_type == FI_AV_TABLE);
	CHECK(found_with([](fi_info &h) { h.tx_attr->op_flags = FI_DELIVERY_COMPLETE; })->tx_attr->op_flags ==
	      FI_DELIVERY_COMPLETE);
	CHECK(found_with([](fi_info &h) { h.tx_attr->size = 5000; })->tx_attr->size >= 5000);
}

TEST_CASE("capabilities: those asked for with their modifiers, and what costs nothing")
{
	const uint64_t one_way = found_with([](fi_info &h) { h.caps = FI_TAGGED | FI_SEND; })->caps;
	CHECK((one_way & (FI_TAGGED | FI_SEND)) == (FI_TAGGED | FI_SEND));
	CHECK(!(one_way & (FI_RECV | FI_MSG | FI_RMA | FI_ATOMIC)));
	const uint64_t messages = found_with([](fi_info &h) { h.caps = FI_MSG; })->caps;
	CHECK((messages & (FI_SEND | FI_RECV)) == (FI_SEND | FI_RECV));
	CHECK(!(messages & (FI_DIRECTED_RECV | FI_RMA_EVENT | FI_READ | FI_REMOTE_WRITE)));
	const uint64_t directed = found_with([](fi_info &h) { h.caps = FI_MSG | FI_DIRECTED_RECV; })->caps;
	CHECK((directed & FI_DIRECTED_RECV) != 0);
}

TEST_CASE("source and destination addresses")
{
	const Info hints = make_hints();
	Info i;
	REQUIRE(ask(hints, i, "127.0.0.1", "4711", FI_SOURCE) == 0);
	CHECK(same(i->src_addr, i->src_addrlen, address_of("127.0.0.1", 4711)));
	CHECK(i->dest_addr == nullptr);
	REQUIRE(ask(hints, i, "127.0.0.1", "4711") == 0);
	CHECK(same(i->dest_addr, i->dest_addrlen, address_of("127.0.0.1", 4711)));
	CHECK(same(i->src_addr, i->src_addrlen, address_of("127.0.0.1", 0))); // from where it is reached
	REQUIRE(ask(hints, i, "127.0.0.1", nullptr, FI_NUMERICHOST) == 0);
	CHECK(ask(hints, i, "not.a.number", "1", FI_NUMERICHOST) == -FI_ENODATA);

	const sockaddr_in from = address_of("127.0.0.1", 0), to = address_of("127.0.0.2", 99);
	const auto copy = [](const sockaddr_in &address) {
		void *bytes = std::malloc(sizeof address);
		std::memcpy(bytes, &address, sizeof address);
		return bytes;
	};
	hints->src_addr = copy(from);
	hints->src_addrlen = sizeof from;
	hints->dest_addr = copy(to);
	hints->dest_addrlen = sizeof to;
	REQUIRE(ask(hints, i) == 0);
	CHECK(same(i->src_addr, i->src_addrlen, from));
	CHECK(same(i->dest_addr, i->dest_addrlen, to));
	hints->dest_addrlen = 3;
	CHECK(ask(hints, i) == -FI_ENODATA);
}

TEST_CASE("an endpoint listens at the source address that was asked for")
{
	const Info hints = make_hints();
	Info info;
	REQUIRE(ask(hints, info, "127.0.0.1", nullptr, FI_SOURCE) == 0);
	fid_fabric *fabric;
	fid_domain *domain;
	fid_ep *ep;
	REQUIRE(fi_fabric(info->fabric_attr, &fabric, nullptr) == 0);
	REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
	REQUIRE(fi_endpoint(domain, info.get(), &ep, nullptr) == 0);
	sockaddr_in name{};
	size_t length = 2;
	CHECK(fi_getname(&ep->fid, &name, &length) == -FI_ETOOSMALL);
	CHECK(length == sizeof name);
	REQUIRE(fi_getname(&ep->fid, &name, &length) == 0);
	CHECK(name.sin_family == AF_INET);
	CHECK(name.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	CHECK(name.sin_port != 0);
	CHECK(fi_enable(ep) == -FI_ENOAV);
	CHECK(fi_close(&domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&ep->fid) == 0);
	CHECK(fi_close(&fabric->fid) == -FI_EBUSY);
	CHECK(fi_close(&domain->fid) == 0);
	CHECK(fi_close(&fabric->fid) == 0);
}
