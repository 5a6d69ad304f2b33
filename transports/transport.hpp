// The transport contract: what moves bytes between two contexts and knows nothing of tags, ranks or policy.
//
// A transport opens for a context, gives an address, connects endpoints lazily from a peer's address, and offers the
// operations of its table. A data-path operation answers one of four (Outcome); matching, retry, routing and tuning
// live above. What arrives, completes or breaks is told through one callback interface (TransportEvents).
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

// What a data-path operation answers. There is no error here: a peer that breaks is told through on_peer_down.
enum class Outcome : uint8_t {
	done,        // finished; buffers are the caller's again
	in_progress, // accepted; on_complete follows
	no_resource, // nothing happened; try again after progress
	refused,     // nothing happened, and trying again will not help: Endpoint::refusal() says why
};

enum Capability : uint32_t {
	cap_send = 1u << 0,   // short messages, in order, copied before return
	cap_get = 1u << 1,    // read a peer's memory
	cap_put = 1u << 2,    // write a peer's memory
	cap_wake = 1u << 3,   // can wake a sleeping context when something arrives
	cap_atomic = 1u << 4, // change 64-bit words of a peer's memory atomically, without its processor
};

enum class AtomicOperation : uint8_t { fetch_add, compare_swap };

// Memory of a peer: where it is there, and the key that its transport gave for it.
struct RemoteMemory {
	uint64_t address;
	uint64_t key;
};

// Contiguous bytes to read: from there, to here.
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

// How soon a program that only sends lets news in.
struct SendPacing {
	int32_t sends_until_poll = 0;
	// A transport observes how long something takes: its progress() should be called soon, although nothing waits for
	// it.
	void look_soon() { sends_until_poll = std::min(sends_until_poll, soon); }
	static constexpr int32_t soon = 4; // sends
};

// What a transport tells the layer above. Called from within progress() or a data-path call, never concurrently for one
// context.
class TransportEvents {
public:
	// A message from `peer`. `id` and `header` are the sender's, `data` is valid during the call only.
	virtual void on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length) = 0;
	// A get, put or atomic that answered in_progress has finished with `status`; may come before that answer is
	// returned. `reason` says why it failed, where the transport knows.
	virtual void on_complete(void *operation, pt2p_status_t status, std::string_view reason = {}) = 0;
	// Nothing will come from or go to `peer` any more; `reason` says why. May come more than once.
	virtual void on_peer_down(int peer, pt2p_status_t status, std::string_view reason) = 0;
	// `peer` has called notify_connect_failure: it cannot connect to this rank, for lack of what `status` says.
	virtual void on_connect_failure(int peer, pt2p_status_t status) { (void)peer, (void)status; }
	// `peer` cannot be connected to for now, for lack of something here or there, and nothing that was meant for it has
	// left: whoever waits for that fails, and the next to send tries again.
	virtual void on_refused(int peer, pt2p_status_t status, std::string_view reason)
	{
		(void)peer, (void)status, (void)reason;
	}
	SendPacing &pacing;

protected:
	explicit TransportEvents(SendPacing &p) : pacing(p) {}
	~TransportEvents() = default;
};

// Finds the addresses that transports of other ranks have published.
class AddressBook {
public:
	// The address of the transport of that name on `rank`, empty when it has none there. False: that rank has published
	// nothing yet. Throws Error when the rank is gone.
	virtual bool find_address(int rank, const char *transport, std::string &address) = 0;

protected:
	~AddressBook() = default;
};

// What a transport gets to open with; all outlive it.
struct TransportEnvironment {
	const Config &config;
	const Topology &topology;
	Reporter &reporter;
	Job &job; // for who is who: addresses are found through `addresses`
	TransportEvents &events;
	AddressBook &addresses;
	// What the transports over one device share, made by the first of them that opens.
	std::shared_ptr<std::weak_ptr<void>> device = std::make_shared<std::weak_ptr<void>>();
};

class Transport;

// One constant table for each transport. An operation that is not offered is null, and its capability bit is clear:
// checked when the transport is opened.
struct TransportTable {
	const char *name;
	uint32_t capabilities;

	// Opens; throws Error when the transport is wanted but cannot work. Returns null, with the reason in `why_not`,
	// when it has nothing to offer here.
	std::unique_ptr<Transport> (*open)(const TransportEnvironment &environment, std::string &why_not);

	// Sends header and payload to the peer; the payload (at most endpoint.max_send bytes) is copied before return.
	// Messages of one endpoint arrive in order.
	Outcome (*send)(Endpoint &endpoint, uint8_t id, uint64_t header, const void *data, size_t length);
	// Reads `length` bytes of the peer's memory into `local`. `operation` is named in on_complete. Gets, puts and
	// atomics may overtake each other; a put has finished when its bytes are in the peer's memory.
	Outcome (*get)(Endpoint &endpoint, void *local, RemoteMemory from, size_t length, void *operation);
	// Writes `length` bytes from `local` to the peer's memory.
	Outcome (*put)(Endpoint &endpoint, const void *local, RemoteMemory to, size_t length, void *operation);
	// Changes the aligned 64-bit word `at`: adds `operand`, or puts `operand` where `compare` is. What was there before
	// goes to `*result`. Atomic towards the other operations of this kind on this transport.
	Outcome (*atomic)(Endpoint &endpoint, AtomicOperation what, RemoteMemory at, uint64_t operand, uint64_t compare,
	                  uint64_t *result, void *operation);
	// Delivers what has arrived and moves what is in progress; returns how many events it handled. May be null.
	unsigned (*progress)(Transport &transport);
	// Reads up to max_runs short runs within the call, for less than a get of each would cost; what it answers is as
	// for get. Null where that is not so.
	Outcome (*get_runs)(Endpoint &endpoint, const Run *runs, size_t count, void *operation) = nullptr;
	static constexpr size_t max_runs = 128;
	// What max_send of its endpoints is at least on any rank, bytes: a rank may pass on what comes by a transport that
	// is not open everywhere. Null: no limit.
	size_t (*longest_message)(const Config &config) = nullptr;
};

// A way to one peer. Transports derive from it; the layers above read only these fields.
struct Endpoint {
	const TransportTable *table;   // of the transport that made it
	int peer;                      // rank at the other end
	uint32_t capabilities;         // subset of the table's that works towards this peer
	size_t max_send;               // longest payload of one send, bytes
	size_t max_unasked = SIZE_MAX; // longest that should be sent without asking the receiver first, bytes
	virtual ~Endpoint() = default;
	// The one that gets, puts and atomics with this peer go through, when messages take another way. Connects on first
	// use.
	virtual Endpoint &direct() { return *this; }
	// Why the last get, put or atomic was refused.
	virtual Refusal refusal() const { return {}; }
	// Whether what it has accepted arrives also when this rank's program does not call in again.
	virtual bool settled() const { return true; }
};

class Transport : public Inspection {
public:
	virtual const TransportTable &table() const = 0;
	// What only transports over a device have; null for the others.
	virtual DeviceTransport *as_device() { return nullptr; }
	// Bytes that a peer needs to connect; published through the job.
	virtual std::string address() = 0;
	// Whether a peer with this address can be reached; if not, `why_not` says so.
	virtual bool reaches(int peer, std::string_view address, std::string &why_not) = 0;
	// Connects; throws Error. The endpoint lives as long as the transport.
	virtual Endpoint &connect(int peer, std::string_view address) = 0;
	// Tells a peer that this rank cannot connect to it, without what was lacking; once for each call. False: there is
	// no way to.
	virtual bool notify_connect_failure(int peer, std::string_view address) { return (void)peer, (void)address, false; }
	// The layer above has given `peer` up: finish what is in progress with it and tell on_peer_down.
	virtual void abandon(int, pt2p_status_t, const std::string &) {}
	// No further sends follow: whether what it has accepted has arrived, as far as somebody is there for it to arrive
	// at. Called until it has, with progress in between.
	virtual bool settle() { return true; }
	// Tell the peers that this rank has left.
	virtual void leave() {}

	// Slow checks that need no hot path: signs of life of the peers, housekeeping. Called every few milliseconds while
	// a call waits.
	virtual void check() {}
	// Makes sure that whatever arrives from now on wakes a sleeper on wake_word(). Returns false when something has
	// arrived already: do not sleep.
	virtual bool arm() { return false; }
	// Undoes arm() when the last sleeper is awake.
	virtual void disarm() {}
	// Futex word that peers bump and wake once armed; null without cap_wake.
	virtual uint32_t *wake_word() { return nullptr; }
	// Descriptor that can be read when something has arrived since arm(); -1: none. The same for all transports of a
	// device.
	virtual int wake_fd() { return -1; }

	// Makes memory of this rank reachable for get, put and atomic of all peers, until it is withdrawn; `key` goes with
	// its address. Null when that is refused: `why_not` says so. Transports that need no keys answer with anything but
	// null.
	virtual void *expose(void *memory, size_t length, uint64_t &key, std::string &why_not)
	{
		(void)memory, (void)length, (void)why_not;
		key = 0;
		return this;
	}
	virtual void withdraw(void *exposure) { (void)exposure; }
};

// Every transport of this build, in order of preference, ended by null.
extern const TransportTable *const transport_tables[];

// Throws Error(PT2P_ERR_INTERNAL) when a table's capabilities and operations disagree.
void check_table(const TransportTable &table);

// The blob that a rank publishes holds the address of each of its transports; the empty string stands for none.
void add_address_part(std::string &blob, const char *name, const std::string &part);
std::string address_part(std::string_view blob, std::string_view name);
// One part is the secret of the rank. Throws Error(PT2P_ERR_UNREACHABLE): it is not there.
void add_secret(std::string &blob, const Secret &secret);
Secret secret_in(std::string_view blob);

} // namespace pt2p
