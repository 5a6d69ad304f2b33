// Messages by WRITE: asking for rings, offering them, reading them, telling how far. See ring.hpp.
#include <cstring>

#include "base/config/config.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

namespace {

constexpr unsigned ring_burst = 32;                    // messages, then the other rings
constexpr uint32_t worth_a_ring = 256, ask_again = 16, never = UINT32_C(1) << 30; // messages

} // namespace

// The values of PT2P_NET_DELIVERY and those of the call are the same.
void Net::set_delivery(Peer &peer, pt2p_delivery_t delivery)
{
	OutgoingRing &ring = peer.ring;
	const bool always = delivery == PT2P_DELIVERY_WRITE, wanted = always || delivery == PT2P_DELIVERY_AUTO;
	ring.wanted_for = wanted ? static_cast<int64_t>(config().net_ring_slot_bytes - sizeof(RingTrailer)) : -1;
	// At the first message, or when there have been many; and again later.
	ring.ask_every = always ? ask_again : wanted ? worth_a_ring : never;
	ring.due = peer.next_sequence + (always ? 0 : ring.ask_every);
	ring.use(wanted && !peer.down, peer.next_sequence);
	peer.max_unasked = delivery == PT2P_DELIVERY_READ ? 0 : SIZE_MAX;
}

// Takes note of how much has been read. False while the reader sleeps.
bool Net::look_at_ring(Peer &peer)
{
	const auto *word = reinterpret_cast<uint64_t *>(told_.at(peer.ring.told * sizeof(uint64_t)));
	const uint64_t told = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	const auto read = static_cast<uint32_t>(told);
	// Never back, and never beyond what was sent, whatever is written there.
	if (static_cast<int32_t>(read - peer.ring.read) > 0 && static_cast<int32_t>(peer.ring.sent - read) >= 0)
		peer.ring.read = read;
	return !(told & ring_asleep);
}

void Net::ask_for_ring(Peer &peer)
{
	SendQueue *queue = peer.acquire();
	if (peer.ring.told == Places::none)
		peer.ring.told = free_told_.take();
	if (!queue || peer.ring.told == Places::none)
		return; // later
	auto *word = reinterpret_cast<uint64_t *>(told_.at(peer.ring.told * sizeof(uint64_t)));
	*word = 0;
	const RingRequest request{reinterpret_cast<uintptr_t>(word), told_.remote_key(), 0};
	queue->send(peer, id_ring_request, 0, &request, sizeof request);
}

void Net::on_ring_request(Peer &peer, const RingRequest &request)
{
	RingOffer offer{};
	if (!peer.incoming && ringing_.size() < static_cast<size_t>(config().net_rings)) {
		try {
			peer.incoming = std::make_unique<IncomingRing>(*device_, static_cast<uint32_t>(config().net_ring_slots),
			                                               static_cast<uint32_t>(config().net_ring_slot_bytes),
			                                               environment_.topology.numa_node, request);
			ringing_.push_back(&peer);
		} catch (const Error &e) {
			reporter().log(LogLevel::debug, "no ring for rank %d: %s", peer.peer, e.what());
		}
	}
	// No room for the offer: it is asked for again, and made again.
	if (peer.incoming)
		offer = peer.incoming->offer();
	if (SendQueue *queue = peer.acquire())
		queue->send(peer, id_ring_offer, 0, &offer, sizeof offer);
}

void Net::on_ring_offer(Peer &peer, const RingOffer &offer)
{
	if (!offer.slots || peer.ring.slots || peer.ring.told == Places::none)
		return;
	if ((offer.slots & (offer.slots - 1)) || offer.slot_bytes <= sizeof(RingTrailer) || offer.slot_bytes > message_bytes_)
		return take_down(peer, PT2P_ERR_PROTOCOL, 
		                 format("it offered a ring of %u slots of %u bytes; slots are a power of two, and have 25 to %zu bytes here",
		                        offer.slots, offer.slot_bytes, message_bytes_));
	peer.ring.address = offer.address;
	peer.ring.key = offer.key;
	peer.ring.slots = offer.slots;
	peer.ring.slot_bytes = offer.slot_bytes;
	peer.ring.use(peer.ring.wanted_for >= 0, peer.next_sequence);
}

unsigned Net::read_rings()
{
	unsigned n = 0;
	for (size_t i = 0; i < ringing_.size(); ++i) { // may get shorter
		Peer &peer = *ringing_[i];
		n += read_ring(peer, ring_burst);
	}
	return n;
}

// Delivers what is there and has its turn.
unsigned Net::read_ring(Peer &peer, unsigned most)
{
	unsigned n = 0;
	IncomingRing &ring = *peer.incoming;
	uint32_t &expected = expected_[static_cast<size_t>(peer.peer)].sequence;
	while (const RingTrailer *there = n < most && !peer.down ? ring.next() : nullptr) {
		RingTrailer t;
		std::memcpy(&t, there, sizeof t);
		if (t.header.sequence != expected)
			break; // one that was sent before has its completion still to be read
		if (t.length > ring.most() || t.header.rank() != peer.peer) {
			take_down(peer, PT2P_ERR_PROTOCOL,
			          format("a message in its ring is from rank %d and has %u bytes, at most %u fit", t.header.rank(), t.length,
			                 ring.most()));
			break;
		}
		++expected;
		++n;
		deliver(t.header, ring.payload(t.length), t.length);
		ring.pop();
	}
	if (n && !held_.empty())
		deliver_held(peer.peer);
	if (n && ring.owes())
		tell_read(peer);
	return n;
}

// False when there is no room to tell it now.
bool Net::tell_read(Peer &peer, uint64_t flags)
{
	SendQueue *queue = peer.acquire();
	if (!queue)
		return false;
	queue->tell(peer, peer.incoming->tell(), peer.incoming->read() | flags);
	peer.incoming->told();
	return true;
}

} // namespace pt2p::verbs
