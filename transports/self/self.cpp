// The self transport: messages to this rank, delivered in the call that sends them.
#include <cstring>

#include "base/job/job.hpp"
#include "transports/transport.hpp"

namespace pt2p {

extern const TransportTable self_table;

namespace {

class SelfTransport final : public Transport, public Endpoint {
public:
	explicit SelfTransport(const TransportEnvironment &environment) : environment_(environment)
	{
		Endpoint::table = &self_table;
		peer = environment.job.rank();
		capabilities = self_table.capabilities;
		max_send = SIZE_MAX;
	}
	const TransportTable &table() const override { return self_table; }
	std::string address() override { return "self"; }
	bool reaches(int rank, std::string_view, std::string &why_not) override
	{
		if (rank != peer)
			why_not = "another rank";
		return rank == peer;
	}
	Endpoint &connect(int, std::string_view) override { return *this; }
	std::string describe(int) override { return "single-copy"; }

	TransportEnvironment environment_;
};

std::unique_ptr<Transport> open_self(const TransportEnvironment &environment, std::string &)
{
	return std::make_unique<SelfTransport>(environment);
}

Outcome send_self(Endpoint &endpoint, uint8_t id, uint64_t header, const void *data, size_t length)
{
	auto &self = static_cast<SelfTransport &>(endpoint);
	self.environment_.events.on_message(self.peer, id, header, data, length);
	return Outcome::done;
}

// memmove: sender and receiver may have given overlapping buffers.
Outcome get_self(Endpoint &, void *local, RemoteMemory from, size_t length, void *)
{
	std::memmove(local, reinterpret_cast<const void *>(from.address), length);
	return Outcome::done;
}

Outcome get_runs_self(Endpoint &, const Run *runs, size_t count, void *)
{
	for (size_t i = 0; i < count; ++i)
		std::memmove(runs[i].local, reinterpret_cast<const void *>(runs[i].from.address), runs[i].length);
	return Outcome::done;
}

Outcome put_self(Endpoint &, const void *local, RemoteMemory to, size_t length, void *)
{
	std::memmove(reinterpret_cast<void *>(to.address), local, length);
	return Outcome::done;
}

Outcome atomic_self(Endpoint &, AtomicOperation what, RemoteMemory at, uint64_t operand, uint64_t compare,
                    uint64_t *result, void *)
{
	auto *word = reinterpret_cast<uint64_t *>(at.address);
	if (what == AtomicOperation::fetch_add) {
		*result = __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
	} else {
		__atomic_compare_exchange_n(word, &compare, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		*result = compare;
	}
	return Outcome::done;
}

} // namespace

const TransportTable self_table = {
    "self",        cap_send | cap_get | cap_put | cap_atomic,
    open_self,     send_self,
    get_self,      put_self,
    atomic_self,   nullptr,
    get_runs_self,
};

} // namespace pt2p
