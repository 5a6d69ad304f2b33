#include "message/request/requests.hpp"

#include <random>

namespace pt2p {

Requests::Requests(const Layers &layers, const PeerLosses &losses, Exposures &exposures, DetailsPool &details,
                   Reporter &reporter, ProgressClient &client, int rank)
    : layers_(layers), losses_(losses), exposures_(exposures), details_(details), reporter_(reporter), client_(client),
      rank_(rank), pool_(std::random_device{}())
{
}

Requests::~Requests()
{
	pool_.for_each([this](Request &r) {
		if (r.special & Request::with_details)
			details_.give(r.details);
	});
}

std::string Requests::take_reason(const Request &r)
{
	const auto known = reasons_.find(r.handle);
	if (known == reasons_.end())
		return {};
	std::string reason = std::move(known->second);
	reasons_.erase(known);
	return reason;
}

Details &Requests::details_of(Request &r)
{
	Details &d = callback_of(r);
	d.callback_only = false;
	return d;
}

// A request that is special has completed.
void Requests::settle(Request &r)
{
	if (r.is_detached())
		finish(r);
	else
		release_details(r);
}

} // namespace pt2p
