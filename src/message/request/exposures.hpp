// Lets peers read or write the buffers of requests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "message/layers.hpp"
#include "message/request/request.hpp"

namespace pt2p {

class Channel;
struct Endpoint;
class Reporter;

// Whether `length` bytes in `count` segments are read sooner run by run, a get for each segment, than received in
// pieces.
bool worth_runs(const Endpoint &endpoint, size_t length, size_t count);

class Exposures {
public:
	Exposures(const Layers &layers, DetailsPool &details, Reporter &reporter)
	    : layers_(layers), details_(details), reporter_(reporter)
	{
	}

	// The buffer of a request; false when that cannot be done.
	bool expose(Request &request, Channel &channel, void *buffer, size_t length, RemoteMemory &memory);
	// The segments of a send, and the list of them; how many they are, or 0.
	uint64_t expose_list(Request &request, Channel &channel, RemoteMemory &memory);
	// Of an exposed request.
	void withdraw(Request &request);

private:
	void not_exposed(size_t length, const char *why_not);

	const Layers &layers_;
	DetailsPool &details_;
	Reporter &reporter_;
};

} // namespace pt2p
