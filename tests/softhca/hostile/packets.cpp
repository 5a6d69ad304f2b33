// Packets that no device would send.
#include <algorithm>
#include <cstring>
#include <vector>

#include "softhca/nic/packet.hpp"
#include "softhca/wire/wire.hpp"
#include "tests/softhca/hostile/round.hpp"

namespace hostile {

using namespace softhca;

void fuzz_packets(Round &round, Wire &wire)
{
	ibv_qp *targets[] = {round.one,       round.other, round.shared, round.shared,
	                     round.datagrams, round.dct,   round.dct,    round.dci};
	constexpr uint32_t lengths[] = {0, 1, 8, 255, 256, 257, 4095, 4096};
	static uint32_t psn = 0; // often the one that is expected
	for (uint32_t n = 1 + random_below(30); n; --n) {
		ibv_qp *to = one_of(targets);
		std::vector<uint8_t> bytes(sizeof(Packet) + max_mtu);
		Packet p{};
		p.kind = static_cast<PacketKind>(random_below(sometimes(10) ? 256 : 10));
		p.flags = static_cast<uint8_t>(engine());
		if (sometimes(2))
			p.flags |= packet_first | packet_last;
		p.reason = static_cast<Refusal>(random_below(sometimes(10) ? 256 : 6));
		p.timer = static_cast<uint8_t>(sometimes(4) ? engine() : 1);
		p.source_lid = p.destination_lid = round.lid;
		p.destination = to->qp_num;
		p.source = to == round.one     ? round.other->qp_num
		           : to == round.other ? round.one->qp_num
		                               : Round::hostile_number;
		psn = sometimes(20) ? 0 : psn + random_below(2);
		p.psn = sometimes(5) ? static_cast<uint32_t>(random_word()) : sometimes(2) ? psn : random_below(4);
		p.immediate = static_cast<uint32_t>(random_word());
		p.remote_address = round.arena.address();
		p.remote_key = round.arena.key();
		p.key = to == round.dct ? dc_key : 0x11;
		p.operand = random_below(3);
		p.compare = random_below(3);
		p.connection = random_below(3);
		p.payload = sometimes(20) ? static_cast<uint32_t>(random_word()) : one_of(lengths);
		p.length = sometimes(10)  ? static_cast<uint32_t>(random_word())
		           : sometimes(3) ? p.payload + random_below(9000)
		                          : p.payload;
		std::memcpy(bytes.data(), &p, sizeof p);
		for (size_t i = sizeof p; i < sizeof p + 64; ++i)
			bytes[i] = static_cast<uint8_t>(engine());
		if (sometimes(4))
			for (uint32_t flips = 1 + random_below(3); flips; --flips)
				bytes[random_below(sizeof p)] ^= static_cast<uint8_t>(1u << random_below(8));
		size_t size = sizeof p + std::min<size_t>(p.payload, max_mtu);
		if (sometimes(8))
			size = 1 + random_below(static_cast<uint32_t>(bytes.size()));
		uint8_t *frame;
		const unsigned slot = to->qp_num >> 14;
		while (wire.begin(slot, size, frame) == Wire::Room::full)
			round.poll(1);
		std::memcpy(frame, bytes.data(), size);
		wire.end();
	}
	// Packets that the device sends to this process are dropped.
	while (!wire.front().empty())
		wire.pop();
}

} // namespace hostile
