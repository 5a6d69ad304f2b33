// SPDX-License-Identifier: BSD-3-Clause
// Forged one-sided operations of rank 0 on memory of rank 1.
#include "tests/fuzz/pair.hpp"

#include <cstring>

#include "onesided/wire.hpp"

namespace fuzz {

void Pair::forge_one_sided(Input &in)
{
	using namespace onesided;
	unsigned char payload[512];
	std::memset(payload, in.byte(), sizeof payload);
	const auto near = [&](uint64_t right) {
		const uint8_t how = in.byte();
		return how < 160 ? right : how < 200 ? right + in.byte() - 128 : any_number(in);
	};
	const auto memory = [&] { return near(reinterpret_cast<uint64_t>(mem_)); };
	const auto offset = [&] { return near(in.byte() % (shared_bytes / 8) * 8); };
	const auto tell = [&](uint8_t id, uint64_t header, size_t length) {
		ctx_[1]->engine->on_message(0, id, header, payload, in.byte() < 8 ? in.number(2) % sizeof payload : length);
	};
	switch (in.byte() % 8) {
	case 0:
	case 1: {
		const uint64_t whole = in.byte() % 160;
		const PutHead head{memory(), offset(), near(whole), memory(), offset(), any_number(in), near(in.byte() % 3)};
		std::memcpy(payload, &head, sizeof head);
		return tell(id_put, 7, sizeof head + whole);
	}
	case 2: {
		const PutHead head{memory(), offset(), near(in.number(2) % 700), memory(), offset(), 1, in.byte() % 3u};
		std::memcpy(payload, &head, sizeof head);
		return tell(id_put, 7, sizeof head);
	}
	case 3: return tell(id_piece, near(7), in.number(2) % sizeof payload);
	case 4: {
		const GetHead head{memory(), offset(), near(in.number(2) % 700)};
		std::memcpy(payload, &head, sizeof head);
		return tell(id_get, 7, sizeof head);
	}
	case 5: {
		const AtomicHead head{memory(),
		                      offset(),
		                      any_number(in),
		                      any_number(in),
		                      static_cast<uint32_t>(near(in.byte() % 3)),
		                      static_cast<uint32_t>(near(in.byte() % 2 ? 4 : 8))};
		std::memcpy(payload, &head, sizeof head);
		return tell(id_atomic, 7, sizeof head);
	}
	case 6: {
		const Result result{any_number(in), static_cast<uint32_t>(near(PT2P_OK)), 0};
		std::memcpy(payload, &result, sizeof result);
		return tell(id_result, any_number(in), sizeof result);
	}
	default: return tell(id_data, any_number(in), in.number(2) % sizeof payload);
	}
}

} // namespace fuzz
