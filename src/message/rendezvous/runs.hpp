// Reads an announced message whose data is in segments, at the sender, at the receiver, or at both. A run is contiguous
// on both sides. Several gets are under way; short runs are read many at once where the transport can. What is read
// within a turn is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "message/peers/channels.hpp"
#include "message/request/requests.hpp"
#include "message/wire.hpp"

namespace pt2p {

class RunReader {
public:
	// Who asked for the message.
	class Client {
	public:
		// All runs are over. With an error, its reason is known to the requests.
		virtual void on_runs_read(Request &request, pt2p_status_t status) = 0;
		// The transport has no room for gets: the message has to come in pieces.
		virtual void on_runs_refused(Request &request, Channel &channel) = 0;

	protected:
		~Client() = default;
	};
	RunReader(Channels &channels, Requests &requests, ProgressClient &progress, Client &client)
	    : channels_(channels), requests_(requests), progress_(progress), client_(client)
	{
	}

	// False when runs are not worth it: nothing has happened.
	bool start(Request &request, Channel &channel, const wire::Announcement &announcement);
	// A get of that request is over.
	void on_complete(Request &request, pt2p_status_t status, std::string_view reason);
	bool has_work() const { return !reading_.empty(); }
	// Goes on with messages of which more runs can start; returns how many.
	unsigned drive();

private:
	void fetch_list(Request &request, Endpoint &endpoint, const wire::Announcement &announcement);
	const char *take_list(Request &request);
	void advance(Request &request);
	bool start_some(Request &request, Endpoint &endpoint, size_t &budget);
	void fail(Request &request, pt2p_status_t status, std::string_view reason);
	void resume(Request &request);

	Channels &channels_;
	Requests &requests_;
	ProgressClient &progress_;
	Client &client_;
	std::vector<uint64_t> reading_, reading_now_; // requests that go on in the next turn
};

} // namespace pt2p
