// The advisor: the order of ways and the reasons in clear situations, and what may not depend on luck.
#include <catch2/catch.hpp>

#include <algorithm>

#include "rpc/laws/advice.hpp"

using namespace pt2p::rpc::laws;

namespace {

const DeviceClass &device(const char *name)
{
	const DeviceClass *found = device_class(name);
	REQUIRE(found);
	return *found;
}

// Ranks, one on each node, that call one.
CallLoad callers(uint32_t n, uint32_t window = 1)
{
	CallLoad load;
	load.nodes = n;
	load.window = window;
	load.reply = 32;
	return load;
}

const Advice &of(const std::vector<Advice> &all, const char *way)
{
	const auto found = std::find_if(all.begin(), all.end(), [&](const Advice &a) { return text_of(a.way) == way; });
	INFO(way);
	REQUIRE(found != all.end());
	return *found;
}

size_t place(const std::vector<Advice> &all, const char *way)
{
	return static_cast<size_t>(&of(all, way) - all.data());
}

} // namespace

TEST_CASE("advice: the quickest comes first, with a rate and a reason each")
{
	for (const DeviceClass &d : device_classes()) {
		const std::vector<Advice> all = advise(callers(28, 4), d);
		CHECK(all.size() == (d.dc ? 9u : 6u));
		for (size_t i = 0; i < all.size(); ++i) {
			CHECK(all[i].rate > 0);
			CHECK(!all[i].reason.empty());
			if (i)
				CHECK(all[i - 1].rate >= all[i].rate);
		}
	}
}

TEST_CASE("advice: many callers by dct fetch, as each reply would change a target")
{
	const std::vector<Advice> many = advise(callers(64), device("connectx5"));
	CHECK(place(many, "dct send/read") < place(many, "dct send/send"));
	CHECK(of(many, "dct send/read").reason.find("64 callers of a rank by dct: each reply would change the target") !=
	      std::string::npos);
	CallLoad few = callers(64);
	few.initiators = 4;
	const std::vector<Advice> switching = advise(few, device("connectx5"));
	CHECK(of(switching, "dct send/send").limit == Limit::initiators);
	CHECK(of(switching, "dct send/send").rate < of(many, "dct send/send").rate);
	// With an initiator for each there is no change.
	const std::vector<Advice> all = advise(callers(4), device("connectx5"));
	CHECK(of(all, "dct send/send").reason.find("change") == std::string::npos);
}

TEST_CASE("advice: contexts that the device cannot hold")
{
	CallLoad load = callers(28);
	load.threads = load.servers = 16;
	load.reply = 365;
	const std::vector<Advice> all = advise(load, device("connectx3"));
	CHECK(all.front().way.get);
	CHECK(place(all, "rc datagram/datagram") < place(all, "rc send/send"));
	CHECK(of(all, "rc send/send").reason.find("448 queue pairs of the server's device") != std::string::npos);
	// One node that READs from many has them at the requester.
	load.shape = Shape::one_to_many;
	load.window = 16;
	const std::vector<Advice> out = advise(load, device("connectx3"));
	CHECK(place(out, "rc send/send") < place(out, "rc read"));
	// Queue pairs that are given are believed.
	load.caller_qps = load.server_qps = 16;
	const std::vector<Advice> few = advise(load, device("connectx3"));
	CHECK(of(few, "rc read").rate > 1.2 * of(out, "rc read").rate);
}

TEST_CASE("advice: more work is not quicker")
{
	for (const DeviceClass &d : device_classes())
		for (const Shape shape : {Shape::many_to_one, Shape::one_to_many, Shape::many_to_many}) {
			CallLoad load = callers(16, 4);
			load.shape = shape;
			const std::vector<Advice> base = advise(load, d);
			const auto slower = [&](const CallLoad &other) {
				for (const Advice &a : advise(other, d)) {
					INFO(d.name << " " << text_of(a.way));
					CHECK(a.rate <= of(base, text_of(a.way).c_str()).rate * 1.0001);
				}
			};
			CallLoad more = load;
			more.handler = 10000;
			slower(more);
			more = load;
			more.reply = 3000;
			slower(more);
			more = load;
			more.window = 1;
			slower(more);
		}
}

TEST_CASE("advice: a long handler makes all calls alike, and a READ does without it")
{
	CallLoad load = callers(16, 4);
	load.handler = 100000;
	const std::vector<Advice> all = advise(load, device("connectx5"));
	CHECK(all.front().way.get);
	CHECK(of(all, "rc send/send").rate == Approx(10000).epsilon(0.05));
	CHECK(of(all, "dct send/read").rate == Approx(of(all, "rc send/send").rate).epsilon(0.05));
	CHECK(of(all, "rc send/send").limit == Limit::server);
}

TEST_CASE("advice: few under way are limited by latency, long replies by the wire")
{
	CHECK(advise(callers(1), device("connectx6")).front().limit == Limit::latency);
	CallLoad load = callers(28, 16);
	load.threads = load.servers = 8;
	load.reply = 4096;
	const std::vector<Advice> all = advise(load, device("connectx5"));
	CHECK(of(all, "rc read").limit == Limit::wire);
	CHECK(of(all, "rc read").rate * 4096 < 12.5e9);
	// Longer than a datagram.
	load.reply = 8192;
	for (const Advice &a : advise(load, device("connectx5")))
		CHECK((a.way.get || a.way.reply != Delivery::datagram));
}

TEST_CASE("advice: additions that wait for each other at a word")
{
	const DeviceClass &d = device("connectx5");
	const Contention idle = contention_of(2000, d), contended = contention_of(24000, d);
	CHECK(idle.alone_ns == Approx(2000).epsilon(0.1));
	CHECK(contended.alone_ns == idle.alone_ns);
	CHECK(contended.waiting == Approx(60));
	CHECK(contended.max_rate == Approx(2.5e6));
	CHECK(contended.call_rate > 2 * contended.max_rate);
	CHECK(contended.call_rate > idle.call_rate);
}

TEST_CASE("advice: nonsense is refused")
{
	CHECK(!wrong_load(callers(1)));
	CallLoad load = callers(0);
	CHECK(wrong_load(load));
	load = callers(1);
	load.shape = Shape::many_to_many;
	CHECK(wrong_load(load));
	load = callers(1, 0);
	CHECK(wrong_load(load));
	load = callers(1);
	load.handler = -1;
	CHECK(wrong_load(load));
	load = callers(1);
	load.reply = size_t{1} << 40;
	CHECK(wrong_load(load));
	load = callers(1);
	load.servers = 0;
	CHECK(wrong_load(load));
	// As much as is allowed.
	load = callers(1u << 20, 1u << 20);
	load.threads = load.servers = 1u << 20;
	load.reply = size_t{1} << 30;
	REQUIRE(!wrong_load(load));
	for (const Advice &a : advise(load, device("connectx5"))) {
		CHECK(a.rate > 0);
		CHECK(a.rate < 1e9);
	}
	CHECK(!device_class("connectx"));
	CHECK(!class_of_part(0));
	CHECK(class_of_part(0x1017) == device_class("connectx5"));
}

TEST_CASE("advice: settings that select a way")
{
	CallLoad load = callers(300, 16);
	load.reply = 365;
	CallWay way{.input = Delivery::write, .reply = Delivery::write};
	CHECK(settings_of(way, load) == "PT2P_TRANSPORTS=self,shm,rc PT2P_CALL_INPUT_BY=write PT2P_CALL_REPLY_BY=write "
	                                "PT2P_NET_RINGS=300 PT2P_NET_RING_SLOT_BYTES=512");
	load.nodes = 100;
	way = {.transport = TransportKind::dct, .reply = Delivery::read};
	CHECK(settings_of(way, load) == "PT2P_TRANSPORTS=self,shm,dct PT2P_CALL_INPUT_BY=send PT2P_CALL_REPLY_BY=read "
	                                "PT2P_NET_RECEIVES=2112");
	way = {.input = Delivery::datagram, .reply = Delivery::datagram};
	CHECK(settings_of(way, callers(4)) ==
	      "PT2P_TRANSPORTS=self,shm,rc,ud PT2P_CALL_INPUT_BY=datagram PT2P_CALL_REPLY_BY=datagram");
}
