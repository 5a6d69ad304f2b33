#include "transports/verbs/tuning/device_tuner.hpp"

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"

namespace pt2p::tune {

DeviceTuner::DeviceTuner(const TransportEnvironment &environment, Batching &batching, uint32_t max_batch)
    : environment_(environment), batching_(batching),
      mode_(environment.config.net_signal_period ? Mode::off : environment.config.tune),
      tunes_staging_(on() && environment.config.net_staging == choice::net_staging::automatic),
      fixed_batch_(static_cast<uint32_t>(std::max<int64_t>(environment.config.net_doorbell_batch, 1))),
      ticks_at_start_(now_ticks()), ns_at_start_(now_ns())
{
	open_trace();
	if (on() && !environment.config.net_doorbell_batch)
		batch_tuner_.emplace(BatchLaw{.max = max_batch, .cut_above = band().cut_above});
}

double DeviceTuner::ticks_in_a_ns() const
{
	return static_cast<double>(now_ticks() - ticks_at_start_) /
	       static_cast<double>(std::max<int64_t>(now_ns() - ns_at_start_, 1));
}

Band DeviceTuner::band() const
{
	const Config &config = environment_.config;
	return {static_cast<double>(config.tune_raise_below) / 100, static_cast<double>(config.tune_cut_above) / 100};
}

PeriodLaw DeviceTuner::period_law(uint32_t depth) const
{
	return {band(), static_cast<uint32_t>(environment_.config.tune_step), depth};
}

WindowLaw DeviceTuner::window_law(uint32_t depth) const
{
	return {
	    .band = band(), .max = depth, .first = first_window(static_cast<uint64_t>(environment_.job.device_sharers()))};
}

void DeviceTuner::tune_batch()
{
	const int64_t now = now_ticks();
	const auto work = static_cast<double>(interval_.work), time = static_cast<double>(now - interval_.since);
	const double ratio = interval_.observed ? interval_.ratios / interval_.observed : 0;
	const uint32_t before = batch_tuner_->batch();
	const uint32_t batch = batch_tuner_->see({work, time, interval_.posted, interval_.doorbells, ratio});
	if (batch != before)
		batching_.use_batch(batch);
	interval_ = {};
	interval_.since = now;
}

void DeviceTuner::open_trace()
{
	const Config &config = environment_.config;
	if (config.tune_trace.empty())
		return;
	const int rank = environment_.job.rank();
	const std::string path = config.tune_trace + (rank ? format(".%d", rank) : "");
	trace_.reset(fopen(path.c_str(), "we"));
	if (trace_)
		fprintf(trace_.get(), "time_ns,peer,kind,period,N_ns,L_ns,ratio\n");
	else
		environment_.reporter.log(LogLevel::error, "PT2P_TUNE_TRACE: %s: %s", path.c_str(), errno_text(errno).c_str());
}

void DeviceTuner::trace(int peer, SizeClass kind, const Trace &seen)
{
	const double ticks = ticks_in_a_ns(), last = static_cast<double>(seen.latency),
	             known = static_cast<double>(seen.normal);
	fprintf(trace_.get(), "%lld,%d,%s,%u,", static_cast<long long>(now_ns() - ns_at_start_), peer,
	        size_class_names[static_cast<size_t>(kind)], seen.period);
	if (seen.idle)
		fprintf(trace_.get(), "%.0f,,\n", last / ticks);
	else
		fprintf(trace_.get(), "%.0f,%.0f,%.3f\n", known / ticks, last / ticks, last / known);
}

} // namespace pt2p::tune
