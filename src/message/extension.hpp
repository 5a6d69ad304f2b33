// A layer beside messages, as the engine sees it: it shares the engine's channels, requests and turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pt2p.h"

namespace pt2p {

// The message ids of an extension, and the bit that marks its operations in the numbers that transports name. Handles
// of requests have none of these bits, as an index is never that large (see HandlePool).
struct ExtensionRange {
	uint8_t first_id, last_id;
	uint64_t operation_bit;

	// Ids come in blocks of 32, and no two extensions share one.
	static constexpr unsigned blocks = 8;
	static constexpr unsigned block_of(uint8_t id) { return id >> 5; }
	constexpr unsigned block() const { return block_of(first_id); }
};
inline constexpr ExtensionRange one_sided_range{0x40, 0x5f, UINT64_C(1) << 31};
inline constexpr ExtensionRange calls_range{0x20, 0x2f, UINT64_C(1) << 30};
static_assert(one_sided_range.block() == ExtensionRange::block_of(one_sided_range.last_id) &&
              calls_range.block() == ExtensionRange::block_of(calls_range.last_id));

class Extension {
public:
	const ExtensionRange range;

	// A message of `peer`, which is not known to be lost. Null, or what is wrong with it: then the peer is declared
	// down.
	virtual const char *on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length) = 0;
	// The same for a datagram, which may be one that is lost, late or comes twice: then nothing happens.
	virtual void on_datagram(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
	{
		(void)peer, (void)id, (void)header, (void)data, (void)length;
	}
	virtual void on_immediate(uint32_t word) { (void)word; }
	virtual void on_complete(uint64_t operation, pt2p_status_t status, std::string_view reason) = 0;
	// Told once for each peer.
	virtual void on_peer_down(int peer, pt2p_status_t status) = 0;
	// A peer that is down gets forgotten, as its rank will be somebody else; may_forget: nothing refers to it any more.
	virtual bool may_forget(int peer) { return (void)peer, true; }
	virtual void forget_peer(int peer) { (void)peer; }
	// Operations that wait for this peer, or ask it for something, fail. Later ones can be started.
	virtual void on_refused(int peer, pt2p_status_t status, std::string_view reason) = 0;
	// Sends what had to wait; called in each turn while has_work().
	virtual unsigned drive() = 0;
	virtual bool has_work() const = 0;
	// Whether that may send more than one message, so that doorbells are worth sharing.
	virtual bool may_send_several() const { return has_work(); }
	// Called about every millisecond while ProgressClient::ticks.
	virtual void tick(int64_t now) { (void)now; }
	// Slow checks, every few milliseconds while a call waits.
	virtual void check() {}
	// A waiting call is going to sleep, until something arrives.
	virtual void before_sleep() {}
	// Whether something is in flight that pt2p_finalize has to wait for.
	virtual bool pending() const = 0;
	// Lines about what is pending, each indented by two blanks and ended by a newline; for reports.
	virtual std::string pending_text() const = 0;
	// What the program could do better, in the same form, given the vendor's number of this rank's device, 0 where it
	// is not known, and the ranks of this node; for the report.
	virtual std::string advice(uint32_t device_part, size_t local_ranks) const
	{
		return (void)device_part, (void)local_ranks, std::string();
	}

protected:
	explicit Extension(const ExtensionRange &its_range) : range(its_range) {}
	~Extension() = default;
};

using Extensions = std::vector<Extension *>;

} // namespace pt2p
