// A transport with a device in this process. Its remote reads, writes and 64-bit atomic operations overlap, finish late
// and in any order, are refused now and then, and need a key. An atomic operation is a load and a store under the
// device's own lock, so sums are wrong when a processor changes the same memory.
//
// Linked instead of transports/transports.cpp, so a job has self, shm and this.
#define transport_tables transport_tables_of_the_library
#include "transports/transports.cpp"
#undef transport_tables

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <sched.h>
#include <vector>

#include "base/job/job.hpp"
#include "transports/device_transport.hpp"

namespace pt2p {

extern const TransportTable *const transport_tables[];

namespace {

extern const TransportTable device_table;

struct Message {
	int from;
	uint8_t id;
	uint64_t header;
	std::vector<unsigned char> data;
};

struct Inbox {
	std::mutex mutex;
	std::deque<Message> messages;
	bool left = false;
};

struct Range {
	uint64_t address, length;
};

std::mutex wire;                // one device does one thing at a time
std::map<uint64_t, Range> keys; // under `wire`
uint64_t last_key = 1000;

class MadeUpDevice;

struct DeviceEndpoint final : Endpoint {
	MadeUpDevice *transport = nullptr;
	std::shared_ptr<Inbox> inbox; // of the peer
	bool down = false;
};

enum class Verb { get, put, atomic };

struct Work {
	Verb verb;
	unsigned char *local;
	RemoteMemory remote;
	size_t length;
	AtomicOperation what;
	uint64_t operand, compare;
	uint64_t *result;
	void *operation;
};

class MadeUpDevice final : public DeviceTransport {
public:
	explicit MadeUpDevice(const TransportEnvironment &environment)
	    : environment_(environment), inbox_(std::make_shared<Inbox>()),
	      random_(static_cast<uint64_t>(environment.job.rank()))
	{
	}
	const TransportTable &table() const override { return device_table; }
	std::string address() override
	{
		// The others hold it, too: it exists until the last has left.
		environment_.job.keep(std::make_shared<std::shared_ptr<Inbox>>(inbox_));
		const auto *place = &inbox_;
		return {reinterpret_cast<const char *>(&place), sizeof place};
	}
	bool reaches(int, std::string_view, std::string &) override { return true; }
	Endpoint &connect(int peer, std::string_view address) override
	{
		const std::shared_ptr<Inbox> *place;
		std::memcpy(&place, address.data(), sizeof place);
		return endpoint(peer, *place);
	}
	std::string describe(int) override { return "device"; }
	void *expose(void *memory, size_t length, uint64_t &key, std::string &) override
	{
		const std::lock_guard lock(wire);
		key = ++last_key;
		keys[key] = {reinterpret_cast<uint64_t>(memory), length};
		return reinterpret_cast<void *>(key);
	}
	void withdraw(void *exposure) override
	{
		const std::lock_guard lock(wire);
		keys.erase(reinterpret_cast<uint64_t>(exposure));
	}
	Endpoint *loopback() override
	{
		if (!loopback_)
			loopback_ = &endpoint(environment_.job.rank(), inbox_);
		return loopback_;
	}
	void leave() override
	{
		const std::lock_guard lock(inbox_->mutex);
		inbox_->left = true;
	}
	void check() override
	{
		for (auto &e : endpoints_) {
			if (e->down || !has_left(*e->inbox))
				continue;
			progress(); // what it has sent still arrives
			e->down = true;
			environment_.events.on_peer_down(e->peer, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
		}
	}

	Outcome send(DeviceEndpoint &to, uint8_t id, uint64_t header, const void *data, size_t length)
	{
		if (refused())
			return Outcome::no_resource;
		const auto *bytes = static_cast<const unsigned char *>(data);
		const std::lock_guard lock(to.inbox->mutex);
		if (to.inbox->messages.size() >= 64)
			return Outcome::no_resource;
		to.inbox->messages.push_back({environment_.job.rank(), id, header, {bytes, bytes + length}});
		return Outcome::done;
	}
	Outcome start(const Work &work)
	{
		if (refused() || work_.size() >= 16)
			return Outcome::no_resource;
		switch (random() % 8) {
		case 0: // at once
			return execute(work) == PT2P_OK ? Outcome::done : tell(work, PT2P_ERR_SYSTEM);
		case 1: // and its completion comes before the call returns
			return tell(work, execute(work));
		default: work_.push_back(work); return Outcome::in_progress;
		}
	}
	unsigned progress()
	{
		unsigned n = 0;
		for (; n < 16; ++n) {
			Message m;
			{
				const std::lock_guard lock(inbox_->mutex);
				if (inbox_->messages.empty())
					break;
				m = std::move(inbox_->messages.front());
				inbox_->messages.pop_front();
			}
			environment_.events.on_message(m.from, m.id, m.header, m.data.data(), m.data.size());
		}
		for (int i = 0; i < 4 && !work_.empty() && random() % 4; ++i, ++n) {
			std::swap(work_[random() % work_.size()], work_.back());
			const Work work = work_.back();
			work_.pop_back();
			tell(work, execute(work));
		}
		return n;
	}

private:
	DeviceEndpoint &endpoint(int peer, const std::shared_ptr<Inbox> &inbox)
	{
		endpoints_.push_back(std::make_unique<DeviceEndpoint>());
		DeviceEndpoint &e = *endpoints_.back();
		e.table = &device_table;
		e.peer = peer;
		e.capabilities = device_table.capabilities;
		e.max_send = 1000;
		e.transport = this;
		e.inbox = inbox;
		return e;
	}
	static bool has_left(Inbox &inbox)
	{
		const std::lock_guard lock(inbox.mutex);
		return inbox.left;
	}
	uint64_t random()
	{
		random_ += UINT64_C(0x9e3779b97f4a7c15);
		uint64_t x = random_;
		x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
		return x ^ (x >> 31);
	}
	bool refused() { return random() % 6 == 0; }
	Outcome tell(const Work &work, pt2p_status_t status)
	{
		environment_.events.on_complete(work.operation, status);
		return Outcome::in_progress;
	}
	pt2p_status_t execute(const Work &w)
	{
		const std::lock_guard lock(wire);
		const auto key = keys.find(w.remote.key);
		if (key == keys.end() || w.remote.address < key->second.address ||
		    w.remote.address + w.length > key->second.address + key->second.length)
			return PT2P_ERR_SYSTEM;
		auto *there = reinterpret_cast<unsigned char *>(w.remote.address);
		if (w.verb == Verb::atomic) {
			auto *word = reinterpret_cast<uint64_t *>(there);
			if (w.remote.address % 8)
				return PT2P_ERR_SYSTEM;
			const uint64_t was = __atomic_load_n(word, __ATOMIC_RELAXED);
			if (random() % 8 == 0)
				sched_yield();
			if (w.what == AtomicOperation::fetch_add || was == w.compare)
				__atomic_store_n(word, w.what == AtomicOperation::fetch_add ? was + w.operand : w.operand,
				                 __ATOMIC_RELEASE);
			*w.result = was;
		} else if (w.verb == Verb::put) {
			std::memmove(there, w.local, w.length);
		} else {
			std::memmove(w.local, there, w.length);
		}
		return PT2P_OK;
	}

	TransportEnvironment environment_;
	std::shared_ptr<Inbox> inbox_;
	std::vector<std::unique_ptr<DeviceEndpoint>> endpoints_;
	Endpoint *loopback_ = nullptr;
	std::vector<Work> work_;
	uint64_t random_;
};

DeviceEndpoint &device(Endpoint &e) { return static_cast<DeviceEndpoint &>(e); }

std::unique_ptr<Transport> open_device(const TransportEnvironment &environment, std::string &)
{
	return std::make_unique<MadeUpDevice>(environment);
}

Outcome send_device(Endpoint &e, uint8_t id, uint64_t header, const void *data, size_t length)
{
	return device(e).transport->send(device(e), id, header, data, length);
}

Outcome get_device(Endpoint &e, void *local, RemoteMemory from, size_t length, void *operation)
{
	return device(e).transport->start(
	    {Verb::get, static_cast<unsigned char *>(local), from, length, {}, 0, 0, nullptr, operation});
}

Outcome put_device(Endpoint &e, const void *local, RemoteMemory to, size_t length, void *operation)
{
	auto *bytes = static_cast<unsigned char *>(const_cast<void *>(local));
	return device(e).transport->start({Verb::put, bytes, to, length, {}, 0, 0, nullptr, operation});
}

Outcome atomic_device(Endpoint &e, AtomicOperation what, RemoteMemory at, uint64_t operand, uint64_t compare,
                      uint64_t *result, void *operation)
{
	return device(e).transport->start({Verb::atomic, nullptr, at, 8, what, operand, compare, result, operation});
}

unsigned progress_device(Transport &t) { return static_cast<MadeUpDevice &>(t).progress(); }

const TransportTable device_table = {
    "device",      cap_send | cap_get | cap_put | cap_atomic,
    open_device,   send_device,
    get_device,    put_device,
    atomic_device, progress_device,
};

} // namespace

const TransportTable *const transport_tables[] = {&self_table, &shm::shm_table, &device_table, nullptr};

} // namespace pt2p
