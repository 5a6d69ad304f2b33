#include "softhca/model/model.hpp"

#include <cstdio>
#include <cstdlib>

#include "softhca/exact/first_stores.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/kernel/device.hpp"
#include "softhca/nic/nic.hpp"

// Where the code of this library is, which stands for the device.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start, etext;
}

namespace softhca::model {

Model::Model(Nic &nic, const Profile &profile, unsigned devices, unsigned queue_pairs)
    : core_(nic, profile, devices, queue_pairs), units_(core_, packets_), packets_(core_, units_),
      programs_(core_, units_)
{
	if (profile.cpu_copy > 0)
		softhca_time_copies(static_cast<uint64_t>(1024 * 1e6 / profile.cpu_copy), &__ehdr_start, &etext);
	softhca_time_locks(from_ns(profile.cpu_line), static_cast<uint64_t>(profile.cpu_processors));
	softhca_time_trap_counter();
}

bool Model::transmit(Qp &qp, const Packet &packet, Faults::Fate fate, Time delay, const Fill &fill)
{
	constexpr Time max_reorder = 5'000; // there may be no next packet
	if (fate == Faults::Fate::drop)
		return true;
	if (fate == Faults::Fate::after_next)
		delay = max_reorder;
	for (int copies = fate == Faults::Fate::twice ? 2 : 1; copies; --copies) {
		packets_.send(qp, packet, fill, delay);
		qp.count(Counter::packets_sent, 1);
	}
	return true;
}

void Model::before_poll(int fd)
{
	if (const auto context = Context::find(fd))
		programs_.before_poll(*context);
}

bool Model::after_poll(int fd, bool found)
{
	if (!found)
		if (const auto context = Context::find(fd))
			programs_.after_empty_poll(*context);
	return false;
}

void Model::polled(unsigned device, bool found)
{
	Context *polls = programs_.posts_by(device);
	for (Context *context : core_.nic.devices.contexts())
		if (!polls && context->device() == device)
			polls = context;
	if (!polls)
		return;
	programs_.before_poll(*polls);
	if (!found)
		programs_.after_empty_poll(*polls);
}

void Model::shared(void *memory, size_t bytes)
{
	const size_t whole = (bytes + page_bytes - 1) / page_bytes * page_bytes;
	if (watch_first_stores(memory, whole, [] { softhca_time_stored(watch_again); }))
		return;
	std::perror("softhca: stores into shared memory cannot be noticed");
	std::abort();
}

void Model::unmapped(void *memory, size_t bytes) { forget_first_stores(memory, bytes); }

void Model::remind(Time deadline)
{
	if (deadline_ && deadline_ <= deadline)
		return;
	deadline_ = deadline;
	core_.at<&Model::check_times>(deadline * 1000, *this, deadline);
}

void Model::check_times(uint64_t deadline)
{
	if (deadline != deadline_)
		return;
	deadline_ = 0;
	core_.nic.check_times();
}

} // namespace softhca::model
