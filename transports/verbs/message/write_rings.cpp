#include "transports/verbs/message/write_rings.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/config/config.hpp"
#include "base/report/report.hpp"

namespace pt2p::verbs {

namespace {

// Messages. The last: to the next try, if there was no room for a request.
constexpr uint32_t worth_a_ring = 256, ask_again = 16, never = UINT32_C(1) << 30, try_again = 4;

uint32_t share_of(int64_t rings, int sharers)
{
	return static_cast<uint32_t>(rings ? std::max<int64_t>(rings / sharers, 1) : 0);
}

} // namespace

WriteRings::WriteRings(const Device &device, const Config &config, EagerSender &sender, Reporter &reporter,
                       int numa_node)
    : config_(config), sender_(sender), reporter_(reporter), automatic_(device.writes_in_order),
      max_rings_(share_of(config.net_rings, device.sharers)),
      memory_(device, static_cast<size_t>(config.net_ring_slots * config.net_ring_slot_bytes), max_rings_, numa_node),
      consumer_indices_(device, max_outgoing * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                        numa_node),
      left_(tune::Grants::period(max_rings_))
{
	free_indices_.fill(max_outgoing);
}

// PT2P_NET_DELIVERY and the call have the same values.
void WriteRings::set_delivery(NetPeer &peer, pt2p_delivery_t delivery) const
{
	OutgoingWriteRing &ring = peer.ring;
	const bool always = delivery == PT2P_DELIVERY_WRITE,
	           wanted = always || (delivery == PT2P_DELIVERY_AUTO && automatic_);
	ring.wanted_for = wanted ? static_cast<int64_t>(config_.net_ring_slot_bytes - sizeof(RingTrailer)) : -1;
	// The first request is due with the first message, or after many; later ones follow.
	ring.may_send_bundles = !always;
	ring.ask_every = always ? ask_again : wanted ? worth_a_ring : never;
	ring.due = static_cast<uint32_t>(peer.next_sequence) + (always ? 0 : ring.ask_every);
	ring.use(wanted && !peer.down, static_cast<uint32_t>(peer.next_sequence));
	peer.max_unasked = delivery == PT2P_DELIVERY_READ ? 0 : SIZE_MAX;
}

WriteRings::Override::Override(WriteRings &rings, NetPeer &peer, pt2p_delivery_t delivery)
    : peer_(peer), max_payload_(peer.ring.max_payload), due_(peer.ring.due),
      may_send_bundles_(std::exchange(peer.ring.may_send_bundles, delivery != PT2P_DELIVERY_WRITE))
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
	peer_.ring.may_send_bundles = may_send_bundles_;
}

void WriteRings::ask(NetPeer &peer)
{
	if (peer.ring.returning)
		return; // later
	SendQueue *queue = peer.acquire();
	if (!peer.ring.consumer_index)
		if (const uint32_t place = free_indices_.take(); place != FreeList::none)
			peer.ring.consumer_index = reinterpret_cast<uint64_t *>(consumer_indices_.at(place * sizeof(uint64_t)));
	// A stream keeps the queue full, so a fixed number of messages later it may be full again.
	if (!queue && peer.ring.ask_every != never)
		peer.ring.due = static_cast<uint32_t>(peer.next_sequence) + try_again;
	if (!queue || !peer.ring.consumer_index)
		return;
	*peer.ring.consumer_index = peer.ring.sent;
	const RingRequest request{reinterpret_cast<uintptr_t>(peer.ring.consumer_index), consumer_indices_.remote_key(),
	                          peer.ring.sent};
	sender_.send(*queue, peer, id_ring_request, 0, &request, sizeof request);
}

void WriteRings::on_request(NetPeer &peer, const RingRequest &request, uint32_t sequence)
{
	if (!peer.incoming && incoming_.size() < max_rings_) {
		use_of(peer).sequence = sequence;
		make(peer, request);
	} else if (!peer.incoming || peer.incoming->retired()) {
		Use &use = use_of(peer);
		if (!use.request) {
			use.request = std::make_unique<RingRequest>();
			requesting_.push_back(&peer);
			if (!peer.incoming)
				use.sequence = sequence;
		}
		*use.request = request;
	}
	// If the offer cannot be sent, the peer requests again and gets the same offer.
	offer(peer);
}

void WriteRings::make(NetPeer &peer, const RingRequest &request)
{
	try {
		peer.incoming =
		    std::make_unique<IncomingWriteRing>(memory_.take(), static_cast<uint32_t>(config_.net_ring_slots),
		                                        static_cast<uint32_t>(config_.net_ring_slot_bytes), request);
		incoming_.push_back(&peer);
		reporter_.add(Counter::net_rings_granted);
	} catch (const Error &e) {
		reporter_.log(LogLevel::debug, "no ring for rank %d: %s", peer.peer, e.what());
	}
}

void WriteRings::offer(NetPeer &peer) const
{
	const RingOffer offer = peer.incoming && !peer.incoming->retired() ? peer.incoming->offer() : RingOffer{};
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

// ---- granting and taking back ---------------------------------------------------------------------------------------

void WriteRings::end_period(const Sequencer &sequencer)
{
	left_ = tune::Grants::period(max_rings_);
	competing_.clear();
	seen_.clear();
	const auto add = [&](NetPeer *p) {
		Use &use = use_of(*p);
		const uint32_t sequence = sequencer.from(p->peer).sequence;
		use.messages = sequence - std::exchange(use.sequence, sequence);
		if (p->incoming && p->incoming->retired())
			return;
		competing_.push_back(p);
		seen_.push_back({use.messages, p->incoming != nullptr, use.request != nullptr, use.dormant, use.behind});
	};
	std::for_each(incoming_.begin(), incoming_.end(), add);
	for (NetPeer *p : requesting_)
		if (!p->incoming)
			add(p);
	const auto &changes = grants_.decide(seen_, max_rings_, retired_);
	for (size_t i = 0; i < competing_.size(); ++i) {
		use_of(*competing_[i]).dormant = seen_[i].dormant;
		use_of(*competing_[i]).behind = seen_[i].behind;
	}
	for (const tune::Grants::Change &change : changes)
		if (change.grant)
			grant(*competing_[change.sender]);
		else
			take_back(*competing_[change.sender]);
}

void WriteRings::grant(NetPeer &peer)
{
	std::erase(requesting_, &peer);
	const std::unique_ptr<RingRequest> request = std::move(use_of(peer).request);
	make(peer, *request);
	if (peer.incoming)
		offer(peer);
}

// To the one that has sent most in the last period.
void WriteRings::grant_next()
{
	const auto most = std::max_element(requesting_.begin(), requesting_.end(), [this](NetPeer *a, NetPeer *b) {
		return use_of(*a).messages < use_of(*b).messages;
	});
	if (most != requesting_.end() && !(*most)->incoming && use_of(**most).messages)
		grant(**most);
}

// False: there is no room for the message now.
bool WriteRings::take_back(NetPeer &peer)
{
	SendQueue *queue = peer.acquire();
	if (!queue || !sender_.send(*queue, peer, id_ring_retire, 0, nullptr, 0))
		return false;
	peer.incoming->retire();
	++retired_;
	reporter_.add(Counter::net_rings_taken_back);
	if (peer.incoming->owes_report())
		report_read(peer);
	return true;
}

void WriteRings::on_retire(NetPeer &peer)
{
	if (!peer.ring.slots || peer.ring.returning)
		return;
	peer.ring.retire();
	if (!give_back(peer))
		returning_.push_back(&peer);
}

// False: not all of it has been read, or there is no room for the message.
bool WriteRings::give_back(NetPeer &peer)
{
	SendQueue *queue = peer.ring.drained() ? peer.acquire() : nullptr;
	if (!queue || !sender_.send(*queue, peer, id_ring_returned, 0, nullptr, 0))
		return false;
	peer.ring.forget(static_cast<uint32_t>(peer.next_sequence));
	return true;
}

// The ring may be in use at this moment.
void WriteRings::on_returned(NetPeer &peer)
{
	if (peer.incoming && peer.incoming->retired() &&
	    std::find(returned_.begin(), returned_.end(), &peer) == returned_.end())
		returned_.push_back(&peer);
}

void WriteRings::look_after()
{
	std::erase_if(returning_, [this](NetPeer *peer) { return give_back(*peer); });
	for (NetPeer *peer : std::exchange(returned_, {})) {
		std::erase(incoming_, peer);
		memory_.give(peer->incoming->place());
		peer->incoming.reset();
		--retired_;
		grant_next();
	}
	if (retired_)
		for (NetPeer *peer : incoming_)
			if (peer->incoming->retired() && peer->incoming->owes_report())
				report_read(*peer);
}

// Its ring's place is not given to another one: it could still write there.
void WriteRings::drop(NetPeer &peer)
{
	if (std::erase(incoming_, &peer) && peer.incoming->retired())
		--retired_;
	for (auto *list : {&requesting_, &returned_, &returning_})
		std::erase(*list, &peer);
	uses_.erase(peer.peer);
}

void WriteRings::forget(NetPeer &peer)
{
	if (peer.incoming) {
		memory_.give(peer.incoming->place());
		peer.incoming.reset();
		grant_next();
	}
	if (const uint64_t *index = std::exchange(peer.ring.consumer_index, nullptr)) {
		const auto *first = reinterpret_cast<const uint64_t *>(consumer_indices_.at(0));
		free_indices_.give(static_cast<uint32_t>(index - first));
	}
}

// ---- sleeping -------------------------------------------------------------------------------------------------------

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
