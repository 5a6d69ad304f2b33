// One-sided operations: cut into parts, posted as room allows, told to their owner when the last part is complete.
#include <algorithm>

#include "config/config.hpp"
#include "progress/clock.hpp"
#include "report/report.hpp"
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

Outcome Net::start(const Operation &wanted)
{
	if (wanted.peer->down)
		return Outcome::no_resource;
	const bool write = wanted.kind == Kind::write;
	Operation::Place place = Operation::Place::memory;
	Registration *registration = nullptr;
	if (write && wanted.length <= most_in_entry_) {
		place = Operation::Place::entry;
	} else if (write || wanted.kind == Kind::read) {
		std::string why_not;
		registration = registrations_.find(wanted.local, wanted.length);
		if (!registration && wanted.length <= most_copied_) {
			place = Operation::Place::buffer;
		} else if (!registration && !(registration = registrations_.acquire(wanted.local, wanted.length, why_not))) {
			reporter().log(LogLevel::debug, "%zu bytes: %s", wanted.length, why_not.c_str());
			return Outcome::no_resource;
		}
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
	if (first_waiting_ || !post_parts(*operation)) {
		(first_waiting_ ? last_waiting_->next : first_waiting_) = operation;
		last_waiting_ = operation;
	}
	return Outcome::in_progress;
}

// Posts what there is room for; true when that was all. A completion tells of one queue pair only, so each part that is spread
// has its own.
bool Net::post_parts(Operation &operation)
{
	const bool atomic = operation.kind == Kind::fetch_add || operation.kind == Kind::compare_swap;
	const bool in_buffer = operation.place == Operation::Place::buffer;
	while (operation.posted < operation.length) {
		SendQueue *queue = operation.spreads ? operation.peer->acquire_for_part() : operation.peer->acquire();
		if (!queue || (atomic && !free_results_.count()) || (in_buffer && !free_buffers_.count()))
			return false;
		const size_t part = operation.spreads ? operation.peer->spread->part_of(operation.length) : tune::Spread::most_part;
		const size_t bytes = std::min(operation.length - operation.posted, part);
		const size_t offset = operation.posted;
		if (operation.spreads)
			operation.peer->spread->posted(bytes);
		operation.posted += bytes;
		queue->post(*operation.peer, operation, offset, bytes, operation.spreads || operation.posted == operation.length);
	}
	return true;
}

// Those that wait for a peer that has no room do not hold up the others.
void Net::drive_waiting()
{
	Operation *previous = nullptr;
	for (Operation *o = first_waiting_; o;) {
		Operation *next = o->next;
		if (!post_parts(*o)) {
			previous = o;
			o = next;
			continue;
		}
		(previous ? previous->next : first_waiting_) = next;
		if (last_waiting_ == o)
			last_waiting_ = previous;
		o->next = nullptr;
		o = next;
	}
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

void Net::part_failed(Operation &operation, size_t bytes, pt2p_status_t status)
{
	part_is_over(operation, 0);
	operation.status = status;
	operation.done += bytes;
	// What waits for room is not posted any more: see take_down().
	if (operation.done == operation.length)
		finish(operation);
}

void Net::finish(Operation &operation)
{
	void *owner = operation.owner;
	const pt2p_status_t status = operation.status;
	if (operation.registration)
		registrations_.release(operation.registration);
	operations_.give(&operation);
	if (!left_) // else the layers above are going, too
		environment_.events.on_complete(owner, status);
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
