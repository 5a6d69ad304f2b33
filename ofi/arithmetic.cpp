#include "ofi/arithmetic.hpp"

#include <atomic>
#include <bit>
#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace pt2p_ofi {

namespace {

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;

// Calls f with a value of the type; returns its result, or `otherwise`.
template <class R, class F>
R with_type(fi_datatype type, R otherwise, F &&f)
{
	switch (static_cast<int>(type)) {
	case FI_INT8: return f(int8_t{});
	case FI_UINT8: return f(uint8_t{});
	case FI_INT16: return f(int16_t{});
	case FI_UINT16: return f(uint16_t{});
	case FI_INT32: return f(int32_t{});
	case FI_UINT32: return f(uint32_t{});
	case FI_INT64: return f(int64_t{});
	case FI_UINT64: return f(uint64_t{});
	case FI_FLOAT: return f(float{});
	case FI_DOUBLE: return f(double{});
	case FI_FLOAT_COMPLEX: return f(std::complex<float>{});
	case FI_DOUBLE_COMPLEX: return f(std::complex<double>{});
	case FI_LONG_DOUBLE: return f(static_cast<long double>(0));
	case FI_LONG_DOUBLE_COMPLEX: return f(std::complex<long double>{});
	default: return otherwise;
	}
}

// Sums and products of integers wrap around.
template <class T>
T wrapped(T a, T b, bool product)
{
	if constexpr (std::is_integral_v<T>) {
		const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
		return static_cast<T>(product ? x * y : x + y);
	} else {
		return product ? a * b : a + b;
	}
}

template <class T>
T combined(fi_op op, T now, T operand, T compare)
{
	const T zero{};
	switch (static_cast<int>(op)) {
	case FI_SUM: return wrapped(now, operand, false);
	case FI_PROD: return wrapped(now, operand, true);
	case FI_LOR: return T(now != zero || operand != zero);
	case FI_LAND: return T(now != zero && operand != zero);
	case FI_LXOR: return T((now != zero) != (operand != zero));
	case FI_ATOMIC_READ: return now;
	case FI_ATOMIC_WRITE: return operand;
	case FI_CSWAP: return compare == now ? operand : now;
	case FI_CSWAP_NE: return compare != now ? operand : now;
	default: break;
	}
	if constexpr (!is_complex<T>) {
		switch (static_cast<int>(op)) {
		case FI_MIN: return operand < now ? operand : now;
		case FI_MAX: return operand > now ? operand : now;
		case FI_CSWAP_LE: return compare <= now ? operand : now;
		case FI_CSWAP_LT: return compare < now ? operand : now;
		case FI_CSWAP_GE: return compare >= now ? operand : now;
		case FI_CSWAP_GT: return compare > now ? operand : now;
		default: break;
		}
	}
	if constexpr (std::is_integral_v<T>) {
		switch (static_cast<int>(op)) {
		case FI_BOR: return static_cast<T>(now | operand);
		case FI_BAND: return static_cast<T>(now & operand);
		case FI_BXOR: return static_cast<T>(now ^ operand);
		case FI_MSWAP: return static_cast<T>((operand & compare) | (now & ~compare));
		default: break;
		}
	}
	return now;
}

// Aligned values of 4 and 8 bytes: others may change them meanwhile with atomic instructions, as libpt2p does. Returns
// what was there before.
template <class Word, class T>
T change_word(fi_op op, unsigned char *at, T operand, T compare)
{
	std::atomic_ref<Word> word(*reinterpret_cast<Word *>(at));
	Word before = word.load();
	while (op != FI_ATOMIC_READ) {
		const T then = combined(op, std::bit_cast<T>(before), operand, compare);
		if (word.compare_exchange_weak(before, std::bit_cast<Word>(then)))
			break;
	}
	return std::bit_cast<T>(before);
}

// The same for other values, which only this process changes.
template <class T>
T change_bytes(fi_op op, unsigned char *at, T operand, T compare)
{
	T before;
	std::memcpy(&before, at, sizeof(T));
	if (op != FI_ATOMIC_READ) {
		const T then = combined(op, before, operand, compare);
		std::memcpy(at, &then, sizeof(T));
	}
	return before;
}

template <class T>
T change(fi_op op, unsigned char *at, T operand, T compare)
{
	if constexpr (sizeof(T) == 4 || sizeof(T) == 8)
		if (reinterpret_cast<uintptr_t>(at) % sizeof(T) == 0)
			return change_word<std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>(op, at, operand, compare);
	return change_bytes(op, at, operand, compare);
}

template <class T>
void apply_to(fi_op op, unsigned char *target, const unsigned char *operands, const unsigned char *compares,
              unsigned char *results, size_t count)
{
	for (size_t i = 0; i < count; ++i) {
		T operand{}, compare{};
		if (operands)
			std::memcpy(&operand, operands + i * sizeof(T), sizeof(T));
		if (compares)
			std::memcpy(&compare, compares + i * sizeof(T), sizeof(T));
		const T before = change(op, target + i * sizeof(T), operand, compare);
		if (results)
			std::memcpy(results + i * sizeof(T), &before, sizeof(T));
	}
}

} // namespace

size_t size_of(fi_datatype type)
{
	return with_type(type, size_t{0}, [](auto value) { return sizeof value; });
}

bool offered(AtomicKind kind, fi_datatype type, fi_op op)
{
	const int number = static_cast<int>(op);
	const bool of_compare = number >= FI_CSWAP && number <= FI_MSWAP;
	if (!size_of(type) || number < FI_MIN || number > FI_MSWAP || of_compare != (kind == AtomicKind::compare) ||
	    (kind == AtomicKind::write && op == FI_ATOMIC_READ))
		return false;
	return with_type(type, false, [op](auto value) {
		using T = decltype(value);
		switch (static_cast<int>(op)) {
		case FI_MIN:
		case FI_MAX:
		case FI_CSWAP_LE:
		case FI_CSWAP_LT:
		case FI_CSWAP_GE:
		case FI_CSWAP_GT: return !is_complex<T>;
		case FI_BOR:
		case FI_BAND:
		case FI_BXOR:
		case FI_MSWAP: return std::is_integral_v<T>;
		default: return true;
		}
	});
}

void apply(fi_datatype type, fi_op op, void *target, const void *operands, const void *compares, void *results,
           size_t count)
{
	with_type(type, 0, [&](auto value) {
		apply_to<decltype(value)>(
		    op, static_cast<unsigned char *>(target), static_cast<const unsigned char *>(operands),
		    static_cast<const unsigned char *>(compares), static_cast<unsigned char *>(results), count);
		return 0;
	});
}

} // namespace pt2p_ofi
