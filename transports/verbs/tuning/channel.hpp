// What is known of one channel for each class of payload: N, the latest L/N, the signal periods in force, and where
// payload is staged. A class is the way by which payload gets to the device, because this way decides what the payload
// costs the device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/config/choices.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/tuning/normal.hpp"
#include "transports/verbs/tuning/staging.hpp"

namespace pt2p::tune {

enum class SizeClass : uint8_t { inlined, device_memory, buffer, bulk };
constexpr size_t size_classes = 4;
constexpr const char *size_class_names[size_classes] = {"inline", "device memory", "buffer", "bulk"};

using Mode = choice::tune;

// Of one class.
class ClassHistory {
public:
	// A change of the period: when, to what, and at which L/N.
	struct Change {
		int64_t when; // ticks
		uint32_t period;
		float ratio;
	};
	static constexpr size_t kept = 8; // changes

	NormalLatency normal;

	// L/N was seen, and the period is this from now on. `scale`: the band of L/N is the law's times this.
	void note(int64_t when, double ratio, uint32_t period, double scale)
	{
		ratio_ = ratio;
		scale_ = scale;
		if (period == period_)
			return;
		(period > period_ ? raises_ : cuts_)++;
		period_ = period;
		changes_[count_++ % kept] = {when, period, static_cast<float>(ratio)};
	}
	// 0: not seen yet.
	double ratio() const { return ratio_; }
	// The signal period in force; at first 1.
	uint32_t period() const { return period_; }
	double scale() const { return scale_; }
	uint64_t raises() const { return raises_; }
	uint64_t cuts() const { return cuts_; }
	// The latest changes, oldest first.
	template <class F>
	void for_each_change(F &&f) const
	{
		for (size_t n = count_ < kept ? 0 : count_ - kept; n != count_; ++n)
			f(changes_[n % kept]);
	}

private:
	double ratio_ = 0, scale_ = 1;
	uint32_t period_ = 1;
	uint64_t raises_ = 0, cuts_ = 0;
	size_t count_ = 0;
	std::array<Change, kept> changes_;
};

class ChannelTuner {
public:
	Stagings stagings;

	ClassHistory &of(SizeClass c) { return classes_[static_cast<size_t>(c)]; }
	const ClassHistory &of(SizeClass c) const { return classes_[static_cast<size_t>(c)]; }
	// N of a class; 0: unknown. A message by any of the ways takes at most twice as long as by another. So a class
	// whose idle channel was only seen while other ranks loaded the device does not take their load for normal.
	int64_t normal(SizeClass c) const
	{
		int64_t n = of(c).normal.value();
		if (!n || c == SizeClass::bulk)
			return n;
		for (const SizeClass other : {SizeClass::inlined, SizeClass::device_memory, SizeClass::buffer})
			if (of(other).normal.known())
				n = std::min(n, 2 * of(other).normal.value());
		return n;
	}
	// For each class that was observed: "inline: signal period 33, N 1200 ns, L/N 1.9, 8 raises, 0 cuts".
	std::string describe(double ticks_in_a_ns) const
	{
		std::string text;
		for (size_t i = 0; i < size_classes; ++i)
			if (const ClassHistory &c = classes_[i]; c.normal.known())
				text += format(
				    "%s%s: signal period %u, N %lld ns, L/N %.1f, %s, %s", text.empty() ? "" : "; ",
				    size_class_names[i], c.period(),
				    static_cast<long long>(static_cast<double>(normal(static_cast<SizeClass>(i))) / ticks_in_a_ns),
				    c.ratio(), counted(c.raises(), "raise").c_str(), counted(c.cuts(), "cut").c_str());
		return text;
	}

private:
	std::array<ClassHistory, size_classes> classes_;
};

} // namespace pt2p::tune
