// What an instruction stores, and where: as much of the encoding of x86-64 as stores need (Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 2, chapter 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <ucontext.h>

namespace softhca {

struct StoreInstruction {
	uint64_t address;
	size_t bytes;
	bool is_move; // no more than a move: `value` has to be written, and the program goes on at `next`
	uint64_t value, next;
	int vector; // likewise, the 16 bytes of this vector register; negative: something else
	int base;   // of anything else: the register (REG_...) that leads to the memory and to nothing else
};

// Reads the instruction at RIP. False when it is no store that can be sent elsewhere by changing one register.
bool read_store(const gregset_t &registers, StoreInstruction &store);

} // namespace softhca
