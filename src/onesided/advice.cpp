// What the program could do better with its atomic operations.
#include "rpc/laws/advice.hpp"
#include "base/clock.hpp"
#include "onesided/onesided.hpp"

namespace pt2p::onesided {

namespace {

constexpr uint64_t many = 4096; // additions
constexpr double slow = 3;      // times what one alone takes

} // namespace

std::string OneSided::advice(uint32_t device_part, size_t) const
{
	const rpc::laws::DeviceClass *device = rpc::laws::class_of_part(device_part);
	const double ns = static_cast<double>(now_ns() - since_ns_),
	             ticks = static_cast<double>(now_ticks() - since_ticks_);
	std::string text;
	if (!device || ticks <= 0)
		return text;
	remotes_.for_each([&](const Remote &r) {
		if (!r.active || r.additions < many || !r.addition_latency)
			return;
		const double taken = static_cast<double>(r.addition_latency) * ns / ticks;
		const rpc::laws::Contention c = rpc::laws::contention_of(taken, *device);
		if (taken < slow * c.alone_ns || c.call_rate < 2 * c.max_rate)
			return;
		text += format(
		    "  advice: this rank's %llu fetch-and-adds on memory of rank %d take %.1f us each, and one alone takes "
		    "%.1f us. Some %.0f are at the word at a time, which a device does one after the other: %.1f M a second "
		    "for all ranks. A call would carry %.0f times as many, see pt2p_icall(3)\n",
		    static_cast<unsigned long long>(r.additions), r.rank, taken / 1e3, c.alone_ns / 1e3, c.waiting,
		    c.max_rate / 1e6, c.call_rate / c.max_rate);
	});
	return text;
}

} // namespace pt2p::onesided
