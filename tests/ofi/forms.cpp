// SPDX-License-Identifier: BSD-3-Clause
// All forms of the calls that send and receive, with lengths from nothing to some megabytes.
#include "tests/ofi/fixture.hpp"

using namespace fi_test;

namespace {

constexpr size_t lengths[] = {0, 1, 8, 1024, 1025, 65536, 5000000};
constexpr uint64_t number = UINT64_C(0xfedcba9876543210);

enum class Form { plain, vector, message, data, inject, inject_data };
constexpr Form send_forms[] = {Form::plain, Form::vector, Form::message, Form::data, Form::inject, Form::inject_data};
constexpr Form receive_forms[] = {Form::plain, Form::vector, Form::message};

bool injects(Form form) { return form == Form::inject || form == Form::inject_data; }
bool has_data(Form form) { return form == Form::data || form == Form::inject_data || form == Form::message; }

// Three segments that together are the buffer.
std::vector<iovec> cut(Bytes &bytes, size_t length)
{
	const size_t third = length / 3;
	return {{bytes.data(), third}, {bytes.data() + third, third}, {bytes.data() + 2 * third, length - 2 * third}};
}

ssize_t send(Node &n, Form form, bool tagged, Bytes &bytes, fi_addr_t to, uint64_t tag, void *context)
{
	const size_t length = bytes.size();
	const auto segments = cut(bytes, length);
	switch (form) {
	case Form::plain:
		return tagged ? fi_tsend(n.ep, bytes.data(), length, nullptr, to, tag, context)
		              : fi_send(n.ep, bytes.data(), length, nullptr, to, context);
	case Form::vector:
		return tagged ? fi_tsendv(n.ep, segments.data(), nullptr, segments.size(), to, tag, context)
		              : fi_sendv(n.ep, segments.data(), nullptr, segments.size(), to, context);
	case Form::message: {
		const fi_msg_tagged t{segments.data(), nullptr, segments.size(), to, tag, 0, context, number};
		const fi_msg m{segments.data(), nullptr, segments.size(), to, context, number};
		return tagged ? fi_tsendmsg(n.ep, &t, FI_REMOTE_CQ_DATA) : fi_sendmsg(n.ep, &m, FI_REMOTE_CQ_DATA);
	}
	case Form::data:
		return tagged ? fi_tsenddata(n.ep, bytes.data(), length, nullptr, number, to, tag, context)
		              : fi_senddata(n.ep, bytes.data(), length, nullptr, number, to, context);
	case Form::inject:
		return tagged ? fi_tinject(n.ep, bytes.data(), length, to, tag) : fi_inject(n.ep, bytes.data(), length, to);
	default:
		return tagged ? fi_tinjectdata(n.ep, bytes.data(), length, number, to, tag)
		              : fi_injectdata(n.ep, bytes.data(), length, number, to);
	}
}

ssize_t receive(Node &n, Form form, bool tagged, Bytes &bytes, fi_addr_t from, uint64_t tag, void *context)
{
	const auto segments = cut(bytes, bytes.size());
	switch (form) {
	case Form::plain:
		return tagged ? fi_trecv(n.ep, bytes.data(), bytes.size(), nullptr, from, tag, 0, context)
		              : fi_recv(n.ep, bytes.data(), bytes.size(), nullptr, from, context);
	case Form::vector:
		return tagged ? fi_trecvv(n.ep, segments.data(), nullptr, segments.size(), from, tag, 0, context)
		              : fi_recvv(n.ep, segments.data(), nullptr, segments.size(), from, context);
	default: {
		const fi_msg_tagged t{segments.data(), nullptr, segments.size(), from, tag, 0, context, 0};
		const fi_msg m{segments.data(), nullptr, segments.size(), from, context, 0};
		return tagged ? fi_trecvmsg(n.ep, &t, 0) : fi_recvmsg(n.ep, &m, 0);
	}
	}
}

void carry(Pair &p, Form out, Form in, bool tagged, size_t length, bool early)
{
	INFO("send form " << int(out) << ", receive form " << int(in) << ", tagged " << tagged << ", length " << length
	                  << ", receive first " << early);
	Bytes sent = pattern(length, unsigned(length) + 3), got(length + 5, 0xee);
	const uint64_t tag = 77 + length;
	const bool known = has_data(out);
	if (early)
		REQUIRE(receive(p.b, in, tagged, got, p.a_at_b, tag, mark(2)) == 0);
	REQUIRE(send(p.a, out, tagged, sent, p.b_at_a, tag, mark(1)) == 0);
	if (injects(out))
		std::fill(sent.begin(), sent.end(), 0); // the buffer is the program's again
	if (!early) {
		look_at_all();
		REQUIRE(receive(p.b, in, tagged, got, p.a_at_b, tag, mark(2)) == 0);
	}
	const Event e = next(p.b);
	CHECK(e.error == 0);
	CHECK(e.entry.op_context == mark(2));
	CHECK(e.entry.len == length);
	CHECK(e.entry.flags == ((tagged ? FI_TAGGED : FI_MSG) | FI_RECV | (known ? FI_REMOTE_CQ_DATA : 0)));
	CHECK(e.entry.data == (known ? number : 0));
	CHECK(e.source == p.a_at_b);
	if (tagged)
		CHECK(e.entry.tag == tag);
	const Bytes wanted = pattern(length, unsigned(length) + 3);
	CHECK(std::equal(wanted.begin(), wanted.end(), got.begin()));
	CHECK(std::all_of(got.begin() + std::ptrdiff_t(length), got.end(), [](unsigned char c) { return c == 0xee; }));
	if (!injects(out)) {
		const Event s = next(p.a);
		CHECK(s.error == 0);
		CHECK(s.entry.op_context == mark(1));
		CHECK(s.entry.flags == ((tagged ? FI_TAGGED : FI_MSG) | FI_SEND));
	}
	CHECK(p.a.events.empty());
	CHECK(p.b.events.empty());
}

} // namespace

TEST_CASE("messages: all forms and lengths")
{
	Pair p;
	for (const bool tagged : {false, true})
		for (const Form out : send_forms)
			for (const Form in : receive_forms)
				for (const size_t length : lengths)
					if (!injects(out) || length <= 1024)
						for (const bool early : {false, true})
							carry(p, out, in, tagged, length, early);
	CHECK(silent(p.a));
	CHECK(silent(p.b));
}

TEST_CASE("messages between two endpoints of one domain, and to oneself")
{
	Pair p({}, true);
	for (const size_t length : lengths)
		carry(p, Form::plain, Form::plain, true, length, false);
	Node &a = p.a;
	const fi_addr_t own = a.insert(a);
	Bytes out = pattern(3000, 1), in(3000);
	REQUIRE(fi_trecv(a.ep, in.data(), in.size(), nullptr, own, 5, 0, mark(1)) == 0);
	REQUIRE(fi_tsend(a.ep, out.data(), out.size(), nullptr, own, 5, mark(2)) == 0);
	for (int i = 0; i < 2; ++i) {
		const Event e = next(a);
		CHECK(e.error == 0);
		if (e.entry.op_context == mark(1))
			CHECK(e.source == own);
	}
	CHECK((in == out));
}

TEST_CASE("messages: limits")
{
	Pair p;
	Bytes bytes(1025);
	CHECK(fi_inject(p.a.ep, bytes.data(), 1025, p.b_at_a) == -FI_EMSGSIZE);
	CHECK(fi_tinject(p.a.ep, bytes.data(), 1025, p.b_at_a, 1) == -FI_EMSGSIZE);
	CHECK(fi_injectdata(p.a.ep, bytes.data(), 1025, 1, p.b_at_a) == -FI_EMSGSIZE);
	const iovec one{bytes.data(), 1025};
	const fi_msg m{&one, nullptr, 1, p.b_at_a, nullptr, 0};
	CHECK(fi_sendmsg(p.a.ep, &m, FI_INJECT) == -FI_EMSGSIZE);
	const std::vector<iovec> nine(9, iovec{bytes.data(), 1});
	CHECK(fi_sendv(p.a.ep, nine.data(), nullptr, 9, p.b_at_a, nullptr) == -FI_EINVAL);
	CHECK(fi_trecvv(p.a.ep, nine.data(), nullptr, 9, FI_ADDR_UNSPEC, 0, 0, nullptr) == -FI_EINVAL);
	CHECK(fi_recvv(p.a.ep, nine.data(), nullptr, 9, FI_ADDR_UNSPEC, nullptr) == -FI_EINVAL);
	CHECK(fi_send(p.a.ep, bytes.data(), 1, nullptr, 12345, nullptr) == -FI_EINVAL);
	CHECK(fi_inject(p.a.ep, bytes.data(), 1, 12345) == -FI_EINVAL);
	CHECK(silent(p.a));
}

TEST_CASE("an injected message with flags of the call or of the endpoint")
{
	Options injecting;
	injecting.tx_flags = FI_INJECT;
	Pair p(injecting);
	Bytes in(16), out = pattern(16, 9);
	const Bytes wanted = out;
	REQUIRE(fi_tsend(p.a.ep, out.data(), 16, nullptr, p.b_at_a, 1, mark(1)) == 0);
	std::fill(out.begin(), out.end(), 0);
	REQUIRE(fi_trecv(p.b.ep, in.data(), 16, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(2)) == 0);
	CHECK(next(p.b).error == 0);
	CHECK((in == wanted));
	CHECK(next(p.a).entry.op_context == mark(1));
}

TEST_CASE("FI_DELIVERY_COMPLETE: the send ends when the message has been received")
{
	Pair p;
	Bytes in(16), out = pattern(16, 9);
	const iovec one{out.data(), out.size()};
	const fi_msg_tagged m{&one, nullptr, 1, p.b_at_a, 4, 0, mark(1), 0};
	REQUIRE(fi_tsendmsg(p.a.ep, &m, FI_DELIVERY_COMPLETE) == 0);
	CHECK(silent(p.a));
	REQUIRE(fi_trecv(p.b.ep, in.data(), 16, nullptr, FI_ADDR_UNSPEC, 4, 0, mark(2)) == 0);
	CHECK(next(p.a).entry.op_context == mark(1));
	CHECK(next(p.b).entry.op_context == mark(2));
	CHECK((in == out));
}
