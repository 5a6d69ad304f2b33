#include "transports/verbs/device/pcie.hpp"

#include <algorithm>
#include <fstream>

namespace pt2p::verbs {

// "8.0 GT/s PCIe" and "16".
double pcie_rate(const std::string &folder)
{
	double transfers = 0, lanes = 0; // 10^9 a second and lane
	std::ifstream(folder + "/current_link_speed") >> transfers;
	std::ifstream(folder + "/current_link_width") >> lanes;
	constexpr double third_generation = 8; // it codes 128 bits in 130, those before it 8 in 10
	const double coded = transfers < third_generation ? 8.0 / 10 : 128.0 / 130;
	return transfers > 0 && lanes > 0 ? transfers * 1e9 / 8 * coded * lanes : 0;
}

void PcieMeter::read(int64_t now, const PcieTraffic &traffic)
{
	constexpr int64_t min_interval = 20'000; // ns
	if (now - when_ < min_interval)
		return;
	const double seconds = static_cast<double>(now - when_) * 1e-9;
	// What was counted for a peer that is gone is gone.
	facts_.to_device = std::max(traffic.to_device() - last_.to_device(), 0.0) / seconds;
	facts_.from_device = std::max(traffic.from_device() - last_.from_device(), 0.0) / seconds;
	last_ = traffic;
	when_ = now;
}

} // namespace pt2p::verbs
