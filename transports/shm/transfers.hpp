// Gets and puts of the shm transport: on the spot, or in pieces together with the peer; see single_copy.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/shm/endpoint.hpp"
#include "transports/shm/single_copy.hpp"

namespace pt2p::shm {

class Transfers {
public:
	explicit Transfers(const TransportEnvironment &environment) : env_(environment) {}

	Outcome read_runs(const ShmEndpoint &peer, const Run *runs, size_t count, void *operation);
	Outcome transfer(ShmEndpoint &peer, void *local, uint64_t remote, size_t length, void *operation, bool write);
	// The peer asks this rank to copy along. `peers`: how many there can be.
	void help(ShmEndpoint &peer, const Help &help, size_t peers);
	// Ends all with that peer.
	void abandon(const ShmEndpoint &peer, pt2p_status_t status);

	bool busy() const { return !transfers_.empty() || !helping_.empty(); }
	// Copies some; returns how many events that were.
	unsigned progress();

private:
	// A get or put that is not finished yet.
	struct Transfer {
		ShmEndpoint *peer;
		unsigned char *local;
		uint64_t remote;
		uint64_t length;
		uint32_t piece; // bytes
		uint32_t next;  // piece, when working alone
		Claim *claim;   // null: alone
		uint32_t claim_index;
		uint32_t generation;
		bool write;
		void *operation;
	};
	struct Helping {
		ShmEndpoint *peer;
		Help help;
	};

	void share(Transfer &transfer);
	bool advance(Transfer &transfer, unsigned &moved);
	unsigned advance_all();
	unsigned help_some();
	int copy_pieces(Transfer &transfer, uint32_t first, uint32_t count);

	const TransportEnvironment &env_;
	std::vector<Transfer> transfers_;
	std::vector<Helping> helping_;
};

} // namespace pt2p::shm
