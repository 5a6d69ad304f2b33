// What shares the engine's channels, requests and turns without being a two-sided message: the one-sided layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "pt2p.h"

namespace pt2p {

class Extension {
public:
	// Its message ids. A transport's operation is its when this bit is set in the number that names it: numbers of requests
	// never have it, as an index does not get that far (see HandlePool).
	static constexpr uint8_t first_id = 0x40, last_id = 0x5f;
	static constexpr uint64_t operation_bit = UINT64_C(1) << 31;

	// A message of `peer`, which is not known to be lost. Null, or what is wrong with it: the peer is then given up.
	virtual const char *on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length) = 0;
	virtual void on_complete(uint64_t operation, pt2p_status_t status, std::string_view reason) = 0;
	// Told once for each peer.
	virtual void on_peer_down(int peer, pt2p_status_t status) = 0;
	// What waits for this peer, or is asked of it, fails; what follows may go.
	virtual void on_refused(int peer, pt2p_status_t status, std::string_view reason) = 0;
	// Sends what had to wait; called in each turn while has_work().
	virtual unsigned drive() = 0;
	virtual bool has_work() const = 0;
	// Whether something is on its way that pt2p_finalize has to see to its end.
	virtual bool pending() const = 0;
	// Lines on what is pending, each with two blanks before and a newline behind; for reports.
	virtual std::string pending_text() const = 0;

protected:
	~Extension() = default;
};

} // namespace pt2p
