// One-sided operations: cut into parts, posted as room allows, told to their owner when the last part is complete.
#include <algorithm>

#include "base/config/config.hpp"
#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

// Whether data of this length to or from that peer may go by several queue pairs.
bool Net::spreads(Peer &peer, size_t length) const
{
	const int64_t pinned = config().net_queue_pairs;
	if (length < tune::Spread::least_part || pinned == 1 || (!pinned && tuning_ == tune::Mode::off) || peer.most_queue_pairs == 1)
		return false;
	if (!peer.spread)
		peer.spread = std::make_unique<tune::Spread>(static_cast<uint32_t>(pinned), peer.most_queue_pairs);
	return true;
}

Outcome Net::refuse(pt2p_status_t status, std::string reason)
{
	refusal_ = {status, std::move(reason)};
	return Outcome::refused;
}

Refusal Peer::refusal() const { return net->refusal(); }

// The registration that an operation needs. None: it goes by way of buffers, as it is short, or because its memory cannot be
// registered.
Registration *Net::register_for(const Operation &wanted)
{
	if (Registration *found = registrations_.find(wanted.local, wanted.length))
		return found;
	if (wanted.length <= most_copied_)
		return nullptr;
	std::string why_not;
	Registration *made = registrations_.acquire(wanted.local, wanted.length, why_not);
	if (!made) {
		reporter().add(Counter::net_staged_bytes, wanted.length);
		reporter().log(LogLevel::info, "%zu bytes go through buffers: %s", wanted.length, why_not.c_str());
	}
	return made;
}

Outcome Net::start(const Operation &wanted)
{
	if (wanted.peer->down)
		return refuse(PT2P_ERR_SYSTEM, "its connection is down for good");
	const bool write = wanted.kind == Kind::write;
	Operation::Place place = Operation::Place::memory;
	Registration *registration = nullptr;
	if (write && wanted.length <= most_in_entry_) {
		place = Operation::Place::entry;
	} else if (write || wanted.kind == Kind::read) {
		registration = register_for(wanted);
		if (registration && !write && !registration->writable()) {
			// It may have become so since.
			registrations_.release(registration);
			registrations_.forget(wanted.local, wanted.length);
			registration = register_for(wanted);
		}
		if (registration && !write && !registration->writable()) {
			registrations_.release(registration);
			return refuse(PT2P_ERR_ARGUMENT, format("the local buffer of %zu bytes at %p may only be read", wanted.length,
			                                        static_cast<void *>(wanted.local)));
		}
		if (!registration)
			place = Operation::Place::buffer;
	}
	if (write || wanted.kind == Kind::read)
		reporter().add(write ? Counter::net_written_bytes : Counter::net_read_bytes, wanted.length);
	Operation *operation = operations_.take();
	*operation = wanted;
	operation->place = place;
	operation->registration = registration;
	operation->spreads = registration && spreads(*wanted.peer, wanted.length);
	if (operation->spreads)
		wanted.peer->spread->begins(wanted.length);
	if (!waiting_.empty() || !post_parts(*operation))
		waiting_.push(*operation);
	return Outcome::in_progress;
}

// Posts what there is room for; true when that was all. A completion tells of one queue pair only, so each part that is spread
// has its own.
bool Net::post_parts(Operation &operation)
{
	const bool atomic = operation.kind == Kind::fetch_add || operation.kind == Kind::compare_swap;
	const bool in_buffer = operation.place == Operation::Place::buffer;
	// What is long leaves buffers for messages.
	const size_t kept = operation.length > most_copied_ ? buffer_count_ / 2 : 0;
	while (operation.posted < operation.length) {
		SendQueue *queue = operation.spreads ? operation.peer->acquire_for_part() : operation.peer->acquire();
		if (!queue || (atomic && !free_results_.count()) || (in_buffer && free_buffers_.count() <= kept))
			return false;
		const size_t part = operation.spreads ? operation.peer->spread->part_of(operation.length)
		                    : in_buffer       ? message_bytes_
		                                      : tune::Spread::most_part;
		const size_t bytes = std::min(operation.length - operation.posted, part);
		const size_t offset = operation.posted;
		if (operation.spreads)
			operation.peer->spread->posted(bytes);
		operation.posted += bytes;
		// A buffer is to come back soon.
		queue->post(*operation.peer, operation, offset, bytes,
		            operation.spreads || in_buffer || operation.posted == operation.length);
	}
	return true;
}

// Those that wait for a peer that has no room do not hold up the others.
void Net::drive_waiting()
{
	waiting_.remove_if([this](Operation &operation) { return post_parts(operation); });
}

void Net::part_is_over(Operation &operation, size_t bytes)
{
	if (operation.spreads)
		operation.peer->spread->completed(bytes, now_ticks());
}

void Net::part_done(Operation &operation, size_t bytes)
{
	part_is_over(operation, bytes);
	operation.done += bytes;
	if (operation.done == operation.length)
		finish(operation);
}

void Net::part_failed(Operation &operation, size_t bytes, pt2p_status_t status, const char *reason)
{
	part_is_over(operation, 0);
	operation.status = status;
	operation.reason = reason;
	operation.done += bytes;
	// What waits for room is not posted any more: see take_down().
	if (operation.done == operation.length)
		finish(operation);
}

void Net::finish(Operation &operation)
{
	void *owner = operation.owner;
	const pt2p_status_t status = operation.status;
	const char *reason = operation.reason;
	if (operation.registration)
		registrations_.release(operation.registration);
	operations_.give(&operation);
	if (!left_) // else the layers above are going, too
		environment_.events.on_complete(owner, status, reason);
}

void *Net::expose(void *memory, size_t length, uint64_t &key, std::string &why_not)
{
	Registration *registration = registrations_.acquire(memory, length, why_not);
	if (registration)
		key = registration->remote_key();
	return registration;
}

namespace {

Outcome start(Endpoint &endpoint, Operation what)
{
	what.peer = &static_cast<Peer &>(endpoint);
	return what.peer->net->start(what);
}

} // namespace

Outcome get(Endpoint &endpoint, void *local, RemoteMemory from, size_t length, void *operation)
{
	return start(endpoint, {.kind = Kind::read,
	                        .owner = operation,
	                        .local = static_cast<unsigned char *>(local),
	                        .length = length,
	                        .remote = from});
}

Outcome put(Endpoint &endpoint, const void *local, RemoteMemory to, size_t length, void *operation)
{
	return start(endpoint, {.kind = Kind::write,
	                        .owner = operation,
	                        .local = static_cast<unsigned char *>(const_cast<void *>(local)),
	                        .length = length,
	                        .remote = to});
}

Outcome atomic(Endpoint &endpoint, AtomicOperation what, RemoteMemory at, uint64_t operand, uint64_t compare,
               uint64_t *result, void *operation)
{
	return start(endpoint, {.kind = what == AtomicOperation::fetch_add ? Kind::fetch_add : Kind::compare_swap,
	                        .owner = operation,
	                        .result = result,
	                        .length = sizeof(uint64_t),
	                        .remote = at,
	                        .operand = operand,
	                        .compare = compare});
}

} // namespace pt2p::verbs
