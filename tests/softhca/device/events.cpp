// Completion events and asynchronous events. An event that is not read or not acknowledged must not keep an object from
// being destroyed.
#include <catch2/catch.hpp>

#include <cerrno>
#include <fcntl.h>
#include <poll.h>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

struct Channel {
	explicit Channel(Device &device) : channel(ibv_create_comp_channel(device.context))
	{
		REQUIRE(channel);
		REQUIRE(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	}
	~Channel() { CHECK(ibv_destroy_comp_channel(channel) == 0); }
	Channel(const Channel &) = delete;
	Channel &operator=(const Channel &) = delete;

	bool quiet() const
	{
		pollfd ready{channel->fd, POLLIN, 0};
		return poll(&ready, 1, 0) == 0;
	}
	// Reads and acknowledges the next event. Returns its completion queue.
	ibv_cq *next() const
	{
		pollfd ready{channel->fd, POLLIN, 0};
		REQUIRE(poll(&ready, 1, 20'000) == 1);
		ibv_cq *cq;
		void *context;
		REQUIRE(ibv_get_cq_event(channel, &cq, &context) == 0);
		ibv_ack_cq_events(cq, 1);
		return cq;
	}
	ibv_comp_channel *channel;
};

// A connected pair, whose second half completes its receives into a queue with a channel.
struct Listener {
	explicit Listener(Device &device)
	    : channel(device), cq(device.context, 64, channel.channel), memory(device.pd, 4096), pair(device, {}, with(cq))
	{
		for (int i = 0; i < 16; ++i)
			receive(pair.b.qp, {memory.piece(0, 64)});
	}
	static Settings with(ibv_cq *cq)
	{
		Settings settings;
		settings.receive_cq = cq;
		return settings;
	}
	// Sends, and waits until the other side has completed it.
	void send_one(unsigned flags = 0)
	{
		send(pair.a.qp, memory.piece(64, 8), 0, IBV_SEND_SIGNALED | flags);
		expect(pair.a.send_cq);
	}
	Channel channel;
	Cq cq;
	Memory memory;
	Pair pair;
};

} // namespace

TEST_CASE("each request for an event leads to one event, at the next completion")
{
	Device device;
	Listener l(device);
	ibv_wc wc;
	l.send_one(); // no event was requested
	CHECK(l.channel.quiet());
	REQUIRE(ibv_poll_cq(l.cq, 1, &wc) == 1);

	REQUIRE(ibv_req_notify_cq(l.cq, 0) == 0);
	CHECK(l.channel.quiet());
	l.send_one();
	CHECK(l.channel.next() == l.cq.cq);
	CHECK(l.channel.quiet());
	REQUIRE(ibv_poll_cq(l.cq, 1, &wc) == 1);
	l.send_one(); // no event was requested again
	l.send_one();
	CHECK(l.channel.quiet());
	CHECK(wait(l.cq, 2).size() == 2);

	for (int i = 0; i < 20; ++i) { // its sequence number wraps
		receive(l.pair.b.qp, {l.memory.piece(0, 64)});
		REQUIRE(ibv_req_notify_cq(l.cq, 0) == 0);
		l.send_one();
		REQUIRE(l.channel.next() == l.cq.cq);
		REQUIRE(l.channel.quiet());
		expect(l.cq);
	}
	CHECK(ibv_get_cq_event(l.channel.channel, nullptr, nullptr) == -1);
}

TEST_CASE("a completion between the last poll and the request for an event is not lost")
{
	Device device;
	Listener l(device);
	ibv_wc wc;
	CHECK(ibv_poll_cq(l.cq, 1, &wc) == 0);
	l.send_one();
	REQUIRE(ibv_req_notify_cq(l.cq, 0) == 0);
	CHECK(l.channel.next() == l.cq.cq);
	CHECK(ibv_poll_cq(l.cq, 1, &wc) == 1);
}

TEST_CASE("a request for solicited events is met by messages that ask for it, and by errors")
{
	Device device;
	Listener l(device);
	REQUIRE(ibv_req_notify_cq(l.cq, 1) == 0);
	l.send_one();
	l.send_one();
	CHECK(l.channel.quiet());
	l.send_one(IBV_SEND_SOLICITED);
	CHECK(l.channel.next() == l.cq.cq);
	CHECK(wait(l.cq, 3).size() == 3);
	// A request for any event is met by a solicited one, too.
	REQUIRE(ibv_req_notify_cq(l.cq, 0) == 0);
	l.send_one(IBV_SEND_SOLICITED);
	CHECK(l.channel.next() == l.cq.cq);
	expect(l.cq);
	// A WRITE with immediate data can ask for it, too.
	REQUIRE(ibv_req_notify_cq(l.cq, 1) == 0);
	for (unsigned flags : {0u, static_cast<unsigned>(IBV_SEND_SOLICITED)}) {
		CHECK(l.channel.quiet());
		ibv_sge piece = l.memory.piece(0, 8);
		ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, {&piece, 1}, l.memory.address(512), l.memory.key(), 0,
		                      IBV_SEND_SIGNALED | flags);
		post(l.pair.a.qp, wr);
		expect(l.pair.a.send_cq);
	}
	CHECK(l.channel.next() == l.cq.cq);
	CHECK(wait(l.cq, 2).size() == 2);
	REQUIRE(ibv_req_notify_cq(l.cq, 1) == 0);
	l.pair.b.to(IBV_QPS_ERR);
	CHECK(l.channel.next() == l.cq.cq);
	expect(l.cq, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("several queues share a channel, and a queue can be destroyed with events that nobody has read")
{
	Device device;
	Channel channel(device);
	Memory memory(device.pd, 4096);
	auto one = std::make_unique<Cq>(device.context, 64, channel.channel);
	auto other = std::make_unique<Cq>(device.context, 64, channel.channel);
	for (unsigned order = 0; order < 2; ++order) {
		Settings first, second;
		first.receive_cq = *one;
		second.receive_cq = *other;
		Pair pair(device, first, second);
		receive(pair.a.qp, {memory.piece(0, 8)});
		receive(pair.b.qp, {memory.piece(0, 8)});
		REQUIRE(ibv_req_notify_cq(*one, 0) == 0);
		REQUIRE(ibv_req_notify_cq(*other, 0) == 0);
		Endpoint &from = order ? pair.a : pair.b, &to = order ? pair.b : pair.a;
		send(from.qp, memory.piece(64, 8));
		expect(from.send_cq);
		send(to.qp, memory.piece(64, 8));
		expect(to.send_cq);
		CHECK(channel.next() == to.receive_cq);
		CHECK(channel.next() == from.receive_cq);
		expect(to.receive_cq);
		expect(from.receive_cq);
	}
	Settings first, second;
	first.receive_cq = *one;
	second.receive_cq = *other;
	{
		Pair pair(device, first, second);
		for (int i = 0; i < 2; ++i)
			exchange(device, pair.a, pair.b);
		receive(pair.a.qp, {memory.piece(0, 8)});
		receive(pair.b.qp, {memory.piece(0, 8)});
		REQUIRE(ibv_req_notify_cq(*one, 0) == 0);
		REQUIRE(ibv_req_notify_cq(*other, 0) == 0);
		send(pair.a.qp, memory.piece(64, 8));
		expect(pair.a.send_cq);
		send(pair.b.qp, memory.piece(64, 8));
		expect(pair.b.send_cq);
	}
	one.reset(); // would wait for ever if the device said that its event had been read
	CHECK(channel.next() == other->cq);
	CHECK(channel.quiet());
}

TEST_CASE("a completion queue that overruns breaks the queue pairs that use it, and raises one event")
{
	Device device;
	Memory memory(device.pd, 4096);
	auto small = std::make_unique<Cq>(device.context, 1);
	const uint64_t room = static_cast<uint64_t>(small->cq->cqe) + 1;
	Settings settings;
	settings.send_cq = *small;
	{
		Pair pair(device, settings, {}), other(device, settings, {});
		for (uint64_t i = 0; i <= room; ++i)
			write(pair.a.qp, memory.piece(0, 8), memory.address(64), memory.key(), i);
		ibv_async_event events[2];
		REQUIRE(fcntl(device.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
		for (ibv_async_event &event : events) {
			pollfd ready{device.context->async_fd, POLLIN, 0};
			REQUIRE(poll(&ready, 1, 20'000) == 1);
			REQUIRE(ibv_get_async_event(device.context, &event) == 0);
		}
		CHECK(events[0].event_type == IBV_EVENT_CQ_ERR);
		CHECK(events[0].element.cq == small->cq);
		CHECK(events[1].event_type == IBV_EVENT_QP_FATAL);
		CHECK(events[1].element.qp == pair.a.qp);
		for (ibv_async_event &event : events)
			ibv_ack_async_event(&event);
		ibv_wc wc;
		const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
		while (pair.a.state() != IBV_QPS_ERR && std::chrono::steady_clock::now() < until)
			ibv_poll_cq(pair.a.receive_cq, 1, &wc);
		CHECK(pair.a.state() == IBV_QPS_ERR);
		// Another queue pair breaks when it has to complete something.
		CHECK(other.a.state() == IBV_QPS_RTS);
		write(other.a.qp, memory.piece(0, 8), memory.address(64), memory.key());
		CHECK(next_event(device.context, IBV_EVENT_QP_FATAL).element.qp == other.a.qp);
		CHECK(no_event(device.context));
		// The completions before the overrun are there.
		for (uint64_t i = 0; i < room; ++i)
			CHECK(expect(*small).wr_id == i);
		CHECK(ibv_poll_cq(*small, 1, &wc) == 0);
	}
}

TEST_CASE("asynchronous events that nobody reads keep no object from being destroyed")
{
	Device device;
	Memory memory(device.pd, 4096);
	{
		Pair pair(device);
		write(pair.a.qp, memory.piece(0, 8), 0, 0xbad);
		expect(pair.a.send_cq, IBV_WC_REM_ACCESS_ERR);
		const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
		while (no_event(device.context) && std::chrono::steady_clock::now() < until)
			;
		CHECK_FALSE(no_event(device.context));
	}
	CHECK(no_event(device.context)); // its object has been destroyed
	// Only the events of the destroyed object are withdrawn.
	auto first = std::make_unique<Pair>(device), second = std::make_unique<Pair>(device);
	for (Pair *pair : {first.get(), second.get(), first.get()}) {
		reconnect(pair->a, pair->b);
		write(pair->a.qp, memory.piece(0, 8), 0, 0xbad);
		expect(pair->a.send_cq, IBV_WC_REM_ACCESS_ERR);
	}
	first.reset();
	CHECK(next_event(device.context, IBV_EVENT_QP_ACCESS_ERR).element.qp == second->b.qp);
	CHECK(no_event(device.context));
}

TEST_CASE("when too many events are unread, further ones are lost and do no harm")
{
	Device device;
	Memory memory(device.pd, 64);
	Cq cq(device.context);
	Srq srq(device);
	Dct dct(device, srq.srq, cq);
	Settings settings;
	settings.send_wr = 16;
	Dci dci(device, settings);
	// More than a pipe holds.
	for (unsigned i = 0; i < 5000; ++i) {
		dci.send(dct.number(), memory.piece(0, 8), i, dc_key + 1);
		REQUIRE(wait(dci.cq, 1)[0].status == IBV_WC_REM_ACCESS_ERR);
		dci.to(IBV_QPS_RESET);
		dci.to_rts();
	}
	CHECK_FALSE(no_event(device.context));
}

TEST_CASE("a queue pair with a shared receive queue raises an event when it takes no more from it")
{
	Device device;
	Srq srq(device);
	Memory memory(device.pd, 4096);
	Settings settings;
	settings.srq = srq.srq;
	Pair pair(device, {}, settings);
	srq.post(memory.piece(0, 8));
	pair.b.to(IBV_QPS_ERR);
	CHECK(next_event(device.context, IBV_EVENT_QP_LAST_WQE_REACHED).element.qp == pair.b.qp);
	pair.b.to(IBV_QPS_ERR);
	CHECK(no_event(device.context)); // the event was raised before
	ibv_wc wc;
	CHECK(ibv_poll_cq(pair.b.receive_cq, 1, &wc) == 0); // the receive is for others
	reconnect(pair.a, pair.b);
	send(pair.a.qp, memory.piece(64, 8));
	expect(pair.a.send_cq);
	expect(pair.b.receive_cq);
}
