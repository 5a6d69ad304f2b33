#include "transports/verbs/tuning/queue_tuner.hpp"

#include <utility>

namespace pt2p::tune {

namespace {

template <size_t... I>
std::array<PeriodTuner, sizeof...(I)> for_each_class(const PeriodLaw &law, std::index_sequence<I...>)
{
	return {(static_cast<void>(I), PeriodTuner(law))...};
}

} // namespace

QueueTuner::QueueTuner(DeviceTuner &device, uint32_t depth)
    : device_(device),
      window_(device.on() && !device.is_paper() ? std::optional<WindowTuner>(device.window_law(depth)) : std::nullopt),
      periods_(for_each_class(device.period_law(depth), std::make_index_sequence<size_classes>()))
{
}

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

uint32_t QueueTuner::period(SizeClass kind) const
{
	return window_ ? window_->period(device_.shares_doorbells()) : periods_[static_cast<size_t>(kind)].period();
}

void QueueTuner::see_watched(const Observed &watched)
{
	watching_ = false;
	device_.end_watch();
	const int64_t now = now_ticks(), latency = now - watched_.since;
	ClassHistory &history = watched.channel.of(watched.kind);
	NormalLatency &normal = history.normal;
	if (watched_.emptied)
		normal.see(latency);
	else if (watched_.alone)
		normal.see_idle(latency);
	if (window_)
		next_ = watched_.number + window_->distance();
	// An L without an N is worth nothing, and what is always busy shows none.
	if (!normal.known()) {
		if (window_)
			window_->run_empty();
		return;
	}
	// The program has not looked for so long that the latency is its own.
	if (device_.unpolled() > std::max(normal.value() / 4, latency / 8))
		return;
	normal.see_any(latency);
	const int64_t known = watched.channel.normal(watched.kind);
	const double ratio = static_cast<double>(latency) / static_cast<double>(known);
	if (window_)
		window_->see(ratio, watched_.alone);
	else
		periods_[static_cast<size_t>(watched.kind)].see(ratio);
	// With the paper's law it always counts: a period of one work request never meets others, and would never grow.
	const bool last = !watched_.alone || !window_;
	if (last) {
		history.note(now, ratio, period(watched.kind), window_ ? window_->scale() : 1);
		device_.saw(window_ ? ratio / window_->scale() : ratio);
	}
	if (device_.traces())
		device_.trace(watched.peer, watched.kind, {known, latency, history.period(), !last});
}

QueueTuner::Limits QueueTuner::completed(const Observed &latest, uint32_t upto, uint32_t count, uint32_t left)
{
	constexpr uint32_t look_again = 64; // completions that leave the queue idle, until N is measured again
	device_.completed(count);
	if (!window_) {
		const uint32_t one = period(latest.kind);
		return {one, one, left == 0 && ++times_idle_ % look_again == 0};
	}
	window_->completed(count, left + count >= window_->size());
	const bool emptied = left == 0 && window_->emptied();
	const bool measure = left == 0 && (emptied || ++times_idle_ % look_again == 0);
	if (measure) {
		emptied_ = emptied;
		next_ = upto + 1;
	}
	return {period(latest.kind), window_->empties() ? 1 : window_->size(), measure};
}

void QueueTuner::stop()
{
	if (std::exchange(watching_, false))
		device_.end_watch();
	if (std::exchange(sampling_, false))
		device_.end_watch();
}

} // namespace pt2p::tune
