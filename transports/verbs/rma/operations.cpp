#include "transports/verbs/rma/operations.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

namespace {

constexpr size_t max_copied = 8192; // bytes; the copy takes less than a microsecond

} // namespace

Operations::Operations(const TransportEnvironment &environment, const Device &device, SendMemory &memory)
    : environment_(environment), memory_(memory),
      registrations_(device, environment.reporter,
                     environment.config.registration_cache == choice::registration_cache::all
                         ? environment.config.registration_cache_bytes
                         : 0),
      max_inline_(std::min(static_cast<size_t>(environment.config.net_inline), WorkRequest::max_inline)),
      max_copied_(std::min(memory.buffer_bytes(), max_copied))
{
}

// Whether data of this length to or from the peer may be striped.
bool Operations::stripes(NetPeer &peer, size_t length) const
{
	const Config &config = environment_.config;
	const int64_t pinned = config.net_queue_pairs;
	if (length < tune::Striping::min_part || pinned == 1 || (!pinned && config.tune == choice::tune::off) ||
	    peer.max_queue_pairs == 1)
		return false;
	if (!peer.striping)
		peer.striping = std::make_unique<tune::Striping>(static_cast<uint32_t>(pinned), peer.max_queue_pairs);
	return true;
}

Outcome Operations::refuse(pt2p_status_t status, std::string reason)
{
	refusal_ = {status, std::move(reason)};
	return Outcome::refused;
}

// The registration for an operation. Null: the operation goes through buffers, because it is short or its memory cannot
// be registered.
Registration *Operations::register_for(const Operation &wanted)
{
	if (Registration *found = registrations_.find(wanted.local, wanted.length))
		return found;
	if (wanted.length <= max_copied_)
		return nullptr;
	std::string why_not;
	Registration *made = registrations_.acquire(wanted.local, wanted.length, why_not);
	if (!made) {
		environment_.reporter.add(Counter::net_staged_bytes, wanted.length);
		environment_.reporter.log(LogLevel::info, "%zu bytes go through buffers: %s", wanted.length, why_not.c_str());
	}
	return made;
}

// False: the operation has to write to read-only memory.
bool Operations::choose_payload(Operation &operation)
{
	const bool write = operation.kind == Kind::write;
	if (operation.is_atomic()) {
		operation.payload = Payload::result;
		return true;
	}
	if (write && operation.length <= max_inline_) {
		operation.payload = Payload::inlined;
		return true;
	}
	operation.registration = register_for(operation);
	const auto read_only = [&] { return operation.registration && !write && !operation.registration->writable(); };
	if (read_only()) {
		// It may have become writable since.
		registrations_.release(operation.registration);
		registrations_.forget(operation.local, operation.length);
		operation.registration = register_for(operation);
	}
	if (read_only()) {
		registrations_.release(operation.registration);
		return false;
	}
	operation.payload = operation.registration ? Payload::memory : Payload::buffer;
	return true;
}

Outcome Operations::start(const Operation &wanted)
{
	if (wanted.peer->down)
		return refuse(PT2P_ERR_SYSTEM, "its connection is down for good");
	Operation chosen = wanted;
	if (!choose_payload(chosen))
		return refuse(PT2P_ERR_ARGUMENT, format("the local buffer of %zu bytes at %p may only be read", wanted.length,
		                                        static_cast<void *>(wanted.local)));
	if (!wanted.is_atomic())
		environment_.reporter.add(wanted.kind == Kind::write ? Counter::net_written_bytes : Counter::net_read_bytes,
		                          wanted.length);
	Operation *operation = operations_.take();
	*operation = chosen;
	operation->striped = operation->registration && stripes(*wanted.peer, wanted.length);
	if (operation->striped)
		wanted.peer->striping->begins(wanted.length);
	if (!waiting_.empty() || !post_parts(*operation))
		waiting_.push(*operation);
	return Outcome::in_progress;
}

// Posts what the queues take now; true: that was all. A completion covers one queue pair only, so each striped part has
// its own.
bool Operations::post_parts(Operation &operation)
{
	const bool in_buffer = operation.payload == Payload::buffer;
	// Long operations leave buffers for messages.
	const size_t kept = operation.length > max_copied_ ? memory_.buffer_count() / 2 : 0;
	while (operation.posted < operation.length) {
		SendQueue *queue = operation.striped ? operation.peer->acquire_for_part() : operation.peer->acquire();
		if (!queue || (operation.is_atomic() && !memory_.free_results()) ||
		    (in_buffer && memory_.free_buffers() <= kept))
			return false;
		const size_t part = operation.striped ? operation.peer->striping->part_of(operation.length)
		                    : in_buffer       ? memory_.buffer_bytes()
		                                      : tune::Striping::max_part;
		const size_t bytes = std::min(operation.length - operation.posted, part);
		const size_t offset = operation.posted;
		if (operation.striped)
			operation.peer->striping->posted(bytes);
		operation.posted += bytes;
		// A completion brings buffers back soon.
		post_part(*queue, operation, offset, bytes,
		          operation.striped || in_buffer || operation.posted == operation.length);
	}
	return true;
}

void Operations::post_part(SendQueue &queue, Operation &operation, size_t offset, size_t length, bool signal)
{
	NetPeer &peer = *operation.peer;
	WorkRequest &request = queue.next(peer, operation.kind, static_cast<uint32_t>(length));
	request.operation = &operation;
	request.payload = operation.payload;
	request.remote_address = operation.remote.address + offset;
	request.remote_key = static_cast<uint32_t>(operation.remote.key);
	request.copy_to = nullptr;
	++peer.bulk.messages;
	peer.bulk.bytes += length;
	const bool write = operation.kind == Kind::write;
	if (write && operation.payload != Payload::inlined)
		peer.bulk_written += length;
	switch (operation.payload) {
	case Payload::inlined: std::memcpy(request.bytes, operation.local, length); break;
	case Payload::result:
		request.place = memory_.take_result();
		request.local_address = reinterpret_cast<uintptr_t>(memory_.result(request.place));
		request.local_key = memory_.result_key();
		request.copy_to = operation.result;
		request.set_operands(operation.operand, operation.kind == Kind::compare_swap ? operation.compare : 0);
		break;
	case Payload::buffer:
		request.place = memory_.take_buffer();
		request.local_address = reinterpret_cast<uintptr_t>(memory_.buffer(request.place));
		request.local_key = memory_.buffer_key();
		if (write)
			std::memcpy(memory_.buffer(request.place), operation.local + offset, length);
		else
			request.copy_to = operation.local + offset;
		break;
	default:
		request.local_address = reinterpret_cast<uintptr_t>(operation.local + offset);
		request.local_key = operation.registration->local_key();
	}
	queue.submit(signal);
}

// Operations that wait for one peer do not hold up those of others.
void Operations::drive_waiting()
{
	waiting_.remove_if([this](Operation &operation) { return post_parts(operation); });
}

void Operations::end_waiting(const NetPeer &peer, pt2p_status_t status)
{
	Fifo<Operation> ended;
	waiting_.remove_if([&](Operation &operation) {
		if (operation.peer != &peer)
			return false;
		operation.status = status;
		operation.length = operation.posted;
		if (operation.done == operation.length)
			ended.push(operation);
		return true;
	});
	while (!ended.empty())
		finish(ended.pop());
}

void Operations::part_done(Operation &operation, size_t bytes)
{
	if (operation.striped)
		operation.peer->striping->completed(bytes, now_ticks());
	operation.done += bytes;
	if (operation.done == operation.length)
		finish(operation);
}

void Operations::part_failed(Operation &operation, size_t bytes, pt2p_status_t status, const char *reason)
{
	if (operation.striped)
		operation.peer->striping->completed(0, now_ticks());
	operation.status = status;
	operation.reason = reason;
	operation.done += bytes;
	// The rest is not posted any more: see end_waiting().
	if (operation.done == operation.length)
		finish(operation);
}

void Operations::finish(Operation &operation)
{
	void *owner = operation.owner;
	const pt2p_status_t status = operation.status;
	const char *reason = operation.reason;
	if (operation.registration)
		registrations_.release(operation.registration);
	operations_.give(&operation);
	if (!left_)
		environment_.events.on_complete(owner, status, reason);
}

void *Operations::expose(void *memory, size_t length, uint64_t &key, std::string &why_not)
{
	Registration *registration = registrations_.acquire(memory, length, why_not);
	if (registration)
		key = registration->remote_key();
	return registration;
}

Refusal NetPeer::refusal() const { return net->operations.refusal(); }

namespace {

Outcome start(Endpoint &endpoint, Operation what)
{
	what.peer = &static_cast<NetPeer &>(endpoint);
	return what.peer->net->operations.start(what);
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
