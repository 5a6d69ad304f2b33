// What a server's device does, and what pt2p_report says of a rank.
#pragma once

#include <array>
#include <cstring>
#include <utility>

#include "softhca/studies/programs/pt2p_job.hpp"

namespace study {

// What pt2p_report says most often of the channels, up to the colon.
inline std::string limit_of(pt2p_context_t *ctx)
{
	size_t needed = 0;
	pt2p_report(ctx, nullptr, 0, &needed);
	std::string text(needed + 1, '\0');
	check(ctx, pt2p_report(ctx, text.data(), text.size(), nullptr), "report");
	std::map<std::string, size_t> said;
	constexpr const char *mark = "limit: ";
	for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
		at += std::strlen(mark);
		++said[text.substr(at, text.find_first_of(":.\n", at) - at)];
	}
	const auto less = [](const auto &a, const auto &b) { return a.second < b.second; };
	const auto most = std::max_element(said.begin(), said.end(), less);
	return most == said.end() ? "-" : most->first;
}

class ServerDevice {
public:
	static constexpr const char *columns = "work_requests,doorbells,blueflames,wqe_reads,pcie_in,pcie_out,pcie_in_%,"
	                                       "pcie_out_%";

	void begin() { count(-1), ++changes_; }
	void end() { count(1), ++changes_; }
	// For the server's first rank, in each turn: has a report made at the beginning, and one at the end, which tells of
	// the time between.
	void look(pt2p_context_t *ctx)
	{
		if (std::exchange(looked_, changes_) != changes_)
			limit_ = limit_of(ctx);
	}
	const std::string &limit() const { return limit_; }
	// Work requests, doorbells, BlueFlame writes, reads of WQEs, and bytes on PCIe to the device and from it, with all
	// overhead, for each of `calls`; and how busy PCIe was in both directions, in % of what the link moves in `took`
	// ns.
	void print(double calls, double took) const
	{
		// Devices are listed in an order of libibverbs's own: the server's is the one to which most is sent.
		const Counts &counts = *std::max_element(counts_.begin(), counts_.end(),
		                                         [](const Counts &a, const Counts &b) { return a.back() < b.back(); });
		for (size_t i = 0; i + 1 < counts.size(); ++i)
			std::printf(",%.3g", counts[i] / calls);
		for (const size_t i : {4, 5})
			std::printf(",%.0f", 100 * counts[i] / took / pcie_rate);
	}

private:
	static constexpr const char *names[] = {"wqes",          "doorbells",      "blueflames",      "wqe_reads",
	                                        "pcie_in_bytes", "pcie_out_bytes", "packets_received"};
	using Counts = std::array<double, std::size(names)>;
	// Bytes in a ns of 16 lanes of the third generation, which Connect-IB and ConnectX-5 have.
	static constexpr double pcie_rate = 15.754;

	void count(double sign)
	{
		for (int device = 0;; ++device) {
			Counts now{};
			for (size_t i = 0; i < now.size(); ++i) {
				uint64_t value;
				if (softhca_counter(names[i], device, 0, &value) != 0)
					return;
				now[i] = static_cast<double>(value);
			}
			counts_.resize(std::max<size_t>(counts_.size(), static_cast<size_t>(device) + 1));
			for (size_t i = 0; i < now.size(); ++i)
				counts_[static_cast<size_t>(device)][i] += sign * now[i];
		}
	}
	std::vector<Counts> counts_; // of each device
	unsigned changes_ = 0, looked_ = 0;
	std::string limit_ = "-";
};

} // namespace study
