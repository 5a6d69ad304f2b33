// The C++ header: owner types, spans, exceptions.
#include <catch2/catch.hpp>

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include <pt2p.hpp>

static_assert(!std::is_copy_constructible_v<pt2p::context> && std::is_move_constructible_v<pt2p::context>);
static_assert(!std::is_copy_constructible_v<pt2p::request> && std::is_move_constructible_v<pt2p::request>);

static_assert(!std::is_copy_constructible_v<pt2p::message> && std::is_move_constructible_v<pt2p::message>);
static_assert(!std::is_copy_constructible_v<pt2p::memory> && std::is_move_constructible_v<pt2p::memory>);
static_assert(!std::is_copy_constructible_v<pt2p::remote> && std::is_move_constructible_v<pt2p::remote>);

namespace {

std::pair<pt2p::context, pt2p::context> two()
{
	pt2p_context_t *ctx[2];
	pt2p::check(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx));
	return {pt2p::context(ctx[0]), pt2p::context(ctx[1])};
}

} // namespace

TEST_CASE("values and spans travel")
{
	auto [a, b] = two();
	CHECK(a.rank() == 0);
	CHECK(b.size() == 2);
	a.send(3.25, 1, 7);
	double got = 0;
	const pt2p_result_t result = b.recv(got, 0, 7);
	CHECK(got == 3.25);
	CHECK(result.length == sizeof(double));

	const std::vector<int> out(100000, 5);
	std::vector<int> in(out.size());
	pt2p::request receive = b.irecv(std::span(in), 0, 8);
	pt2p::request send = a.isend(std::span(out), 1, 8);
	CHECK(receive);
	CHECK(receive.wait().length == out.size() * sizeof(int));
	CHECK(!receive);
	send.wait();
	CHECK(in == out);

	const std::string report = a.report();
	CHECK(report.find("libpt2p: rank 0 of 2 ") == 0);
	CHECK(report.back() == '\n');
	CHECK(report.find('\0') == report.npos);
}

TEST_CASE("failures are thrown with status and explanation")
{
	auto [a, b] = two();
	try {
		a.send(1, 5, 0);
		FAIL("not thrown");
	} catch (const pt2p::error &e) {
		CHECK(e.status() == PT2P_ERR_RANK);
		CHECK(std::string(e.what()).find('5') != std::string::npos);
	}
	a.send(std::span<const int>(std::array<int, 4>{}), 1, 9);
	int one = 0;
	CHECK(b.probe(0, 9).length == 16);
	CHECK_THROWS_AS(b.recv(one, 0, 9), pt2p::error);
	const char *bad[] = {"PT2P_EAGER_MAXX=1", nullptr};
	CHECK_THROWS_AS(pt2p::context(PT2P_THREAD_SINGLE, bad), pt2p::error);
}

TEST_CASE("synchronous sends are matched, also by probes")
{
	auto [a, b] = two();
	const std::array<int, 3> out{4, 5, 6};
	std::array<int, 3> in{};
	pt2p::request send = a.issend(std::span(out), 1, 7);
	pt2p::message m = b.mprobe(0, 7);
	CHECK(m);
	CHECK((m.source() == 0 && m.tag() == 7 && m.length() == sizeof out));
	CHECK(!b.improbe(0, 7));
	CHECK(!send.test());
	pt2p::message moved = std::move(m);
	CHECK(!m);
	CHECK(moved.irecv(std::span(in)).wait().length == sizeof in);
	CHECK(!moved);
	CHECK(in == out);
	send.wait();
	CHECK_THROWS_AS(moved.recv(std::span(in)), pt2p::error);

	// A message that is dropped counts as received: its sender is done.
	send = a.issend(std::span(out), 1, 8);
	{
		pt2p::message dropped = b.mprobe(PT2P_ANY_SOURCE, 8);
		dropped = b.improbe(0, 8);
		CHECK(!dropped);
	}
	send.wait();
	pt2p::request receive = b.irecv(std::span<int>(in), 0, 9);
	a.ssend(std::span(out), 1, 9);
	receive.wait();
}

TEST_CASE("a request that is dropped is cancelled")
{
	auto [a, b] = two();
	int value = 1;
	{
		pt2p::request r = a.irecv(std::span(&value, 1), 1, 3);
		pt2p::request moved = std::move(r);
		CHECK(!r);
		CHECK(moved);
		CHECK(!moved.test());
	}
	{
		pt2p::request r = a.irecv(std::span(&value, 1), 1, 3);
		r.cancel();
		CHECK_THROWS_AS(r.wait(), pt2p::error);
	}
	CHECK_NOTHROW(a.finalize());
	CHECK(a.get() == nullptr);
	b.finalize();
}

TEST_CASE("put, get and atomic operations on memory of another rank")
{
	auto [a, b] = two();
	std::vector<double> own(8);
	pt2p::memory made(b, 4096), registered(b, std::span(own));
	pt2p::remote to_made(a, 1, made.exported());
	pt2p::remote to_registered(a, 1, registered.exported());
	const std::array<double, 2> out{1.5, 2.5};
	to_registered.iput(std::span(out), 8).wait();
	CHECK((own[1] == 1.5 && own[2] == 2.5));
	to_made.put_signal(std::span(out), 64, 0, PT2P_SIGNAL_ADD, 2);
	a.fence(1);
	std::array<double, 2> in{};
	to_made.get(std::span(in), 64);
	a.flush(1);
	CHECK(in == out);
	b.signal_wait(made.as<uint64_t>()[0], 2, 0);
	CHECK(to_made.fetch_add<uint64_t>(0, 3) == 2);
	CHECK(to_made.swap<uint32_t>(4, 9) == 0);
	CHECK(to_made.compare_swap<uint32_t>(4, 9, 0) == 9);
	CHECK(made.as<uint64_t>()[0] == 5);
	CHECK_THROWS_AS(to_made.put(std::span(out), 4090), pt2p::error);
	pt2p::remote moved = std::move(to_made);
	moved = {};
	a.flush();
}

TEST_CASE("C++: queries, release and callables of requests; segments")
{
	pt2p::context c;
	int value = 7, got = 0, parts[2] = {};
	auto in = c.irecv(std::span(&got, 1), c.rank(), 50);
	CHECK_FALSE(in.query());
	c.isend(std::span(&value, 1), c.rank(), 50).detach();
	pt2p_result_t result{};
	while (!in.query(&result))
		;
	CHECK(result.length == sizeof got);
	in.wait();
	CHECK(got == 7);

	const pt2p_iovec_t from[] = {{&value, 2}, {reinterpret_cast<char *>(&value) + 2, 2}, {&got, 4}},
	                   to[] = {{&parts[1], 4}, {&parts[0], 4}};
	size_t length = 0;
	auto owned = std::make_unique<int>(3);
	c.irecvv(to, c.rank(), 51).then([&length, owned = std::move(owned)](const pt2p_result_t &r) {
		length = r.length + static_cast<size_t>(*owned);
	});
	c.isendv(from, c.rank(), 51).wait();
	while (!length)
		c.progress();
	CHECK(length == 11);
	CHECK((parts[0] == 7 && parts[1] == 7));

	pt2p::memory memory(c, 64);
	pt2p::remote remote(c, c.rank(), memory.exported());
	CHECK(remote.address<int>() == memory.as<int>().data());
}

TEST_CASE("lists of requests: all, and some")
{
	auto [a, b] = two();
	std::array<int, 3> in{};
	std::vector<pt2p::request> requests(4);
	for (size_t i = 0; i < in.size(); ++i)
		requests[i] = b.irecv(std::span(&in[i], 1), 0, i);
	CHECK(b.test_some(requests).empty());
	a.send(5, 1, 1);
	a.send(std::span<const int>(std::array<int, 2>{8, 9}), 1, 2); // too long
	std::vector<pt2p::context::finished> done;
	while (done.size() < 2)
		for (const auto &f : b.wait_some(requests))
			done.push_back(f);
	CHECK(done[0].index == 1);
	CHECK(done[0].result.status == PT2P_OK);
	CHECK(in[1] == 5);
	CHECK(done[1].index == 2);
	CHECK(done[1].result.status == PT2P_ERR_TRUNCATED);
	CHECK(requests[0]);
	CHECK(!requests[1]);
	CHECK(!requests[2]);
	a.send(4, 1, 0);
	b.wait_all(requests);
	CHECK(in[0] == 4);
	CHECK(!requests[0]);
	CHECK(b.wait_some(requests).empty());

	std::vector<pt2p::request> failing(1);
	failing[0] = b.irecv(std::span(&in[0], 1), 0, 9);
	a.send(std::span<const int>(std::array<int, 2>{8, 9}), 1, 9);
	CHECK_THROWS_AS(b.wait_all(failing), pt2p::error);
	CHECK(!failing[0]);
}
