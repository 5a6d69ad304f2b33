// What is tuned for one channel: the window, the signal period of each class of payload, and where payload is staged. A
// class is the way by which payload gets to the device, because this way decides what the payload costs the device.
#pragma once

#include <array>
#include <string>

#include "base/config/choices.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/tuning/contention.hpp"
#include "transports/verbs/tuning/period.hpp"
#include "transports/verbs/tuning/staging.hpp"
#include "transports/verbs/tuning/window.hpp"

namespace pt2p::tune {

enum class SizeClass : uint8_t { inlined, device_memory, buffer, bulk };
constexpr size_t size_classes = 4;
constexpr const char *size_class_names[size_classes] = {"inline", "device memory", "buffer", "bulk"};

// free: a period does not wait for the previous one; tied: at most one period is in flight, as in the TPL paper.
using Mode = choice::tune;

class ChannelTuner {
public:
	// `depth`: work requests that the queue can hold; `tied`: Mode::tied; `share`: share_of_device(), at most the
	// depth.
	ChannelTuner(const PeriodLaw &law, uint32_t depth, bool tied, uint32_t share)
	    : periods_{PeriodTuner(law), PeriodTuner(law), PeriodTuner(law), PeriodTuner(law)},
	      raise_below_(law.raise_below), depth_(depth), tied_(tied), share_(share), window_(window(law, depth, share_))
	{
	}

	Stagings stagings;

	// A change of the period: when, to what, and at which L/N.
	struct Change {
		int64_t when; // ticks
		uint32_t period;
		float ratio;
	};
	static constexpr size_t kept = 8; // changes per class

	const PeriodTuner &period(SizeClass c) const { return periods_[static_cast<size_t>(c)]; }
	// The window. It is tuned only while all payload is inlined. Fetching other payload takes the device longer than
	// reading a WQE a second time, and delays the WQEs behind it. For such payload the window is the depth, or the
	// share under contention.
	uint32_t window_of(SizeClass c) const
	{
		return c == SizeClass::inlined && only_inlined() ? window_.size() : contention_.contended() ? share_ : depth_;
	}
	// The window grows while L is below this multiple of N.
	double raise_below() const { return raise_below_ * (!tied_ && share_ < depth_ ? WindowLaw{}.alone : 1); }
	// `shared`: work requests share doorbells.
	uint32_t signal_period(SizeClass c, bool shared) const
	{
		return tied_ ? period(c).period() : period_of(window_of(c), shared);
	}
	// `count` work requests have completed, the last of them of class `latest`. `empty`: none is in flight. Returns the
	// window from now on.
	uint32_t completed(SizeClass latest, uint32_t count, bool empty)
	{
		inlined_ = latest == SizeClass::inlined ? std::min(inlined_ + count, unmixed()) : 0;
		if (only_inlined() && empty)
			window_.emptied();
		return only_inlined() && window_.empties() ? 1 : window_of(latest);
	}
	void see_normal(SizeClass c, int64_t latency) { periods_[static_cast<size_t>(c)].see_normal(latency); }
	// `min_normal`: the shortest N that any channel of the device has seen; 0: none has.
	void see_last(SizeClass c, int64_t latency, int64_t now, int64_t min_normal)
	{
		PeriodTuner &p = periods_[static_cast<size_t>(c)];
		const auto times = [&](int64_t normal) { return static_cast<double>(latency) / static_cast<double>(normal); };
		if (!tied_ && c == SizeClass::inlined)
			p.see_min_normal(min_normal);
		else if (!tied_ && min_normal)
			contention_.see(times(min_normal));
		History &h = histories_[static_cast<size_t>(c)];
		const uint32_t before = p.period();
		if (const uint32_t after = p.see_last(latency); after != before)
			h.changes[h.count++ % kept] = {now, after, static_cast<float>(p.ratio())};
		if (c == SizeClass::inlined && only_inlined() && p.normal())
			window_.see(times(p.normal()));
	}
	// The latest changes, oldest first.
	template <class F>
	void for_each_change(SizeClass c, F &&f) const
	{
		const History &h = histories_[static_cast<size_t>(c)];
		for (size_t n = h.count < kept ? 0 : h.count - kept; n != h.count; ++n)
			f(h.changes[n % kept]);
	}
	// For each class that was observed: "inline: signal period 33, N 1200 ns, L/N 1.9, 8 raises, 0 cuts".
	std::string describe(double ticks_in_a_ns, bool shared) const
	{
		std::string text;
		for (size_t i = 0; i < size_classes; ++i) {
			const PeriodTuner &p = periods_[i];
			const double ns = static_cast<double>(p.normal()) / ticks_in_a_ns;
			if (p.normal())
				text += format("%s%s: signal period %u, N %lld ns, L/N %.1f, %s, %s", text.empty() ? "" : "; ",
				               size_class_names[i], signal_period(static_cast<SizeClass>(i), shared),
				               static_cast<long long>(ns), p.ratio(), counted(p.raises(), "raise").c_str(),
				               counted(p.cuts(), "cut").c_str());
		}
		return text;
	}

private:
	struct History {
		size_t count = 0;
		std::array<Change, kept> changes;
	};
	uint32_t unmixed() const { return 4 * depth_; }
	bool only_inlined() const { return inlined_ == unmixed(); }
	static WindowTuner window(const PeriodLaw &law, uint32_t depth, uint32_t share)
	{
		return WindowTuner({.raise_below = law.raise_below,
		                    .cut_above = law.cut_above,
		                    .min = std::min(WindowLaw{}.min, depth),
		                    .max = depth,
		                    .step = law.step,
		                    .share = share});
	}

	std::array<PeriodTuner, size_classes> periods_;
	const double raise_below_;
	const uint32_t depth_;
	const bool tied_;
	const uint32_t share_;
	Contention contention_;
	WindowTuner window_;
	uint32_t inlined_ = unmixed(); // consecutive work requests with inlined payload, up to unmixed()
	std::array<History, size_classes> histories_{};
};

} // namespace pt2p::tune
