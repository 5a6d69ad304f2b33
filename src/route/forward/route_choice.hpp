// Whether small messages are forwarded now: always with PT2P_ROUTE=forward, and with auto as the trial (trial.hpp)
// says.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/report/report.hpp"
#include "route/forward/trial.hpp"

namespace pt2p {

class RouteChoice {
public:
	RouteChoice(const Config &config, Reporter &reporter)
	    : reporter_(reporter), automatic_(config.route == choice::route::automatic),
	      changes_(static_cast<size_t>(config.dct_initiators))
	{
	}

	bool automatic() const { return automatic_; }
	bool forwards() const { return !automatic_ || trial_.path() == tune::Path::forwarded; }
	const tune::RouteTrial &trial() const { return trial_; }

	// A small message to `rank` has been sent; `settled` as in RouteTrial::sent.
	void sent(int rank, bool settled)
	{
		changes_.sent_to(rank);
		if (trial_.sent(changes_.rate(), settled, now_ns))
			reporter_.add(Counter::forward_changes);
	}
	// An envelope has come. True: its sender does not know that the trial is over, and plain messages do not say so.
	bool heard(uint32_t epoch, int16_t report)
	{
		if (!automatic_)
			return false;
		if (trial_.heard(epoch, report, now_ns))
			reporter_.add(Counter::forward_changes);
		return epoch != trial_.epoch() && !trial_.in_trial();
	}
	// For the summary, with PT2P_ROUTE=auto.
	std::string reason() const
	{
		std::string text =
		    format("targets would change with %.0f %% of all messages if they went directly, ", 100 * changes_.rate());
		if (!trial_.trials())
			return text + "and no trial was held";
		text += format("and in %s, the last of which found forwarding %.2f times as quick, the choice changed %s",
		               counted(trial_.trials(), "trial").c_str(), trial_.gain(),
		               counted(reporter_.read(Counter::forward_changes), "time").c_str());
		return text +
		       (trial_.in_trial() ? "; one is being held" : "; the next after " + counted(trial_.rest(), "message"));
	}

private:
	Reporter &reporter_;
	const bool automatic_;
	tune::TargetChanges changes_;
	tune::RouteTrial trial_;
};

} // namespace pt2p
