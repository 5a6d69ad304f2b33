#include "rpc/results.hpp"

#include <cstdlib>

#include "base/config/config.hpp"
#include "base/report/report.hpp"
#include "message/engine.hpp"
#include "rpc/peer.hpp"

namespace pt2p::rpc {

namespace {

constexpr size_t page = 4096, automatic_bytes = size_t{32} << 20;

// Slots of a caller: as many as it may have calls, unless the memory for results would not suffice for all ranks.
size_t slots_for(const Config &config, size_t slot_bytes, size_t others)
{
	const size_t budget = config.call_results ? config.call_results : automatic_bytes;
	return std::clamp<size_t>(budget / slot_bytes / std::max<size_t>(others, 1), 1,
	                          static_cast<size_t>(config.call_window));
}

} // namespace

void store_result(unsigned char *slot, ResultHead head, const void *payload)
{
	if (sizeof head + head.length > result_line)
		head.crc = crc_of(head, payload);
	if (head.length)
		std::memcpy(slot + sizeof head, payload, head.length);
	std::memcpy(slot + sizeof head.number, reinterpret_cast<const unsigned char *>(&head) + sizeof head.number,
	            sizeof head - sizeof head.number);
	__atomic_store_n(reinterpret_cast<uint64_t *>(slot), head.number, __ATOMIC_RELEASE);
}

void Results::Free::operator()(unsigned char *memory) const { std::free(memory); }

Results::Results(const Config &config, Reporter &reporter, Engine &engine, onesided::OneSided &onesided, size_t ranks)
    : reporter_(reporter), engine_(engine), onesided_(onesided),
      slot_bytes_(static_cast<size_t>(config.call_result_bytes)), slots_(slots_for(config, slot_bytes_, ranks - 1)),
      bytes_(std::min(config.call_results ? config.call_results : automatic_bytes, slots_ * slot_bytes_ * (ranks - 1)))
{
}

Results::~Results()
{
	if (memory_)
		onesided_.memories().release(*memory_);
}

// False: there is none, or no device can read it.
bool Results::make_memory()
{
	if (memory_ || failed_)
		return memory_;
	failed_ = true;
	const size_t bytes = (bytes_ + page - 1) / page * page;
	bytes_of_all_.reset(static_cast<unsigned char *>(std::aligned_alloc(page, bytes)));
	if (!bytes_of_all_)
		return false;
	std::memset(bytes_of_all_.get(), 0, bytes);
	try {
		memory_ = &onesided_.memories().lend(bytes_of_all_.get(), bytes);
	} catch (const std::exception &e) {
		reporter_.log(LogLevel::info, "results are pushed, as their memory cannot be read: %s", e.what());
	}
	return memory_;
}

bool Results::could_offer(const Peer &peer) const
{
	return engine_.channels().router().device_of(*peer.channel) && peer.channel->endpoint.capabilities & cap_get &&
	       (peer.results() || !free_.empty() || given_ + slots_ * slot_bytes_ <= bytes_) && (memory_ || !failed_);
}

void Results::offer(Peer &peer, ToFetch what, uint32_t service)
{
	if (!could_offer(peer))
		return;
	if (!peer.results()) {
		const size_t bytes = slots_ * slot_bytes_;
		if (!make_memory())
			return;
		auto slots = std::make_unique<ResultSlots>();
		slots->slot_bytes = static_cast<uint32_t>(slot_bytes_);
		slots->stored.resize(slots_);
		if (free_.empty()) {
			slots->memory = bytes_of_all_.get() + given_;
			given_ += bytes;
		} else {
			slots->memory = free_.back();
			free_.pop_back();
		}
		peer.make_extras().results = std::move(slots);
		++callers_;
	} else if (what != ToFetch::of_service) {
		return; // it knows
	}
	ResultSlots &slots = *peer.results();
	if (what == ToFetch::of_service) {
		if (std::find(slots.services.begin(), slots.services.end(), service) != slots.services.end())
			return;
		slots.services.push_back(service);
	}
	ResultsOffer offer{onesided_.describe(*memory_, peer.channel->endpoint), service, what};
	offer.memory.address = reinterpret_cast<uint64_t>(slots.memory);
	offer.memory.length = slots.count() * slot_bytes_;
	engine_.channels().control(*peer.channel, id_results, uint64_t{slots.slot_bytes} << 32 | slots.count(), &offer,
	                           sizeof offer);
}

void Results::store(const Incoming &in, const void *data, bool stop)
{
	ResultSlots &slots = *in.peer->results();
	const uint32_t slot = slot_of(in.number);
	const auto length = static_cast<uint32_t>(in.reply.length);
	const int64_t took = std::clamp<int64_t>(now_ns() - in.arrived, 0, UINT32_MAX);
	const uint32_t consumed = engine_.channels().router().consumed(*in.peer->channel);
	slots.stored[slot] = {in.number, in.reply.word, length};
	store_result(slots.at(slot), {in.number, in.reply.word, length, stop, 0, static_cast<uint32_t>(took), consumed},
	             data);
	reporter_.add(Counter::results_stored);
}

void Results::take_back(Peer &peer)
{
	if (!peer.results())
		return;
	std::memset(peer.results()->memory, 0, size_t{peer.results()->count()} * slot_bytes_);
	free_.push_back(peer.results()->memory);
	peer.extras->results.reset();
	--callers_;
}

} // namespace pt2p::rpc
