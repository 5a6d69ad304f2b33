#include "softhca/exact/store_instruction.hpp"

#ifdef __x86_64__

#include "softhca/exact/operands.hpp"

namespace softhca {

namespace {

// What the ModRM byte names beside the memory, and how the store is executed.
enum class Role : uint8_t {
	move,      // a general register, which is stored as it is: no need to run the instruction
	immediate, // a constant, likewise
	general,   // a general register
	compare,   // a general register, and RAX has a part in it too
	other,     // nothing that could be the base of the memory
	vector,    // a vector register; the only role with VEX and EVEX forms
	string,    // there is none: the memory is at RDI
	pointer,   // the general register that holds the address; its memory is read
};

enum : uint8_t { vector_width = 0x80, operand, byte_or_operand, four_or_eight };

// Prefixes in the encoding of VEX, as a set.
enum : uint8_t { none = 1, p66 = 2, pf3 = 4, pf2 = 8, any = 15 };

struct Form {
	uint8_t map;          // 0, 1: 0F, 2: 0F 38, 3: 0F 3A
	uint8_t mask, opcode; // where the bits of `mask` are as in `opcode`
	uint8_t prefixes;
	uint8_t bytes; // as a number, or one of the above
	Role role;
};
// Only instructions that write get here, so a form may take in those that only read.
constexpr Form forms[] = {
    {0, 0xfe, 0x88, any, byte_or_operand, Role::move},
    {0, 0xfe, 0xc6, any, byte_or_operand, Role::immediate},
    {0, 0xfe, 0xa4, any, byte_or_operand, Role::string},  // movs
    {0, 0xfe, 0xaa, any, byte_or_operand, Role::string},  // stos
    {0, 0xfe, 0x86, any, byte_or_operand, Role::general}, // xchg
    {0, 0xc6, 0x00, any, byte_or_operand, Role::general}, // add, or, adc, sbb, and, sub, xor
    {0, 0xfc, 0x80, any, byte_or_operand, Role::other},   // the same with a constant; its ModRM.reg is no register
    {0, 0xfe, 0xf6, any, byte_or_operand, Role::other},   // not, neg
    {0, 0xfe, 0xfe, any, byte_or_operand, Role::other},   // inc, dec
    {0, 0xfe, 0xc0, any, byte_or_operand, Role::other},   // shifts; CL is not changed with RCX, that changes by pages
    {0, 0xfc, 0xd0, any, byte_or_operand, Role::other},
    {1, 0xff, 0x11, none | p66, vector_width, Role::vector}, // movups
    {1, 0xff, 0x11, pf3, 4, Role::vector},                   // movss
    {1, 0xff, 0x11, pf2, 8, Role::vector},
    {1, 0xfb, 0x13, none | p66, 8, Role::vector},                 // movlps, movhps
    {1, 0xfd, 0x29, none | p66, vector_width, Role::vector},      // movaps, movntps
    {1, 0xff, 0x7e, p66, four_or_eight, Role::vector},            // movd, movq
    {1, 0xff, 0x7f, p66 | pf3 | pf2, vector_width, Role::vector}, // movdqa, movdqu
    {1, 0xff, 0xd6, p66, 8, Role::vector},                        // movq
    {1, 0xff, 0xe7, p66, vector_width, Role::vector},             // movntdq
    {1, 0xf0, 0x90, any, 1, Role::other},                         // setcc
    {1, 0xff, 0xab, any, operand, Role::general},                 // bts
    {1, 0xf7, 0xb3, any, operand, Role::general},                 // btr, btc
    {1, 0xff, 0xba, any, operand, Role::other},                   // the same with a constant
    {1, 0xfe, 0xb0, any, byte_or_operand, Role::compare},         // cmpxchg
    {1, 0xfe, 0xc0, any, byte_or_operand, Role::general},         // xadd
    {1, 0xff, 0xc3, none, four_or_eight, Role::move},             // movnti
    {2, 0xff, 0xf1, none | p66, operand, Role::general},          // movbe
    {2, 0xff, 0xf8, p66, 64, Role::pointer},                      // movdir64b
    {2, 0xff, 0xf9, none, four_or_eight, Role::move},             // movdiri
    {3, 0xff, 0x14, p66, 1, Role::vector},                        // pextr
    {3, 0xff, 0x15, p66, 2, Role::vector},
    {3, 0xff, 0x16, p66, four_or_eight, Role::vector},
    {3, 0xff, 0x17, p66, 4, Role::vector},
    {3, 0xdf, 0x19, p66, 16, Role::vector}, // vextract of 128 bits
    {3, 0xdf, 0x1b, p66, 32, Role::vector}, // and of 256
};

class Decoder : Operands {
public:
	explicit Decoder(const gregset_t &registers) : Operands(registers) {}

	bool read(StoreInstruction &store)
	{
		read_opcode();
		for (const Form &form : forms)
			if (form.map == map_ && form.opcode == (opcode_ & form.mask) && form.prefixes & 1u << prefix_) {
				if ((vex_ && form.role != Role::vector) || masked_ || !read_operands(form))
					return false;
				const int base = base_ == no_register ? no_register : general_registers[base_];
				store = {address_, bytes_, is_move_, value_, at_, vector_, base};
				return true;
			}
		return false;
	}

private:
	void read_opcode()
	{
		opcode_ = byte();
		// Segments other than FS and GS mean nothing. Those two and short addresses have no form, so they are refused.
		for (;; opcode_ = byte()) {
			if (opcode_ == 0x66)
				short_operand_ = true;
			else if (opcode_ == 0xf2 || opcode_ == 0xf3)
				prefix_ = opcode_ == 0xf2 ? 3 : 2;
			else if (opcode_ != 0xf0 && (opcode_ & 0xe7) != 0x26) // LOCK; ES, CS, SS, DS
				break;
		}
		if (!prefix_)
			prefix_ = short_operand_;
		if ((opcode_ & 0xf0) == 0x40) {
			rex_ = true;
			extend(static_cast<uint8_t>(opcode_ << 5));
			wide_ = opcode_ & 8;
			opcode_ = byte();
		}
		if (opcode_ == 0xc4 || opcode_ == 0xc5 || opcode_ == 0x62) {
			const uint8_t kind = opcode_;
			const uint8_t first = byte();
			extend(static_cast<uint8_t>(~first));
			uint8_t last = first;
			map_ = 1;
			if (kind == 0xc5) {
				index_more_ = base_more_ = 0; // those bits mean something else here
			} else {
				map_ = first & (kind == 0x62 ? 7 : 0x1f);
				last = byte();
				wide_ = last & 0x80;
			}
			vex_ = true;
			prefix_ = last & 3;
			vector_bytes_ = last & 4 ? 32 : 16;
			if (kind == 0x62) {
				const uint8_t third = byte();
				vector_bytes_ = size_t{16} << (third >> 5 & 3);
				masked_ = third & 7;
				scaled_ = true;
			}
			opcode_ = byte();
		} else if (opcode_ == 0x0f) {
			opcode_ = byte();
			map_ = opcode_ == 0x38 ? 2 : opcode_ == 0x3a ? 3 : 1;
			if (map_ > 1)
				opcode_ = byte();
		}
	}

	bool read_operands(const Form &form)
	{
		const size_t operand_bytes = wide_ ? 8 : short_operand_ ? 2 : 4;
		switch (form.bytes) {
		case vector_width: bytes_ = vector_bytes_; break;
		case operand: bytes_ = operand_bytes; break;
		case byte_or_operand: bytes_ = opcode_ & 1 ? operand_bytes : 1; break;
		case four_or_eight: bytes_ = wide_ ? 8 : 4; break;
		default: bytes_ = form.bytes;
		}
		if (form.role == Role::string) {
			base_ = rdi;
			address_ = general(rdi);
			return true;
		}

		read_modrm(scaled_ ? bytes_ : 1);
		if (mod_ == 3)
			return false; // no memory

		// AH, CH, DH and BH.
		const bool high = bytes_ == 1 && !rex_ && reg_ >= 4;
		const int reg = high ? reg_ - 4 : reg_;
		is_move_ = form.role == Role::move || form.role == Role::immediate;
		if (is_move_) {
			value_ = form.role == Role::immediate ? constant(bytes_) : general(reg) >> (high ? 8 : 0);
			if (relative_)
				address_ += at_;
			return true;
		}
		if (form.bytes == vector_width && !vex_) {
			vector_ = reg;
			if (relative_)
				address_ += at_;
			return true;
		}
		if (form.role == Role::pointer) {
			const bool also_source = reg == base_ || reg == index_;
			base_ = reg;
			address_ = general(reg);
			return !also_source && reg != rsp;
		}
		const bool compare = form.role == Role::compare;
		if (base_ == reg && (form.role == Role::general || compare))
			return false;
		// With RSP as base, the next signal would go into the alias.
		return base_ != no_register && base_ != rsp && base_ != index_ && !(compare && base_ == rax);
	}

	uint8_t opcode_ = 0, map_ = 0, prefix_ = 0;
	bool short_operand_ = false, wide_ = false, rex_ = false, vex_ = false;
	bool masked_ = false; // by a register of EVEX
	bool scaled_ = false; // a displacement of one byte counts in units of the store: EVEX
	size_t vector_bytes_ = 16;

	uint64_t value_ = 0;
	size_t bytes_ = 0;
	bool is_move_ = false;
	int vector_ = -1;
};

} // namespace

bool read_store(const gregset_t &registers, StoreInstruction &store) { return Decoder(registers).read(store); }

} // namespace softhca

#endif
