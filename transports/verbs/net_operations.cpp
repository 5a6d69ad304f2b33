// One-sided operations: cut into parts, posted as room allows, told to their owner when the last part is complete.
#include <algorithm>

#include "report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

namespace {

constexpr size_t part_bytes = size_t{1} << 20; // of a long operation: others get their turn in between

} // namespace

Outcome Net::start(Peer &peer, Kind kind, void *local, RemoteMemory remote, size_t length, uint64_t operand,
                   uint64_t compare, uint64_t *result, void *owner)
{
	if (peer.down)
		return Outcome::no_resource;
	const bool atomic = kind == Kind::fetch_add || kind == Kind::compare_swap;
	Registration *registration = nullptr;
	if (!atomic) {
		std::string why_not;
		registration = registrations_.acquire(local, length, why_not);
		if (!registration) {
			reporter().log(LogLevel::debug, "%zu bytes: %s", length, why_not.c_str());
			return Outcome::no_resource;
		}
	}
	if (kind == Kind::read)
		reporter().add(Counter::net_read_bytes, length);
	else if (kind == Kind::write)
		reporter().add(Counter::net_written_bytes, length);
	Operation *operation = operations_.take();
	*operation = {kind, owner, static_cast<unsigned char *>(local), result, length, remote, operand, compare, registration,
	              0, 0, PT2P_OK, &peer, nullptr};
	if (first_waiting_ || !post_parts(*operation)) {
		(first_waiting_ ? last_waiting_->next : first_waiting_) = operation;
		last_waiting_ = operation;
	}
	return Outcome::in_progress;
}

// Posts what there is room for; true when that was all.
bool Net::post_parts(Operation &operation)
{
	const bool atomic = !operation.registration;
	while (operation.posted < operation.length) {
		SendQueue *queue = operation.peer->acquire();
		if (!queue || (atomic && !free_results_.count()))
			return false;
		const size_t bytes = std::min(operation.length - operation.posted, part_bytes);
		const size_t offset = operation.posted;
		operation.posted += bytes;
		queue->post(*operation.peer, operation, offset, bytes, operation.posted == operation.length);
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

void Net::part_done(Operation &operation, size_t bytes)
{
	operation.done += bytes;
	if (operation.done == operation.length)
		finish(operation);
}

void Net::part_failed(Operation &operation, size_t bytes, pt2p_status_t status)
{
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

Outcome get(Endpoint &endpoint, void *local, RemoteMemory from, size_t length, void *operation)
{
	auto &peer = static_cast<Peer &>(endpoint);
	return peer.net->start(peer, Kind::read, local, from, length, 0, 0, nullptr, operation);
}

Outcome put(Endpoint &endpoint, const void *local, RemoteMemory to, size_t length, void *operation)
{
	auto &peer = static_cast<Peer &>(endpoint);
	return peer.net->start(peer, Kind::write, const_cast<void *>(local), to, length, 0, 0, nullptr, operation);
}

Outcome atomic(Endpoint &endpoint, AtomicOperation what, RemoteMemory at, uint64_t operand, uint64_t compare,
               uint64_t *result, void *operation)
{
	auto &peer = static_cast<Peer &>(endpoint);
	const Kind kind = what == AtomicOperation::fetch_add ? Kind::fetch_add : Kind::compare_swap;
	return peer.net->start(peer, kind, nullptr, at, sizeof(uint64_t), operand, compare, result, operation);
}

} // namespace pt2p::verbs
