// Memory that one side of a call lends to the other until the call has ended: the caller's windows, and inputs and
// replies that are too long to be sent in pieces. The other side moves the bytes by one-sided operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/memory/pool.hpp"
#include "message/engine.hpp"
#include "onesided/onesided.hpp"

namespace pt2p::rpc {

using onesided::LentMemory;

// Inputs and replies from here on are lent, bytes.
constexpr size_t lent_from = size_t{64} << 10;

// What a caller lends.
enum Window : unsigned { input_window, give_window, take_window, window_count };

// Memory of this rank that a peer may reach.
struct Lent {
	onesided::Memory *memory[window_count] = {};
};

// Memory of a peer that this rank may reach, and its transfers.
struct Reach {
	LentMemory lent[window_count] = {};
	onesided::Remote *remote[window_count] = {}; // once it was needed
	std::vector<pt2p_request_t *> transfers;     // whose end nobody but the call waits for
	pt2p_status_t failure = PT2P_OK;             // of one of these
};

class Windows {
public:
	Windows(onesided::OneSided &onesided, Engine &engine) : onesided_(onesided), engine_(engine) {}

	void lend(Lent *&lent, Window window, const void *address, size_t length);
	// What the peer at the end of this endpoint needs to reach it.
	LentMemory describe(const Lent &lent, Window window, Endpoint &endpoint) const
	{
		return onesided_.describe(*lent.memory[window], endpoint);
	}
	// The peer reaches none of it any more.
	void take_back(Lent *&lent);

	Reach &reach() { return *reaches_.take(); }
	// Starts to move bytes between the peer's memory and this rank's. Without `req` the call waits for its end. Offset
	// and length have been checked.
	pt2p_status_t get(Reach &reach, Window window, int peer, void *to, size_t offset, size_t length,
	                  pt2p_request_t **req);
	pt2p_status_t put(Reach &reach, Window window, int peer, const void *from, size_t offset, size_t length,
	                  pt2p_request_t **req);
	// Whether transfers are in flight. Once none is, `failure` is that of all which only the call waits for.
	bool moving(Reach &reach);
	// Nothing moves any more.
	void let_go(Reach *&reach);

private:
	pt2p_status_t move(Reach &reach, Window window, int peer, onesided::OneSided::Work work, pt2p_request_t **req);

	onesided::OneSided &onesided_;
	Engine &engine_;
	Pool<Lent> lents_;
	Pool<Reach> reaches_;
};

} // namespace pt2p::rpc
