#include "message/request/exposures.hpp"

#include <string>

#include "base/assert.hpp"
#include "base/report/report.hpp"
#include "channel/channel.hpp"
#include "route/route.hpp"

namespace pt2p {

namespace {

constexpr size_t min_run = 4096; // bytes on average; shorter ones are quicker to pack than to find and to check
constexpr size_t max_runs_registered = 1024; // segments

} // namespace

bool worth_runs(const Endpoint &e, size_t length, size_t count)
{
	return length / count >= min_run && (e.table->get_runs || count <= max_runs_registered);
}

void Exposures::not_exposed(size_t length, const char *why_not)
{
	reporter_.add(Counter::not_exposed);
	reporter_.log(LogLevel::debug, "a message of %zu bytes goes in pieces: %s", length, why_not);
}

bool Exposures::expose(Request &r, Channel &c, void *buffer, size_t length, RemoteMemory &memory)
{
	std::string why_not;
	memory.address = reinterpret_cast<uint64_t>(buffer);
	r.exposure = layers_.router->transport_of(c.endpoint.direct())->expose(buffer, length, memory.key, why_not);
	r.exposed = r.exposure != nullptr;
	if (!r.exposed)
		not_exposed(length, why_not.c_str());
	return r.exposed;
}

uint64_t Exposures::expose_list(Request &r, Channel &c, RemoteMemory &memory)
{
	PT2P_ASSERT(r.in_segments());
	Details &d = *r.details;
	Endpoint &e = c.endpoint.direct();
	if (!(e.capabilities & cap_get) || !worth_runs(e, r.length, d.count))
		return 0;
	Transport &t = *layers_.router->transport_of(e);
	details_.take_buffer(d.exposures, (d.count + 1) * sizeof(void *));
	auto **exposures = static_cast<void **>(d.exposures.memory);
	auto *list = static_cast<Segment *>(d.list.memory);
	std::string why_not;
	for (size_t i = 0; i <= d.count; ++i) {
		exposures[i] = i < d.count ? t.expose(list[i].base(), list[i].length, list[i].key, why_not)
		                           : t.expose(list, d.count * sizeof *list, memory.key, why_not);
		if (exposures[i])
			continue;
		not_exposed(r.length, why_not.c_str());
		while (i)
			t.withdraw(exposures[--i]);
		details_.give_buffer(d.exposures);
		return 0;
	}
	memory.address = reinterpret_cast<uint64_t>(list);
	r.exposure = nullptr;
	r.exposed = true;
	return d.count;
}

void Exposures::withdraw(Request &r)
{
	PT2P_ASSERT(r.exposed);
	r.exposed = false;
	Router &router = *layers_.router;
	Transport &t = *router.transport_of(router.find(r.peer)->endpoint.direct());
	if (!r.in_segments())
		return t.withdraw(r.exposure);
	auto **exposures = static_cast<void **>(r.details->exposures.memory);
	for (size_t i = 0; i <= r.details->count; ++i)
		t.withdraw(exposures[i]);
	details_.give_buffer(r.details->exposures);
}

} // namespace pt2p
