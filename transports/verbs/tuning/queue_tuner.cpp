#include "transports/verbs/tuning/queue_tuner.hpp"

#include <utility>

namespace pt2p::tune {

void QueueTuner::sample_posted(uint32_t number, int64_t since)
{
	sampling_ = true;
	sample_ = {number, since};
	device_.begin_watch();
}

void QueueTuner::see_sample(const Observed &sample, size_t bytes)
{
	sampling_ = false;
	device_.end_watch();
	sample.channel.stagings.of(bytes).see(sample.kind == SizeClass::device_memory ? Staging::device_memory
	                                                                              : Staging::buffer,
	                                      now_ticks() - sample_.since);
}

bool QueueTuner::see_watched(const Observed &watched, bool idle)
{
	constexpr uint32_t look_again = 64; // completions that leave the queue idle, until N is measured again
	watching_ = false;
	device_.end_watch();
	const int64_t latency = now_ticks() - watched_.since;
	ChannelTuner &tuner = watched.channel;
	const bool normal =
	    watched_.alone && (!tuner.period(watched.kind).normal_is_measured() || std::exchange(measure_normal_, false));
	// L counts only if other work requests were in flight. With `tied` it always counts: a period of one work request
	// never meets others, and would never grow.
	const bool last = !normal && (!watched_.alone || tied_);
	if (normal)
		tuner.see_normal(watched.kind, device_.saw_normal(latency));
	else if (last)
		tuner.see_last(watched.kind, latency, watched_.since + latency, device_.min_normal());
	if (const int64_t known = tuner.period(watched.kind).normal(); last && known)
		device_.saw(static_cast<double>(latency) / static_cast<double>(known));
	if (device_.traces() && (normal || last))
		device_.trace(watched.peer, tuner, watched.kind, latency, normal);
	// N drifts: from time to time it is measured again when the channel is idle.
	if (!idle || ++times_idle_ % look_again != 0)
		return false;
	measure_normal_ = true;
	periods_ = 0;
	return true;
}

QueueTuner::Limits QueueTuner::completed(const Observed &latest, uint32_t count, bool idle)
{
	Limits limits{latest.channel.period(latest.kind).period(), 0};
	if (!tied_) {
		limits.window = latest.channel.completed(latest.kind, count, idle);
		limits.period = period_of(limits.window, device_.shares_doorbells());
	}
	device_.completed(count);
	return limits;
}

void QueueTuner::stop()
{
	if (std::exchange(watching_, false))
		device_.end_watch();
	if (std::exchange(sampling_, false))
		device_.end_watch();
}

} // namespace pt2p::tune
