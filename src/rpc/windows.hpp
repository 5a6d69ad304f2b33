// Memory that one side of a call lends to the other until the call has ended: the caller's windows, and inputs and
// replies that are too long to be sent in pieces. The other side moves the bytes by one-sided operations. Short windows
// are carried instead: the server has a copy, and the messages of the call bring what is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/memory/pool.hpp"
#include "message/engine.hpp"
#include "onesided/onesided.hpp"
#include "rpc/storage.hpp"
#include "rpc/wire.hpp"

namespace pt2p::rpc {

using onesided::LentMemory;

// Inputs and replies from here on are lent, bytes.
constexpr size_t lent_from = size_t{64} << 10;

// Windows up to here are carried, bytes.
constexpr size_t longest_carried = 8192;

// What a caller lends.
enum Window : unsigned { input_window, give_window, take_window, window_count };
constexpr unsigned carried_bit = 1u << window_count; // of CallHead::windows

// Memory of this rank that a peer may reach.
struct Lent {
	onesided::Memory *memory[window_count] = {};
};

// Memory of a peer that this rank may reach, and its transfers.
struct Reach {
	LentMemory lent[window_count] = {};
	onesided::Remote *remote[window_count] = {}; // once it was needed
	unsigned char *copy[window_count] = {};      // of windows that are carried, in `copies`
	Storage copies;
	Storage reply; // the reply, if it is not in the room that the handler got: transfers may use that
	bool has_reply = false;
	std::vector<Pushed> pushed;              // parts of take_window's copy that the caller does not have yet
	std::vector<pt2p_request_t *> transfers; // whose end nobody but the call waits for
	pt2p_status_t failure = PT2P_OK;         // of one of these

	// Whether the reply has to tell more than the handler says.
	bool has_results() const { return failure != PT2P_OK || !pushed.empty(); }
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
	// Makes room for copies of windows. Throws std::bad_alloc.
	void carry(Reach &reach, Carried lengths);
	// Starts to move bytes between the peer's memory and this rank's. Without `req` the call waits for its end. Offset
	// and length have been checked.
	pt2p_status_t get(Reach &reach, Window window, int peer, void *to, size_t offset, size_t length,
	                  pt2p_request_t **req);
	pt2p_status_t put(Reach &reach, Window window, int peer, const void *from, size_t offset, size_t length,
	                  pt2p_request_t **req);
	// Room for the reply. Throws std::bad_alloc.
	unsigned char *take_reply(Reach &reach, size_t length)
	{
		unsigned char *const reply = reach.reply.take(buffers_, length);
		reach.has_reply = true;
		return reply;
	}
	// A transfer that has ended at once.
	void end_at_once(const char *name, int peer, size_t offset, size_t length, pt2p_request_t **req);
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
	BufferPool buffers_;
};

} // namespace pt2p::rpc
