// The addresses that ranks have published, fetched one by one when they are needed. Calls are under the lock of the
// job.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/job/pmix/calls.hpp"

namespace pt2p {

class Addresses {
public:
	using Clock = std::chrono::steady_clock;
	static constexpr std::chrono::milliseconds max_pause{200}; // between two gets of one address

	// `key`: under which ranks publish. `on_host`: ranks of this host. `again`: the process has joined the job before.
	void begin(const pmix_proc_t &me, std::string key, std::set<int> on_host, bool again);
	const std::string &key() const { return key_; }
	void set(int rank, const std::string &blob) { known_[rank] = blob; }

	// The address of `rank`, if it is there. Throws Error(PT2P_ERR_EXCHANGE).
	bool take(int rank, std::string &blob);
	// For how long somebody has asked for it in vain; begins now at the first call.
	Clock::duration waited(int rank, Clock::time_point now);
	// Asks the launcher, unless a get is in flight or it is too early for another. Throws Error(PT2P_ERR_EXCHANGE).
	void ask(int rank, Clock::time_point now);
	// The get in flight; null: none, and the next is due at `retry`.
	std::shared_ptr<Answer> in_flight(int rank, Clock::time_point &retry) const;

private:
	struct Request {
		std::shared_ptr<Answer> answer; // null: no get is in flight
		Clock::time_point since{}, not_before{};
		std::chrono::milliseconds pause{1};
		bool peeks = false; // only looks into shared memory
		bool ahead = false; // nobody has asked for it yet
	};

	void start(int rank, Request &request, Clock::time_point now);
	void peek_ahead(int rank, Clock::time_point now);
	bool receive(int rank, Request &request);
	void postpone(int rank, Request &request, pmix_status_t status);

	pmix_proc_t me_{};
	std::string key_;
	std::set<int> on_host_; // ranks whose addresses come to be in shared memory, whatever nodes are pretended
	std::chrono::milliseconds peek_time_{};
	std::map<int, std::string> known_;
	std::map<int, Request> asked_;
	size_t ahead_ = 0; // ranks to look for beside one that is asked for
};

} // namespace pt2p
