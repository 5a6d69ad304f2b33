#include "transports/verbs/message/write_rings.hpp"

#include <cstring>

#include "base/config/config.hpp"
#include "base/report/report.hpp"

namespace pt2p::verbs {

namespace {

constexpr uint32_t worth_a_ring = 256, ask_again = 16, never = UINT32_C(1) << 30; // messages

} // namespace

WriteRings::WriteRings(const Device &device, const Config &config, EagerSender &sender, Reporter &reporter,
                       int numa_node)
    : device_(device), config_(config), sender_(sender), reporter_(reporter), numa_node_(numa_node),
      consumer_indices_(device, max_outgoing * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                        numa_node)
{
	free_indices_.fill(max_outgoing);
}

// PT2P_NET_DELIVERY and the call have the same values.
void WriteRings::set_delivery(NetPeer &peer, pt2p_delivery_t delivery) const
{
	OutgoingWriteRing &ring = peer.ring;
	const bool always = delivery == PT2P_DELIVERY_WRITE, wanted = always || delivery == PT2P_DELIVERY_AUTO;
	ring.wanted_for = wanted ? static_cast<int64_t>(config_.net_ring_slot_bytes - sizeof(RingTrailer)) : -1;
	// The first request is due with the first message, or after many; later ones follow.
	ring.ask_every = always ? ask_again : wanted ? worth_a_ring : never;
	ring.due = static_cast<uint32_t>(peer.next_sequence) + (always ? 0 : ring.ask_every);
	ring.use(wanted && !peer.down, static_cast<uint32_t>(peer.next_sequence));
	peer.max_unasked = delivery == PT2P_DELIVERY_READ ? 0 : SIZE_MAX;
}

WriteRings::Override::Override(WriteRings &rings, NetPeer &peer, pt2p_delivery_t delivery)
    : peer_(peer), max_payload_(peer.ring.max_payload), due_(peer.ring.due)
{
	OutgoingWriteRing &ring = peer.ring;
	const auto sequence = static_cast<uint32_t>(peer.next_sequence);
	const bool write = delivery == PT2P_DELIVERY_WRITE;
	if (write && !ring.slots && sequence % ask_again == 0)
		rings.ask(peer);
	ring.use(write && !peer.down, sequence);
	if (ring.max_payload < 0)
		ring.due = sequence + never;
}

WriteRings::Override::~Override()
{
	if (peer_.down)
		return;
	peer_.ring.max_payload = max_payload_;
	peer_.ring.due = due_;
}

void WriteRings::ask(NetPeer &peer)
{
	SendQueue *queue = peer.acquire();
	if (!peer.ring.consumer_index)
		if (const uint32_t place = free_indices_.take(); place != FreeList::none)
			peer.ring.consumer_index = reinterpret_cast<uint64_t *>(consumer_indices_.at(place * sizeof(uint64_t)));
	if (!queue || !peer.ring.consumer_index)
		return; // later
	*peer.ring.consumer_index = 0;
	const RingRequest request{reinterpret_cast<uintptr_t>(peer.ring.consumer_index), consumer_indices_.remote_key(), 0};
	sender_.send(*queue, peer, id_ring_request, 0, &request, sizeof request);
}

void WriteRings::on_request(NetPeer &peer, const RingRequest &request)
{
	RingOffer offer{};
	if (!peer.incoming && incoming_.size() < static_cast<size_t>(config_.net_rings)) {
		try {
			peer.incoming = std::make_unique<IncomingWriteRing>(device_, static_cast<uint32_t>(config_.net_ring_slots),
			                                                    static_cast<uint32_t>(config_.net_ring_slot_bytes),
			                                                    numa_node_, request);
			incoming_.push_back(&peer);
		} catch (const Error &e) {
			reporter_.log(LogLevel::debug, "no ring for rank %d: %s", peer.peer, e.what());
		}
	}
	// If the offer cannot be sent, the peer requests again and gets the same offer.
	if (peer.incoming)
		offer = peer.incoming->offer();
	if (SendQueue *queue = peer.acquire())
		sender_.send(*queue, peer, id_ring_offer, 0, &offer, sizeof offer);
}

std::string WriteRings::on_offer(NetPeer &peer, const RingOffer &offer) const
{
	if (!offer.slots || peer.ring.slots || !peer.ring.consumer_index)
		return {};
	const auto max_bytes = static_cast<size_t>(config_.net_message_bytes);
	if ((offer.slots & (offer.slots - 1)) || offer.slot_bytes <= sizeof(RingTrailer) || offer.slot_bytes > max_bytes)
		return format(
		    "it offered a ring of %u slots of %u bytes; slots are a power of two, and have 25 to %zu bytes here",
		    offer.slots, offer.slot_bytes, max_bytes);
	peer.ring.address = offer.address;
	peer.ring.key = offer.key;
	peer.ring.slots = offer.slots;
	peer.ring.slot_bytes = offer.slot_bytes;
	peer.ring.use(peer.ring.wanted_for >= 0, static_cast<uint32_t>(peer.next_sequence));
	return {};
}

bool WriteRings::report_read(NetPeer &peer, uint64_t flags) const
{
	SendQueue *queue = peer.acquire();
	if (!queue)
		return false;
	WorkRequest &request = queue->next(peer, Kind::consumer_index, sizeof(uint64_t));
	const uint64_t word = peer.incoming->read() | flags;
	std::memcpy(request.bytes, &word, sizeof word);
	request.remote_address = peer.incoming->sender().consumer_index_at;
	request.remote_key = peer.incoming->sender().key;
	queue->submit(false);
	peer.incoming->reported();
	return true;
}

bool WriteRings::report_asleep() const
{
	bool any = false;
	for (NetPeer *peer : incoming_)
		any |= report_read(*peer, ring_asleep);
	return any;
}

void WriteRings::report_awake() const
{
	for (NetPeer *peer : incoming_)
		report_read(*peer);
}

} // namespace pt2p::verbs
