// The transport contract. A transport moves bytes between two contexts and knows nothing of tags, ranks or policy.
//
// A transport opens for a context, publishes an address, connects an endpoint to a peer's address on first use, and
// offers the operations of its table. A data-path operation returns one of four Outcomes. Matching, retry, routing and
// tuning are above. A transport reports arrivals, completions and failures through one callback interface
// (TransportEvents).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pt2p.h"

#include "base/job/secret.hpp"
#include "transports/inspection.hpp"

namespace pt2p {

struct Config;
class Reporter;
class Job;
struct Topology;
class DeviceTransport;

// The result of a data-path operation. There is no error: on_peer_down reports a peer that breaks.
enum class Outcome : uint8_t {
	done,        // finished; buffers are the caller's again
	in_progress, // accepted; on_complete follows
	no_resource, // nothing happened; try again after progress
	refused,     // nothing happened, and trying again does not help: see Endpoint::refusal()
};

enum Capability : uint32_t {
	cap_send = 1u << 0,   // short messages, in order, copied before return
	cap_get = 1u << 1,    // read a peer's memory
	cap_put = 1u << 2,    // write a peer's memory
	cap_wake = 1u << 3,   // can wake a sleeping context when something arrives
	cap_atomic = 1u << 4, // change 64-bit words of a peer's memory atomically, without its processor
	cap_lossy = 1u << 5,  // what it sends may be lost, come twice, or be overtaken: datagrams, for calls only
};

enum class AtomicOperation : uint8_t { fetch_add, compare_swap };

// Memory of a peer: its address there, and the key from the peer's transport.
struct RemoteMemory {
	uint64_t address;
	uint64_t key;
};

// Contiguous bytes to read.
struct Run {
	void *local;
	RemoteMemory from;
	size_t length;
};

// Why an operation was refused.
struct Refusal {
	pt2p_status_t status = PT2P_ERR_SYSTEM;
	std::string reason;
};

struct Endpoint;

// How soon a program that only sends polls for completions.
struct SendPacing {
	int32_t sends_until_poll = 0;
	// A transport measures a latency: progress() should be called soon, although no call waits for it.
	void look_soon() { sends_until_poll = std::min(sends_until_poll, soon); }
	static constexpr int32_t soon = 4; // sends
};

// The callbacks of a transport to the layer above. They are made from progress() or a data-path call, and never
// concurrently for one context.
class TransportEvents {
public:
	// A message from `peer`. `id` and `header` are the sender's; `data` is valid only during the call.
	virtual void on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length) = 0;
	// The same for a datagram of a transport with cap_lossy.
	virtual void on_datagram(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
	{
		(void)peer, (void)id, (void)header, (void)data, (void)length;
	}
	// A datagram without payload, see TransportTable::send_immediate. The transport does not know the sender.
	virtual void on_immediate(uint32_t data) { (void)data; }
	// A get, put or atomic that returned in_progress has finished with `status`. The callback may come before that
	// return. `reason` says why it failed, if the transport knows.
	virtual void on_complete(void *operation, pt2p_status_t status, std::string_view reason = {}) = 0;
	// No communication with `peer` is possible any more; `reason` says why. May come more than once.
	virtual void on_peer_down(int peer, pt2p_status_t status, std::string_view reason) = 0;
	// `peer` has called notify_connect_failure: it cannot connect to this rank, because it lacks what `status` says.
	virtual void on_connect_failure(int peer, pt2p_status_t status) { (void)peer, (void)status; }
	// `peer` cannot be connected for now, because one side lacks something, and nothing for it was sent. What waits for
	// it fails; the next send tries again.
	virtual void on_refused(int peer, pt2p_status_t status, std::string_view reason)
	{
		(void)peer, (void)status, (void)reason;
	}
	// The limits of the endpoint to `peer` have changed.
	virtual void on_limits_changed(int peer) { (void)peer; }
	SendPacing &pacing;

protected:
	explicit TransportEvents(SendPacing &p) : pacing(p) {}
	~TransportEvents() = default;
};

// Finds the addresses that other ranks have published.
class AddressBook {
public:
	// The address of the transport of that name on `rank`; empty: it has none. False: the rank has published nothing
	// yet. Throws Error if the rank is gone.
	virtual bool find_address(int rank, const char *transport, std::string &address) = 0;

protected:
	~AddressBook() = default;
};

// What a transport gets when it opens. Everything here outlives it.
struct TransportEnvironment {
	const Config &config;
	const Topology &topology;
	Reporter &reporter;
	Job &job; // ranks and nodes; addresses are found through `addresses`
	TransportEvents &events;
	AddressBook &addresses;
	// What the transports over one device share; the first that opens makes it.
	std::shared_ptr<std::weak_ptr<void>> device = std::make_shared<std::weak_ptr<void>>();
};

class Transport;

// One constant table per transport. An operation that it does not offer is null, and its capability bit is clear;
// check_table() checks this.
struct TransportTable {
	const char *name;
	uint32_t capabilities;

	// Opens the transport. Null: it has nothing to offer here, `why_not` says why. Throws Error if it was asked for and
	// cannot work.
	std::unique_ptr<Transport> (*open)(const TransportEnvironment &environment, std::string &why_not);

	// Sends header and payload to the peer. The payload (at most endpoint.max_send bytes) is copied before return.
	// Messages of one endpoint arrive in order, unless the transport is lossy.
	Outcome (*send)(Endpoint &endpoint, uint8_t id, uint64_t header, const void *data, size_t length);
	// Reads `length` bytes of the peer's memory into `local`; `operation` is passed to on_complete. Gets, puts and
	// atomics may overtake each other. A put has finished when its bytes are in the peer's memory.
	Outcome (*get)(Endpoint &endpoint, void *local, RemoteMemory from, size_t length, void *operation);
	// Writes `length` bytes from `local` to the peer's memory.
	Outcome (*put)(Endpoint &endpoint, const void *local, RemoteMemory to, size_t length, void *operation);
	// Changes the aligned 64-bit word `at`: adds `operand`, or replaces `compare` by `operand`. `*result` gets the
	// previous value. Atomic towards other atomics of this transport.
	Outcome (*atomic)(Endpoint &endpoint, AtomicOperation what, RemoteMemory at, uint64_t operand, uint64_t compare,
	                  uint64_t *result, void *operation);
	// Delivers what has arrived and advances what is in progress; returns how many events it handled. May be null.
	unsigned (*progress)(Transport &transport);
	// Reads up to max_runs short runs within the call, cheaper than a get of each; returns as get does. Null: not
	// offered.
	Outcome (*get_runs)(Endpoint &endpoint, const Run *runs, size_t count, void *operation) = nullptr;
	static constexpr size_t max_runs = 128;
	// The minimum over all ranks of max_send, bytes. A rank may forward a message by a transport that is not open
	// everywhere, so it has to fit. Null: no limit.
	size_t (*longest_message)(const Config &config) = nullptr;
	// Sends a datagram without payload: 32 bits of immediate data. It costs the device less than any other. Null: not
	// offered.
	Outcome (*send_immediate)(Endpoint &endpoint, uint32_t data) = nullptr;
};

// The connection to one peer. Transports derive from it; the layers above read only these fields.
struct Endpoint {
	const TransportTable *table;   // of the transport that made it
	int peer;                      // rank at the other end
	uint32_t capabilities;         // those of the table that work with this peer
	size_t max_send;               // longest payload of one send, bytes
	size_t max_unasked = SIZE_MAX; // longest payload to send without asking the receiver first, bytes
	// Longest piece, and longest eager message that waits when there are no resources, bytes. A longer eager message,
	// or one above PT2P_EAGER_MAX, is announced instead.
	size_t max_in_stream = SIZE_MAX;
	unsigned eager_factor = 1; // eager messages may be so many times PT2P_EAGER_MAX long
	unsigned max_lanes = 1;    // see lane()
	size_t longest_piece() const { return std::min(max_send, max_in_stream); }
	virtual ~Endpoint() = default;
	// A further endpoint to the same peer, for messages alone, by number from 1. They have order among themselves, and
	// wait for no message of another lane. Connects on first use; null: it is not connected now.
	virtual Endpoint *lane(unsigned number) { return (void)number, nullptr; }
	// The endpoint for gets, puts and atomics with this peer if its messages are forwarded. Connects on first use.
	virtual Endpoint &direct() { return *this; }
	// Why the last get, put or atomic was refused.
	virtual Refusal refusal() const { return {}; }
	// Whether what it has accepted arrives even if this rank's program makes no further call. Otherwise it asks for
	// what is missing.
	virtual bool settle() { return true; }
};

class Transport : public Inspection {
public:
	virtual const TransportTable &table() const = 0;
	// The part of the contract for devices; null for other transports.
	virtual DeviceTransport *as_device() { return nullptr; }
	// What a peer needs to connect; published through the job.
	virtual std::string address() = 0;
	// Whether a peer with this address can be reached; if not, `why_not` says why.
	virtual bool reaches(int peer, std::string_view address, std::string &why_not) = 0;
	// Connects. The endpoint lives as long as the transport. Throws Error.
	virtual Endpoint &connect(int peer, std::string_view address) = 0;
	// Tells a peer that this rank cannot connect to it. Needs none of the resources that were lacking; call it once per
	// failure. False: it is not possible.
	virtual bool notify_connect_failure(int peer, std::string_view address) { return (void)peer, (void)address, false; }
	// The layer above has given up `peer`: finish what is in progress with it and call on_peer_down.
	virtual void abandon(int, pt2p_status_t, const std::string &) {}
	// A peer that is down gets forgotten, as its rank will be somebody else; its endpoints end. may_forget: nothing
	// refers to it any more. Where nothing is known of a peer, there is nothing to forget.
	virtual bool may_forget(int peer) { return (void)peer, true; }
	virtual void forget_peer(int peer) { (void)peer; }
	// Whether everything that was accepted has arrived, at peers that still exist. No further sends follow. Called
	// until it returns true, with progress in between.
	virtual bool settle() { return true; }
	// Tells the peers that this rank has left.
	virtual void leave() {}

	// Slow checks, such as signs of life of the peers. Called every few milliseconds while a call waits.
	virtual void check() {}
	// Makes sure that whatever arrives from now on wakes a sleeper on wake_word(). False: something has arrived
	// already, so do not sleep.
	virtual bool arm() { return false; }
	// Undoes arm() when the last sleeper is awake.
	virtual void disarm() {}
	// Futex word that peers change and wake while armed; null without cap_wake.
	virtual uint32_t *wake_word() { return nullptr; }
	// Descriptor that becomes readable when something arrives after arm(); -1: none. The same for all transports of a
	// device.
	virtual int wake_fd() { return -1; }

	// Exposes memory of this rank to get, put and atomic of all peers, until withdraw(). `key` goes with its address.
	// Null: refused, `why_not` says why. Transports without keys return anything but null.
	virtual void *expose(void *memory, size_t length, uint64_t &key, std::string &why_not)
	{
		(void)memory, (void)length, (void)why_not;
		key = 0;
		return this;
	}
	virtual void withdraw(void *exposure) { (void)exposure; }
};

// Every transport of this build, in order of preference; null ends the list.
extern const TransportTable *const transport_tables[];

// Throws Error(PT2P_ERR_INTERNAL) if a table's capabilities and operations disagree.
void check_table(const TransportTable &table);

// The blob that a rank publishes holds the address of each of its transports; an empty string: none.
void add_address_part(std::string &blob, const char *name, const std::string &part);
std::string address_part(std::string_view blob, std::string_view name);
// The rank's secret is one part. Throws Error(PT2P_ERR_UNREACHABLE) if it is missing.
void add_secret(std::string &blob, const Secret &secret);
Secret secret_in(std::string_view blob);

} // namespace pt2p
