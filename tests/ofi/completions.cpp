// SPDX-License-Identifier: BSD-3-Clause
// What completion queues tell: their formats, completions on demand, and errors.
#include <cstring>

#include "tests/ofi/fixture.hpp"

using namespace fi_test;

namespace {

// Completions as the queue's format has them, in a row.
template <class Entry>
std::vector<Entry> read(Node &n, size_t count)
{
	std::vector<Entry> all;
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
	while (all.size() < count && std::chrono::steady_clock::now() < end) {
		Entry some[4];
		const ssize_t got = fi_cq_read(n.cq, some, 4);
		if (got > 0)
			all.insert(all.end(), some, some + got);
		look_at_all();
	}
	REQUIRE(all.size() == count);
	return all;
}

template <class Entry, class Check>
void try_format(fi_cq_format format, Check &&check)
{
	Options o;
	o.format = format;
	Pair p({}, o);
	p.b.asleep = true; // not read by others
	Bytes in(4 * 64), out = pattern(64, 1);
	for (uintptr_t i = 0; i < 4; ++i)
		REQUIRE(fi_trecv(p.b.ep, in.data() + 64 * i, 64, nullptr, FI_ADDR_UNSPEC, 100 + i, 0, mark(i + 1)) == 0);
	for (size_t i = 0; i < 4; ++i)
		REQUIRE(fi_tinjectdata(p.a.ep, out.data(), 10 + i, 1000 + i, p.b_at_a, 100 + i) == 0);
	const auto entries = read<Entry>(p.b, 4);
	for (uintptr_t i = 0; i < 4; ++i) {
		CHECK(entries[i].op_context == mark(i + 1));
		check(entries[i], i);
	}
}

} // namespace

TEST_CASE("formats of completions")
{
	const uint64_t flags = FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA;
	try_format<fi_cq_entry>(FI_CQ_FORMAT_CONTEXT, [](const fi_cq_entry &, size_t) {});
	try_format<fi_cq_msg_entry>(FI_CQ_FORMAT_MSG, [&](const fi_cq_msg_entry &e, size_t i) {
		CHECK(e.flags == flags);
		CHECK(e.len == 10 + i);
	});
	try_format<fi_cq_data_entry>(FI_CQ_FORMAT_DATA, [&](const fi_cq_data_entry &e, size_t i) {
		CHECK(e.flags == flags);
		CHECK(e.len == 10 + i);
		CHECK(e.data == 1000 + i);
	});
	try_format<fi_cq_tagged_entry>(FI_CQ_FORMAT_TAGGED, [&](const fi_cq_tagged_entry &e, size_t i) {
		CHECK(e.flags == flags);
		CHECK(e.len == 10 + i);
		CHECK(e.data == 1000 + i);
		CHECK(e.tag == 100 + i);
	});
}

TEST_CASE("FI_SELECTIVE_COMPLETION: only calls that ask for a completion have one")
{
	Options o;
	o.selective = FI_SELECTIVE_COMPLETION;
	o.counters = true;
	Pair p(o);
	uint32_t in[6] = {}, out = 7;
	const iovec from{&out, 4};
	for (uint64_t i = 0; i < 3; ++i) {
		const uint64_t told = i == 1 ? FI_COMPLETION : 0;
		const iovec to{&in[i], 4}, to2{&in[3 + i], 4};
		const fi_msg_tagged r{&to, nullptr, 1, FI_ADDR_UNSPEC, i, 0, mark(20 + i), 0};
		const fi_msg_tagged s{&from, nullptr, 1, p.b_at_a, i, 0, mark(10 + i), 0};
		const fi_msg r2{&to2, nullptr, 1, FI_ADDR_UNSPEC, mark(40 + i), 0},
		    s2{&from, nullptr, 1, p.b_at_a, mark(30 + i), 0};
		REQUIRE(fi_trecvmsg(p.b.ep, &r, told) == 0);
		REQUIRE(fi_recvmsg(p.b.ep, &r2, told) == 0);
		REQUIRE(fi_tsendmsg(p.a.ep, &s, told) == 0);
		REQUIRE(fi_sendmsg(p.a.ep, &s2, told) == 0);
	}
	uint32_t last = 0;
	REQUIRE(fi_trecv(p.b.ep, &last, 4, nullptr, FI_ADDR_UNSPEC, 9, 0, mark(50)) == 0);
	REQUIRE(fi_tsend(p.a.ep, &out, 4, nullptr, p.b_at_a, 9, mark(51)) == 0);
	CHECK(drive([&] { return fi_cntr_read(p.b.receives) == 7 && fi_cntr_read(p.a.sends) == 7; }));
	for (const auto &[node, first] : {std::pair{&p.a, 10}, std::pair{&p.b, 20}}) {
		CHECK(next(*node).entry.op_context == mark(uintptr_t(first) + 1));
		CHECK(next(*node).entry.op_context == mark(uintptr_t(first) + 21));
		CHECK(silent(*node));
	}
}

TEST_CASE("an endpoint with FI_COMPLETION among its flags reports all")
{
	Options o;
	o.selective = FI_SELECTIVE_COMPLETION;
	o.tx_flags = FI_COMPLETION;
	Pair p(o);
	uint32_t in = 0, out = 7;
	REQUIRE(fi_trecv(p.b.ep, &in, 4, nullptr, FI_ADDR_UNSPEC, 9, 0, mark(50)) == 0);
	REQUIRE(fi_tsend(p.a.ep, &out, 4, nullptr, p.b_at_a, 9, mark(51)) == 0);
	CHECK(next(p.a).entry.op_context == mark(51));
	CHECK(drive([&] { return in == 7; }));
	CHECK(silent(p.b));
	uint64_t flags = FI_TRANSMIT;
	REQUIRE(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags) == 0);
	CHECK(flags == FI_COMPLETION);
	flags = FI_TRANSMIT;
	REQUIRE(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags) == 0);
	REQUIRE(fi_tsend(p.a.ep, &out, 4, nullptr, p.b_at_a, 9, mark(52)) == 0);
	CHECK(silent(p.a));
	flags = FI_TRANSMIT | FI_RECV;
	CHECK(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags) == -FI_EINVAL);
}

TEST_CASE("a message that is longer than the buffer is cut")
{
	Pair p;
	for (const bool tagged : {false, true})
		for (const size_t length : {100, 30000, 3000000}) {
			INFO(length);
			const Bytes out = pattern(length, 4);
			Bytes in(80, 0xee);
			if (tagged) {
				REQUIRE(fi_trecv(p.b.ep, in.data(), 60, nullptr, FI_ADDR_UNSPEC, 8, 0, mark(5)) == 0);
				REQUIRE(fi_tsenddata(p.a.ep, out.data(), length, nullptr, 31, p.b_at_a, 8, mark(6)) == 0);
			} else {
				REQUIRE(fi_recv(p.b.ep, in.data(), 60, nullptr, FI_ADDR_UNSPEC, mark(5)) == 0);
				REQUIRE(fi_senddata(p.a.ep, out.data(), length, nullptr, 31, p.b_at_a, mark(6)) == 0);
			}
			const Event e = next(p.b);
			CHECK(e.error == FI_ETRUNC);
			CHECK(e.details.op_context == mark(5));
			CHECK(e.details.olen == length - 60);
			CHECK(e.details.len == 60);
			CHECK((e.details.flags & FI_RECV) != 0);
			CHECK((e.details.flags & FI_REMOTE_CQ_DATA) != 0);
			CHECK(e.details.data == 31);
			if (tagged)
				CHECK(e.details.tag == 8);
			CHECK(std::equal(out.begin(), out.begin() + 60, in.begin()));
			CHECK(in[60] == 0xee);
			CHECK(next(p.a).entry.op_context == mark(6));
		}
}

TEST_CASE("the text of an error")
{
	Pair p;
	char byte = 0, data[200] = "", text[200] = "";
	const char longer[100] = {};
	REQUIRE(fi_trecv(p.b.ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, 8, 0, mark(5)) == 0);
	REQUIRE(fi_tinject(p.a.ep, longer, sizeof longer, p.b_at_a, 8) == 0);
	p.b.asleep = true;
	fi_cq_tagged_entry entry;
	fi_cq_err_entry error{};
	CHECK(fi_cq_readerr(p.b.cq, &error, 0) == -FI_EAGAIN);
	REQUIRE(drive([&] { return fi_cq_read(p.b.cq, &entry, 1) == -FI_EAVAIL; }));
	CHECK(fi_cq_read(p.b.cq, &entry, 1) == -FI_EAVAIL); // until it is read
	error.err_data = data;
	error.err_data_size = sizeof data;
	REQUIRE(fi_cq_readerr(p.b.cq, &error, 0) == 1);
	CHECK(error.err == FI_ETRUNC);
	CHECK(error.err_data == data);
	CHECK(std::string(fi_cq_strerror(p.b.cq, error.prov_errno, nullptr, text, sizeof text)).size() > 3);
	CHECK(text[0] != 0);
	CHECK(fi_cq_read(p.b.cq, &entry, 1) == -FI_EAGAIN);
}

// As recv_cancel of fabtests does.
TEST_CASE("the end of a cancelled receive can be read into an entry that was never set")
{
	Pair p;
	char byte = 0;
	fi_cq_tagged_entry entry;
	fi_cq_err_entry error;
	std::memset(&error, 0x7f, sizeof error);
	REQUIRE(fi_trecv(p.b.ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, 8, 0, mark(5)) == 0);
	REQUIRE(fi_cancel(&p.b.ep->fid, mark(5)) == 0);
	REQUIRE(drive([&] { return fi_cq_read(p.b.cq, &entry, 1) == -FI_EAVAIL; }));
	REQUIRE(fi_cq_readerr(p.b.cq, &error, 0) == 1);
	CHECK(error.err == FI_ECANCELED);
	CHECK(error.op_context == mark(5));
	CHECK(error.err_data_size == 0);
}

TEST_CASE("the texts of several errors are read into one entry")
{
	Pair p;
	p.b.asleep = true;
	const auto text_of_error = [&](bool cut, fi_cq_err_entry &error) {
		char byte = 0;
		const char longer[100] = {};
		if (cut) {
			REQUIRE(fi_trecv(p.b.ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, 8, 0, mark(5)) == 0);
			REQUIRE(fi_tinject(p.a.ep, longer, sizeof longer, p.b_at_a, 8) == 0);
		} else {
			REQUIRE(fi_inject_write(p.b.ep, longer, 1, p.a_at_b, 0, 99) == 0);
		}
		fi_cq_tagged_entry entry;
		REQUIRE(drive([&] { return fi_cq_read(p.b.cq, &entry, 1) == -FI_EAVAIL; }));
		REQUIRE(fi_cq_readerr(p.b.cq, &error, 0) == 1);
		return std::string(static_cast<const char *>(error.err_data), error.err_data_size);
	};
	fi_cq_err_entry first{}, second{};
	const std::string cut = text_of_error(true, first), no_key = text_of_error(false, second);
	CHECK(cut.size() != no_key.size());
	for (int i = 0; i < 2; ++i) {
		CHECK(text_of_error(true, first) == cut);
		CHECK(text_of_error(false, first) == no_key);
	}
}

TEST_CASE("many completions that nobody has read are kept")
{
	Pair p;
	constexpr uintptr_t count = 3000;
	std::vector<uint32_t> in(count), out(count);
	for (uintptr_t i = 0; i < count; ++i)
		REQUIRE(fi_trecv(p.b.ep, &in[i], 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(i + 1)) == 0);
	for (uint32_t i = 0; i < count; ++i) {
		out[i] = i;
		REQUIRE(fi_tsend(p.a.ep, &out[i], 4, nullptr, p.b_at_a, 1, mark(i + 1)) == 0);
		look_at_all();
	}
	for (uintptr_t i = 0; i < count; ++i) {
		CHECK(next(p.b).entry.op_context == mark(i + 1));
		CHECK(in[i] == i);
	}
}
