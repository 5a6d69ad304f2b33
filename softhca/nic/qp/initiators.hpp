// A DC target's initiators: each that is connected has a responder of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "softhca/nic/packet.hpp"
#include "softhca/nic/qp/responder.hpp"

namespace softhca {

class Nic;
struct Qp;

struct Initiators {
	explicit Initiators(Qp &qp) : qp_(qp) {}

	uint64_t access_key = 0;
	std::map<uint64_t, std::unique_ptr<Responder>> connected; // by LID and number
	std::map<uint64_t, uint32_t> left;                        // connections of initiators that have left, by the same

	// A packet for the target.
	void handle(Nic &nic, const Packet &packet, const uint8_t *payload);
	void clear()
	{
		connected.clear();
		left.clear();
	}

private:
	void disconnect(Nic &nic, uint64_t from);
	bool may_connect(uint64_t from, const Packet &packet) const;
	void refuse(Nic &nic, const Packet &packet);
	Responder &connect(Nic &nic, uint64_t from, const Packet &packet);
	void forget_dead(Nic &nic);

	Qp &qp_;
};

} // namespace softhca
