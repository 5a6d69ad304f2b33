#include "softhca/exact/interpreter.hpp"

#ifdef __x86_64__

#include <cstring>

#include "softhca/exact/operands.hpp"

namespace softhca {

namespace {

constexpr uint64_t carry = 1, parity = 1 << 2, zero = 1 << 6, sign = 1 << 7, overflow = 1 << 11;
constexpr uint64_t all_flags = carry | parity | zero | sign | overflow; // but the auxiliary carry, which nobody tests

enum Operation : uint8_t { add = 0, bit_or = 1, bit_and = 4, subtract = 5, exclusive_or = 6, compare = 7, test = 8 };

struct Result {
	uint64_t value, flags;
};
#define COMPUTE(T, instruction)                                                                                        \
	{                                                                                                                  \
		bool c, p, z, s, o;                                                                                            \
		T value = static_cast<T>(a);                                                                                   \
		asm(instruction " %6, %0"                                                                                      \
		    : "+r"(value), "=@ccc"(c), "=@ccp"(p), "=@ccz"(z), "=@ccs"(s), "=@cco"(o)                                  \
		    : "r"(static_cast<T>(b)));                                                                                 \
		return {value, (c ? carry : 0) | (p ? parity : 0) | (z ? zero : 0) | (s ? sign : 0) | (o ? overflow : 0)};     \
	}
template <class T>
Result compute(Operation operation, uint64_t a, uint64_t b)
{
	switch (operation) {
	case add: COMPUTE(T, "add")
	case bit_or: COMPUTE(T, "or")
	case bit_and:
	case test: COMPUTE(T, "and")
	case exclusive_or: COMPUTE(T, "xor")
	default: COMPUTE(T, "sub") // compare, too
	}
}
#undef COMPUTE

bool holds(unsigned condition, uint64_t flags)
{
	const bool c = flags & carry, z = flags & zero, s = flags & sign, o = flags & overflow, p = flags & parity;
	const bool all[] = {o, c, z, c || z, s, p, s != o, z || s != o};
	return all[condition >> 1 & 7] != ((condition & 1) != 0);
}

class Runner : Operands {
public:
	explicit Runner(ucontext_t &context) : Operands(context.uc_mcontext.gregs), context_(context) {}

	// One instruction; false, with nothing done, when it is none of those.
	bool step()
	{
		uint8_t opcode = byte(), prefix = 0;
		if (opcode == 0x66 || opcode == 0xf3) {
			prefix = opcode;
			opcode = byte();
		}
		if ((opcode & 0xf0) == 0x40) {
			extend(static_cast<uint8_t>(opcode << 5));
			wide_ = opcode & 8;
			opcode = byte();
		}
		if (!(opcode == 0x0f ? two_bytes(byte(), prefix) : !prefix && one_byte(opcode)))
			return false;
		set(REG_RIP, at_);
		return true;
	}

private:
	void set(int place, uint64_t value) { context_.uc_mcontext.gregs[place] = static_cast<greg_t>(value); }
	// As an instruction with operands of 4 or 8 bytes does it.
	void set_general(int number, uint64_t value) { set(general_registers[number], wide_ ? value : value & 0xffffffff); }

	void read_operands()
	{
		read_modrm();
		if (relative_)
			address_ += at_; // no constant follows in what is done here
	}

	void calculate(Operation operation, int to, uint64_t with)
	{
		const uint64_t from = general(to);
		const Result r = wide_ ? compute<uint64_t>(operation, from, with) : compute<uint32_t>(operation, from, with);
		set(REG_EFL, (get(REG_EFL) & ~all_flags) | r.flags);
		if (operation != compare && operation != test)
			set_general(to, r.value);
	}

	void jump(bool yes, int64_t distance)
	{
		if (yes)
			at_ += static_cast<uint64_t>(distance);
	}

	bool one_byte(uint8_t opcode)
	{
		if ((opcode & 0xf0) == 0x70) {
			const auto distance = take<int8_t>();
			jump(holds(opcode & 15u, get(REG_EFL)), distance);
			return true;
		}
		switch (opcode) {
		case 0x90: return !base_more_; // nop; else it exchanges
		case 0xeb: {
			const auto distance = take<int8_t>();
			jump(true, distance);
			return true;
		}
		case 0x01: // add, or, and, sub, xor, cmp, test of two registers
		case 0x09:
		case 0x21:
		case 0x29:
		case 0x31:
		case 0x39:
		case 0x85:
			read_operands();
			if (mod_ != 3)
				return false;
			calculate(opcode == 0x85 ? test : static_cast<Operation>(opcode >> 3), base_, general(reg_));
			return true;
		case 0x83: { // the same with a constant
			read_operands();
			const int operation = reg_ & 7;
			if (mod_ != 3 || operation == 2 || operation == 3) // with carry
				return false;
			const auto with = static_cast<uint64_t>(take<int8_t>());
			calculate(static_cast<Operation>(operation), base_, with);
			return true;
		}
		case 0x8b: // mov
			read_operands();
			if (mod_ == 3) {
				set_general(reg_, general(base_));
			} else {
				uint64_t value = 0;
				std::memcpy(&value, reinterpret_cast<const void *>(address_), wide_ ? 8 : 4);
				set_general(reg_, value);
			}
			return true;
		case 0x89: // mov between registers
			read_operands();
			if (mod_ == 3)
				set_general(base_, general(reg_));
			return mod_ == 3;
		case 0x8d: // lea
			read_operands();
			if (mod_ != 3)
				set_general(reg_, address_);
			return mod_ != 3;
		default: return false;
		}
	}

	bool two_bytes(uint8_t opcode, uint8_t prefix)
	{
		if ((opcode & 0xf0) == 0x80 && !prefix) {
			const auto distance = take<int32_t>();
			jump(holds(opcode & 15u, get(REG_EFL)), distance);
			return true;
		}
		switch (opcode) {
		case 0x1f: // nop
			read_operands();
			return true;
		case 0xae: // sfence
			return !prefix && byte() == 0xf8;
		case 0x10: // movups, movupd
		case 0x28: // movaps, movapd
			return prefix != 0xf3 && load_vector();
		case 0x6f: // movdqa, movdqu
			return prefix && load_vector();
		default: return false;
		}
	}

	bool load_vector()
	{
		read_operands();
		if (mod_ == 3)
			return false;
		fpregset_t state = context_.uc_mcontext.fpregs;
		std::memcpy(&state->_xmm[reg_], reinterpret_cast<const void *>(address_), 16);
		// The kernel restores what this word says has been used. It follows where the bytes for software say that it
		// does.
		constexpr size_t marks_at = 464, uses_at = 512;
		constexpr uint32_t extended = 0x46505853;
		constexpr uint64_t vectors = 2;
		auto *bytes = reinterpret_cast<uint8_t *>(state);
		uint32_t mark;
		std::memcpy(&mark, bytes + marks_at, sizeof mark);
		if (mark == extended) {
			uint64_t used;
			std::memcpy(&used, bytes + uses_at, sizeof used);
			used |= vectors;
			std::memcpy(bytes + uses_at, &used, sizeof used);
		}
		return true;
	}

	ucontext_t &context_;
	bool wide_ = false;
};

} // namespace

bool run_to_store(ucontext_t &context, StoreInstruction &store)
{
	constexpr unsigned max_instructions = 16; // between two stores
	constexpr greg_t single_steps = 0x100;
	if (context.uc_mcontext.gregs[REG_EFL] & single_steps)
		return false;
	for (unsigned n = 0; n < max_instructions; ++n) {
		if (read_store(context.uc_mcontext.gregs, store))
			return true;
		if (!Runner(context).step())
			return false;
	}
	return false;
}

void read_vector(const ucontext_t &context, int number, uint8_t *to)
{
	std::memcpy(to, &context.uc_mcontext.fpregs->_xmm[number], 16);
}

} // namespace softhca

#endif
