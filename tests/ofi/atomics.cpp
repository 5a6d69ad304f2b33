// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations: each on several types, against what this process computes itself.
#include "tests/ofi/fixture.hpp"

#include <complex>
#include <functional>

using namespace fi_test;

namespace {

template <class T>
constexpr bool complex_type = false;
template <class T>
constexpr bool complex_type<std::complex<T>> = true;

// What an operation makes of a value; written down again, not taken from the provider.
template <class T>
T reference(fi_op op, T now, T operand, T compare)
{
	const bool a = now != T{}, b = operand != T{};
	switch (int(op)) {
	case FI_SUM: return now + operand;
	case FI_PROD: return now * operand;
	case FI_LOR: return T(a || b ? 1 : 0);
	case FI_LAND: return T(a && b ? 1 : 0);
	case FI_LXOR: return T(a != b ? 1 : 0);
	case FI_ATOMIC_READ: return now;
	case FI_ATOMIC_WRITE: return operand;
	case FI_CSWAP: return now == compare ? operand : now;
	case FI_CSWAP_NE: return now != compare ? operand : now;
	default: break;
	}
	if constexpr (!complex_type<T>) {
		switch (int(op)) {
		case FI_MIN: return std::min(now, operand);
		case FI_MAX: return std::max(now, operand);
		// As the manual has it: compare OP target.
		case FI_CSWAP_LE: return compare <= now ? operand : now;
		case FI_CSWAP_LT: return compare < now ? operand : now;
		case FI_CSWAP_GE: return compare >= now ? operand : now;
		case FI_CSWAP_GT: return compare > now ? operand : now;
		default: break;
		}
	}
	if constexpr (std::is_integral_v<T>) {
		switch (int(op)) {
		case FI_BOR: return now | operand;
		case FI_BAND: return now & operand;
		case FI_BXOR: return now ^ operand;
		case FI_MSWAP: return (operand & compare) | (now & ~compare);
		default: break;
		}
	}
	return now;
}

bool works_on(fi_op op, bool is_complex, bool is_integer)
{
	switch (int(op)) {
	case FI_BOR:
	case FI_BAND:
	case FI_BXOR:
	case FI_MSWAP: return is_integer;
	case FI_MIN:
	case FI_MAX:
	case FI_CSWAP_LE:
	case FI_CSWAP_LT:
	case FI_CSWAP_GE:
	case FI_CSWAP_GT: return !is_complex;
	default: return true;
	}
}

constexpr uint64_t key = 9;

template <class T>
void try_type(Pair &p, fi_datatype type)
{
	const std::vector<T> begin{T(0), T(1), T(5), T(7), T(12), T(3)};
	const std::vector<T> operands{T(4), T(0), T(5), T(2), T(9), T(6)};
	const std::vector<T> compares{T(0), T(2), T(5), T(6), T(13), T(1)};
	const size_t n = begin.size();
	std::vector<T> target(n + 1);
	Memory memory(p.b, target.data(), target.size() * sizeof(T), key);
	for (int number = FI_MIN; number <= FI_MSWAP; ++number) {
		const auto op = static_cast<fi_op>(number);
		const bool compared = number >= FI_CSWAP, works = works_on(op, complex_type<T>, std::is_integral_v<T>);
		INFO("type " << int(type) << ", op " << number);
		for (const bool fetched : {false, true}) {
			std::copy(begin.begin(), begin.end(), target.begin() + 1);
			target[0] = T(99);
			std::vector<T> result(n, T(77));
			ssize_t error;
			size_t most = 0;
			int valid;
			if (compared) {
				valid = fi_compare_atomicvalid(p.a.ep, type, op, &most);
				error = fi_compare_atomic(p.a.ep, operands.data(), n, nullptr, compares.data(), nullptr, result.data(),
				                          nullptr, p.b_at_a, sizeof(T), key, type, op, mark(1));
			} else if (fetched) {
				valid = fi_fetch_atomicvalid(p.a.ep, type, op, &most);
				error = fi_fetch_atomic(p.a.ep, op == FI_ATOMIC_READ ? nullptr : operands.data(), n, nullptr,
				                        result.data(), nullptr, p.b_at_a, sizeof(T), key, type, op, mark(1));
			} else {
				valid = fi_atomicvalid(p.a.ep, type, op, &most);
				error = fi_atomic(p.a.ep, operands.data(), n, nullptr, p.b_at_a, sizeof(T), key, type, op, mark(1));
			}
			if (!works || (op == FI_ATOMIC_READ && !fetched)) {
				CHECK(error == -FI_EOPNOTSUPP);
				CHECK(valid == -FI_EOPNOTSUPP);
				continue;
			}
			REQUIRE(error == 0);
			CHECK(valid == 0);
			CHECK(most * sizeof(T) >= 64);
			const Event e = next(p.a);
			CHECK(e.error == 0);
			CHECK(e.entry.op_context == mark(1));
			CHECK((e.entry.flags & FI_ATOMIC) != 0);
			CHECK(target[0] == T(99));
			for (size_t i = 0; i < n; ++i) {
				CHECK(target[i + 1] == reference<T>(op, begin[i], operands[i], compares[i]));
				CHECK(result[i] == (fetched || compared ? begin[i] : T(77)));
			}
		}
	}
}

} // namespace

TEST_CASE("atomic operations on all kinds of types")
{
	Pair p;
	try_type<int8_t>(p, FI_INT8);
	try_type<int32_t>(p, FI_INT32);
	try_type<uint64_t>(p, FI_UINT64);
	try_type<double>(p, FI_DOUBLE);
	try_type<std::complex<float>>(p, FI_FLOAT_COMPLEX);
	try_type<long double>(p, FI_LONG_DOUBLE);
}

TEST_CASE("atomic operations: counts, ends of memory, access")
{
	Pair p;
	std::vector<uint64_t> target(2000), operands(2000, 1), result(2000);
	Memory memory(p.b, target.data(), target.size() * 8, key), small(p.b, target.data(), 16, 10),
	    to_read(p.b, target.data(), 16, 11, FI_REMOTE_READ), to_write(p.b, target.data(), 16, 12, FI_REMOTE_WRITE);
	size_t most = 0;
	REQUIRE(fi_atomicvalid(p.a.ep, FI_UINT64, FI_SUM, &most) == 0);
	REQUIRE(most < 2000);
	const auto add = [&](size_t count, uint64_t at, uint64_t where) {
		return fi_atomic(p.a.ep, operands.data(), count, nullptr, p.b_at_a, at, where, FI_UINT64, FI_SUM, mark(1));
	};
	CHECK(add(most + 1, 0, key) == -FI_EINVAL);
	REQUIRE(add(most, 0, key) == 0);
	CHECK(next(p.a).error == 0);
	CHECK(target[most - 1] == 1);
	CHECK(target[most] == 0);
	for (const auto &[count, at, where] : {std::tuple<size_t, uint64_t, uint64_t>{3, 0, 10},
	                                       {1, 16, 10},
	                                       {1, 9, 10},
	                                       {1, UINT64_MAX - 7, 10},
	                                       {1, 0, 99},
	                                       {1, 0, 11}}) {
		INFO(count << " at " << at << " of " << where);
		REQUIRE(add(count, at, where) == 0);
		CHECK(next(p.a).error == FI_EKEYREJECTED);
	}
	REQUIRE(add(2, 0, 12) == 0);
	CHECK(next(p.a).error == 0);
	const auto fetch = [&](uint64_t where) {
		REQUIRE(fi_fetch_atomic(p.a.ep, nullptr, 2, nullptr, result.data(), nullptr, p.b_at_a, 0, where, FI_UINT64,
		                        FI_ATOMIC_READ, mark(1)) == 0);
		return next(p.a).error;
	};
	CHECK(fetch(11) == 0);
	CHECK(result[1] == 2);
	CHECK(fetch(12) == FI_EKEYREJECTED);
	CHECK(target[1] == 2);
	fi_atomic_attr attr{};
	CHECK(fi_query_atomic(p.a.domain->domain, FI_INT32, FI_SUM, &attr, 0) == 0);
	CHECK(attr.size == 4);
	CHECK(attr.count > 0);
	CHECK(fi_query_atomic(p.a.domain->domain, FI_INT32, FI_CSWAP, &attr, FI_COMPARE_ATOMIC) == 0);
	CHECK(fi_query_atomic(p.a.domain->domain, FI_DOUBLE, FI_BAND, &attr, FI_FETCH_ATOMIC) == -FI_EOPNOTSUPP);
	CHECK(fi_query_atomic(p.a.domain->domain, FI_INT32, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) < 0);
}

TEST_CASE("atomic operations with segments, and injected")
{
	Pair p;
	uint32_t target[8] = {0, 1, 2, 3, 4, 5, 6, 7}, add[5] = {10, 20, 30, 40, 50}, was[5] = {};
	Memory memory(p.b, target, sizeof target, key);
	const fi_ioc here[] = {{add, 2}, {add + 2, 3}};
	const fi_rma_ioc there[] = {{0, 1, key}, {16, 4, key}};
	fi_ioc results[] = {{was, 4}, {was + 4, 1}};
	const fi_msg_atomic m{here, nullptr, 2, p.b_at_a, there, 2, FI_UINT32, FI_SUM, mark(1), 0};
	REQUIRE(fi_fetch_atomicmsg(p.a.ep, &m, results, nullptr, 2, 0) == 0);
	CHECK(next(p.a).entry.op_context == mark(1));
	const uint32_t before[] = {0, 4, 5, 6, 7}, after[] = {10, 1, 2, 3, 24, 35, 46, 57};
	CHECK(std::equal(before, before + 5, was));
	CHECK(std::equal(after, after + 8, target));
	REQUIRE(fi_atomicmsg(p.a.ep, &m, 0) == 0);
	CHECK(next(p.a).entry.op_context == mark(1));
	CHECK(target[0] == 20);
	CHECK(target[7] == 107);
	uint32_t one = 1;
	REQUIRE(fi_inject_atomic(p.a.ep, &one, 1, p.b_at_a, 4, key, FI_UINT32, FI_SUM) == 0);
	one = 100;
	CHECK(drive([&] { return target[1] == 2; }));
	CHECK(silent(p.a));
}

TEST_CASE("several endpoints add to one value at a time")
{
	Node owner, a, b;
	uint64_t target[2] = {};
	Memory memory(owner, target, sizeof target, key);
	const fi_addr_t at_a = a.insert(owner), at_b = b.insert(owner), own = owner.insert(owner);
	uint64_t one = 1;
	constexpr uint64_t rounds = 300;
	std::vector<uint64_t> was(3 * rounds);
	const std::pair<Node *, fi_addr_t> all[] = {{&a, at_a}, {&b, at_b}, {&owner, own}};
	size_t n = 0;
	for (uint64_t i = 0; i < rounds; ++i)
		for (const auto &[node, to] : all)
			REQUIRE(fi_fetch_atomic(node->ep, &one, 1, nullptr, &was[n++], nullptr, to, 8, key, FI_UINT64, FI_SUM,
			                        mark(1)) == 0);
	for (uint64_t i = 0; i < rounds; ++i)
		for (const auto &[node, to] : all)
			CHECK(next(*node).error == 0);
	CHECK(target[1] == 3 * rounds);
	std::sort(was.begin(), was.end());
	bool each_once = true;
	for (uint64_t i = 0; i < was.size(); ++i)
		each_once = each_once && was[i] == i;
	CHECK(each_once);
}
