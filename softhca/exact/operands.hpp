// Reads the operands of an instruction, as far as they are the same for whoever has to understand some instructions of
// x86-64 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ucontext.h>

namespace softhca {

constexpr int no_register = -1;
// By the numbers that instructions have for them.
constexpr int general_registers[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                     REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

class Operands {
protected:
	static constexpr int rax = 0, rsp = 4, rbp = 5, rdi = 7;

	explicit Operands(const gregset_t &registers) : registers_(registers), at_(get(REG_RIP)) {}

	uint64_t get(int place) const { return static_cast<uint64_t>(registers_[place]); }
	uint64_t general(int number) const { return number == no_register ? 0 : get(general_registers[number]); }

	template <class T>
	T take()
	{
		T value;
		std::memcpy(&value, reinterpret_cast<const void *>(at_), sizeof value);
		at_ += sizeof value;
		return value;
	}
	uint8_t byte() { return take<uint8_t>(); }
	// A constant of that many bytes, as a number with a sign.
	uint64_t constant(size_t bytes)
	{
		return static_cast<uint64_t>(bytes == 1 ? take<int8_t>() : bytes == 2 ? take<int16_t>() : take<int32_t>());
	}

	// The fourth bits of the three register numbers: in front as in VEX, where they are inverted; REX has them last.
	void extend(uint8_t bits)
	{
		reg_more_ = bits >> 4 & 8;
		index_more_ = bits >> 3 & 8;
		base_more_ = bits >> 2 & 8;
	}

	// ModRM and what belongs to it. A displacement of one byte counts in units of that many bytes. Where the memory is
	// named by its distance from the next instruction (relative_), address_ is only that distance.
	void read_modrm(size_t unit = 1)
	{
		const uint8_t modrm = byte();
		mod_ = modrm >> 6;
		reg_ = (modrm >> 3 & 7) | reg_more_;
		base_ = modrm & 7;
		index_ = no_register;
		relative_ = false;
		address_ = 0;
		if (mod_ == 3) {
			base_ |= base_more_;
			return;
		}
		unsigned scale = 0;
		if (base_ == rsp) {
			const uint8_t sib = byte();
			scale = sib >> 6;
			index_ = (sib >> 3 & 7) | index_more_;
			if (index_ == rsp)
				index_ = no_register;
			base_ = sib & 7;
		} else {
			relative_ = mod_ == 0 && base_ == rbp;
		}
		const bool none = mod_ == 0 && base_ == rbp;
		base_ = none ? no_register : base_ | base_more_;
		if (mod_ == 1)
			address_ = constant(1) * unit;
		else if (mod_ == 2 || none)
			address_ = constant(4);
		address_ += general(base_) + (general(index_) << scale);
	}

	const gregset_t &registers_;
	uint64_t at_; // what is read next
	int reg_more_ = 0, index_more_ = 0, base_more_ = 0;
	// The second operand is memory, or, with mod_ 3, the register base_.
	int mod_ = 0, reg_ = 0, base_ = no_register, index_ = no_register;
	bool relative_ = false;
	uint64_t address_ = 0;
};

} // namespace softhca
