// The message engine: MPI-style two-sided messages over channels. It knows tags, ranks, order, eager and rendezvous; it
// knows nothing of how a transport moves bytes.
//
//   eager        EAGER(tag, payload)                                 the payload is copied when sent
//   synchronous  SYNCHRONOUS(tag, token, payload) -->                the same, and the sender is told of the match;
//                                  <-- FINISHED                      long ones, and those without room, are announced
//   rendezvous   ANNOUNCE(tag, length, memory) -->                   the receiver reads the sender's memory:
//                                  <-- FINISHED                      get by the transport, no copy in between
//                or                <-- ACCEPT(length, memory)         the sender writes the receiver's memory:
//                WRITTEN -->                                         put by the transport, then a notice
//                or                <-- ACCEPT(length)                where neither can be done:
//                PIECE, PIECE, ... -->                               the sender streams pieces
//
// Order: EAGER and ANNOUNCE of one pair travel in order on one channel and are matched in the order of arrival.
// Unexpected messages beyond the byte budget: STOP_EAGER tells the sender to announce only, RESUME_EAGER undoes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <pthread.h>
#include <set>
#include <string>
#include <vector>

#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"
#include "message/details.hpp"
#include "message/extension.hpp"
#include "message/matching.hpp"
#include "message/request.hpp"
#include "progress/progress.hpp"
#include "base/report/report.hpp"
#include "route/route.hpp"

namespace pt2p {

struct RankEvent;

class Engine final : public SendPacing, public TransportEvents, public ChannelClient, public ProgressClient {
public:
	Engine(const Config &config, Reporter &reporter, Job &job);
	~Engine();
	void use(Router &router, Progress &progress, pt2p_context_t *context)
	{
		router_ = &router;
		progress_ = &progress;
		context_ = context;
	}
	bool is_rank(int rank) const { return static_cast<unsigned>(rank) < static_cast<unsigned>(size_); }

	// For the one-sided layer.
	void extend(Extension &extension) { extension_ = &extension; }
	// Has the extension driven in the next turn.
	void wake_extension() { has_work = true; }
	// A request for an operation on memory of `peer`, and its end.
	Request *start_one_sided(const char *operation, size_t length, int peer, uint64_t offset);
	void finish_one_sided(Request &request, pt2p_status_t status, std::string_view reason = {}) { complete(request, status, reason); }
	// The channel to a rank, connected if need be; null when it cannot be reached: `status` says why, and the explanation
	// has been recorded.
	Channel *reach(int rank, pt2p_status_t &status) { return channel(rank, status); }
	// PT2P_OK, or how a rank was lost, with the reason.
	pt2p_status_t loss_of(int rank, std::string &reason) const;
	std::string why_unreached(int rank) const;

	// Whether a send to that rank can be started; connects. If not, `status` says why and the explanation has been recorded.
	bool reaches(int rank, pt2p_status_t &status) { return channel(rank, status); }
	// Start an operation. Arguments have been checked. Null when it could not be started: `status` says why and the
	// explanation has been recorded.
	Request *isend(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_status_t &status);
	// As isend; done when a receive has matched the message.
	Request *issend(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_status_t &status);
	Request *irecv(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask, pt2p_status_t &status)
	{
		return irecv(buffer, capacity, source, tag, mask, status, nullptr);
	}
	// isend and irecv with data in segments, `length` bytes altogether.
	Request *isend(const pt2p_iovec_t *segments, size_t count, size_t length, int dest, uint64_t tag, pt2p_status_t &status);
	Request *irecv(const pt2p_iovec_t *segments, size_t count, size_t capacity, int source, uint64_t tag, uint64_t mask,
	               pt2p_status_t &status);

	// The same where nothing is out of the ordinary: no memory to get, no message waiting, no rank lost. False: nothing has
	// happened, and it takes the other way.
	// Everything is in place before the message leaves, so that nothing has to be kept over the call.
	bool isend_at_once(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_request_t **req)
	{
		Request *r = requests_.peek();
		Channel *c = router_->find(dest);
		if (__builtin_expect(!r || !c || !c->free_for(length), 0))
			return false;
		start_send(*r, length, dest, tag, Request::State::done);
		r->buffer = const_cast<void *>(buffer);
		*req = to_handle(r);
		requests_.take(*r);
		count_eager(length);
		if (__builtin_expect(c->send(id_eager, tag, buffer, length) != Outcome::done, 0))
			queue_eager(*r);
		return true;
	}
	Request *irecv_at_once(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask)
	{
		Request *r = requests_.peek();
		if (__builtin_expect(!r || (matcher_.unexpected() | losses_.size()), 0))
			return nullptr;
		start_receive(*r, buffer, capacity, source, tag, mask);
		if (__builtin_expect(!matcher_.post_at_once(*r), 0)) {
			r->state = Request::State::free;
			return nullptr;
		}
		requests_.take(*r);
		return r;
	}
	// Sends a short message without a request; false when it takes one.
	bool send_at_once(const void *buffer, size_t length, int dest, uint64_t tag)
	{
		Channel *c = router_->find(dest);
		if (__builtin_expect(!c || !c->free_for(length) || c->send(id_eager, tag, buffer, length) != Outcome::done, 0))
			return false;
		count_eager(length);
		return true;
	}
	bool find_unexpected(int source, uint64_t tag, uint64_t mask, pt2p_result_t &result);
	// Takes the oldest such message out of matching: only irecv_taken can receive it. Null: there is none.
	UnexpectedMessage *take(int source, uint64_t tag, uint64_t mask, pt2p_result_t &result);
	UnexpectedMessage *find_taken(uint64_t handle) const
	{
		UnexpectedMessage *m = messages_.find(handle);
		return m && m->taken ? m : nullptr;
	}
	Request *irecv_taken(void *buffer, size_t capacity, UnexpectedMessage &message);
	// A call that waits for a rank that cannot send any more, as a probe does, fails with this status. From any source it
	// fails once for each rank that is lost, whatever receives have been told: with `since`, losses_told() when the call
	// began, all calls do that are under way then.
	pt2p_status_t awaited_status(int source, unsigned since);
	unsigned losses_told() const { return losses_told_; }
	// While one exists, a call waits for that rank without a receive; PT2P_ANY_SOURCE: for whomever.
	class Awaiting {
	public:
		Awaiting(Engine &engine, int source) : engine_(engine), source_(source) { engine_.awaited_.push_back(source); }
		~Awaiting() { engine_.awaited_.erase(std::find(engine_.awaited_.begin(), engine_.awaited_.end(), source_)); }
		Awaiting(const Awaiting &) = delete;
		Awaiting &operator=(const Awaiting &) = delete;

	private:
		Engine &engine_;
		const int source_;
	};
	void cancel(Request &request);
	pt2p_status_t barrier();
	// How messages to that rank are delivered from now on; connects.
	pt2p_status_t set_delivery(int rank, pt2p_delivery_t delivery);

	// The request that the program knows by this handle.
	Request *find(uint64_t handle) const
	{
		Request *r = requests_.find(handle);
		return r && r->active() && !r->is_detached() ? r : nullptr;
	}
	// The same if it has completed.
	Request *find_done(uint64_t handle) const
	{
		Request *r = requests_.find(handle);
		return r && r->done() ? r : nullptr;
	}
	// What the program gets to know of a request that has completed.
	pt2p_result_t result_of(const Request &r) const
	{
		return {r.status, r.is_send ? rank_ : r.peer, r.message_tag, r.length};
	}
	// Hands the outcome of a request over and frees it; records an explanation when it failed.
	pt2p_status_t collect(Request *request, pt2p_result_t *result)
	{
		if (result)
			*result = result_of(*request);
		const pt2p_status_t status = request->status;
		if (__builtin_expect(status != PT2P_OK, 0))
			explain(*request);
		release(request);
		return status;
	}
	// Frees a request that has completed and that nobody is told of.
	void discard(Request &request);
	void release(Request *request)
	{
		request->state = Request::State::free;
		requests_.give(request);
	}

	// Detached requests: nobody waits for them, and the program's handle is dead. With a callback, that is called once, in a
	// later turn.
	void detach(Request &request, pt2p_callback_t callback = nullptr, void *argument = nullptr);
	// Whether this thread is in a callback.
	bool in_handler() const { return handler_running_ && pthread_equal(handler_, pthread_self()); }
	// While one exists, no callback is called.
	class NoCallbacks {
	public:
		explicit NoCallbacks(Engine &engine) : engine_(engine) { ++engine_.callbacks_held_; }
		~NoCallbacks() { --engine_.callbacks_held_; }
		NoCallbacks(const NoCallbacks &) = delete;
		NoCallbacks &operator=(const NoCallbacks &) = delete;

	private:
		Engine &engine_;
	};
	// pt2p_finalize has given up waiting: every callback that has not been called is, and none can be asked for any more.
	void end_detached();
	bool ending() const { return ending_; }

	// For pt2p_finalize.
	bool pending() const;
	std::string unfinished() const;

	// For queries, and for src/inspect.
	pt2p_peer_state_t peer_state(int rank) const;
	struct Loss {
		pt2p_status_t status;
		std::string reason;
		bool reported;   // to a receive from any source
		unsigned number; // it was the so many-th rank to be lost; 0: it has finalized
	};
	const std::map<int, Loss> &losses() const { return losses_; } // ranks that are lost or have finalized
	const HandlePool<Request> &requests() const { return requests_; }
	const HandlePool<UnexpectedMessage> &messages() const { return messages_; }
	const Matcher &matcher() const { return matcher_; }
	const Extension *extension() const { return extension_; }
	uint64_t barriers() const { return barrier_epoch_; } // so far
	size_t reasons() const { return reasons_.size(); }   // kept for requests that have failed

	// From the transports.
	void on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length) override;
	void on_complete(void *operation, pt2p_status_t status, std::string_view reason) override;
	void on_peer_down(int peer, pt2p_status_t status, std::string_view reason) override;
	void on_connect_failure(int peer, pt2p_status_t status) override;
	void on_refused(int peer, pt2p_status_t status, std::string_view reason) override;
	// From channels and progress.
	void on_sent(void *owner) override;
	unsigned drive() override;
	void check() override;

	enum Id : uint8_t {
		id_eager = 1,
		id_announce,
		id_accept,
		id_piece,
		id_finished,
		id_written,
		id_stop_eager,
		id_resume_eager,
		id_barrier,
		id_synchronous,
		id_barrier_failed,
	};
	struct Announcement {
		uint64_t length, token;
		RemoteMemory memory;
		uint64_t exposed; // 0: `memory` may not be read; 1: it may; more: it is a list of so many segments
	};
	struct Acceptance {
		uint64_t token, length;
		RemoteMemory memory;
		uint64_t exposed; // whether `memory` may be written: else in pieces
	};

private:
	Channel *channel(int rank, pt2p_status_t &status)
	{
		Channel *c = router_->find(rank);
		return __builtin_expect(c && !c->down(), 1) ? c : connect(rank, status);
	}
	[[gnu::noinline, gnu::cold]] Channel *connect(int rank, pt2p_status_t &status);
	static void start_send(Request &r, size_t length, int dest, uint64_t tag, Request::State state)
	{
		r.state = state;
		r.is_send = true;
		r.awaits_answer = r.in_pieces = false; // neighbours: the four are one store
		r.status = PT2P_OK;
		r.peer = dest;
		r.message_tag = tag;
		r.length = length;
	}
	static void start_receive(Request &r, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask)
	{
		r.source = source;
		r.tag = tag;
		r.mask = mask;
		r.is_send = false;
		r.state = Request::State::posted;
		r.status = PT2P_OK;
		r.peer = source;
		r.message_tag = tag;
		r.length = 0;
		r.buffer = buffer;
		r.room = static_cast<int64_t>(capacity);
	}
	[[gnu::noinline]] void on_eager(int peer, uint64_t tag, const void *data, size_t length);
	void on_synchronous(int peer, uint64_t tag, const void *data, size_t length);
	[[gnu::noinline]] void on_control(int peer, uint8_t id, uint64_t header, const void *data, size_t length);
	void list(Channel &channel);
	[[gnu::noinline, gnu::cold]] void queue_eager(Request &request);
	void control(Channel &channel, Id id, uint64_t header, const void *data, size_t length);
	void count_eager(size_t length)
	{
		reporter_.add(Counter::eager_sent);
		reporter_.add(Counter::bytes_sent, length);
	}
	void complete(Request &request, pt2p_status_t status)
	{
		if (__builtin_expect(request.exposed, 0))
			withdraw(request);
		request.state = Request::State::done;
		request.status = status;
		if (__builtin_expect(request.special, 0))
			settle(request);
	}
	// With a reason, which explain() tells.
	void complete(Request &request, pt2p_status_t status, std::string_view reason)
	{
		if (__builtin_expect(!reason.empty(), 0))
			reasons_[request.handle] = reason;
		complete(request, status);
	}
	[[gnu::noinline, gnu::cold]] void explain(const Request &request);
	std::string take_reason(const Request &request);
	// Why the peer of a request that is done is gone; empty: it is not.
	std::string loss_of(const Request &request) const;
	void deliver(Request &request, int peer, uint64_t tag, const void *data, size_t length);
	[[gnu::noinline, gnu::cold]] void deliver_otherwise(Request &request, const void *data);
	Request *irecv(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask, pt2p_status_t &status,
	               Details *details);

	// Unexpected messages.
	UnexpectedMessage &make_unexpected(int peer, uint64_t tag, size_t length);
	[[gnu::noinline]] void keep_eager(int peer, uint64_t tag, const void *data, size_t length);
	void keep(UnexpectedMessage &message, const void *data);
	[[gnu::noinline]] void take_unexpected(Request &request, UnexpectedMessage &message);
	void hand_over(Request &request, UnexpectedMessage &message);
	void drop_unexpected(UnexpectedMessage &message);
	void stop_eager(int peer);
	void resume_eager();

	// rendezvous.cpp
	[[gnu::noinline]] void announce(Request &request, Channel &channel);
	void announce_queued(Channel &channel);
	void acknowledge(int peer, uint64_t token);
	void on_announce(int peer, uint64_t tag, const Announcement &announcement);
	// Whether there is a channel to answer an announcement of `length` bytes on. If not, the receive has failed, and a later one
	// can have the message, unless its sender is gone.
	bool can_answer(Request &request, int peer, uint64_t tag, size_t length);
	void fetch(Request &request, int peer, const Announcement &announcement);
	void finish_fetch(Request &request, pt2p_status_t status, std::string_view reason = {});
	void arrived(Request &request);
	void on_accept(int peer, uint64_t token, const Acceptance &acceptance);
	void on_piece(int peer, uint64_t token, const void *data, size_t length);
	void on_finished(int peer, uint64_t token, uint32_t status);
	void on_written(int peer, uint64_t token, uint32_t status);
	bool expose(Request &request, Channel &channel, void *buffer, size_t length, RemoteMemory &memory);
	void withdraw(Request &request);
	void finish_writing(Request &request, pt2p_status_t status, std::string_view reason = {});
	Announcement announcement(Request &request, Channel &channel, const void *data, size_t length);

	void accept(Request &request, Channel &channel, bool expose_buffer);

	// segments.cpp
	void copy_list(Details &details, const pt2p_iovec_t *segments, size_t count);
	uint64_t expose_list(Request &request, Channel &channel, RemoteMemory &memory);
	bool fetch_runs(Request &request, Channel &channel, const Announcement &announcement);
	void start_runs(Request &request);
	bool start_some(Request &request, Endpoint &endpoint, size_t &budget);
	const char *take_list(Request &request);
	void fail_runs(Request &request, const Refusal &why);
	void on_run(Request &request, pt2p_status_t status, std::string_view reason);
	void resume_runs(Request &request);
	unsigned drive_runs();
	void stream_segments(Request &request, Channel &channel, uint64_t token, size_t length);

	// detached.cpp
	Details &details_of(Request &request);
	Details *take_details();
	void give_details(Details *details);
	void take_buffer(Details::Buffer &buffer, size_t bytes);
	void give_buffer(Details::Buffer &buffer);
	[[gnu::noinline, gnu::cold]] void settle(Request &request);
	unsigned free_finished();
	void call(pt2p_callback_t callback, const pt2p_result_t &result, void *argument) noexcept;

	// barrier.cpp
	void on_barrier(int peer, uint64_t header);
	void on_barrier_failed(int peer, uint64_t failure, uint64_t epoch);
	void barrier_failed(uint64_t epoch, uint64_t failure, int unreached = -1);
	void barrier_refused(int peer, pt2p_status_t status, unsigned tokens);
	void pay_tokens(Channel &channel, unsigned round);
	// A request that a peer's message names, if it is what the message takes it for.
	Request *named(uint64_t token, int peer, bool is_send);
	void malformed(int peer, const char *what);
	void declare_down(int peer, pt2p_status_t status, const std::string &reason);
	void on_rank_event(const RankEvent &event);
	void examine_sources();
	void examine(int source);
	bool is_down(int peer) const { return !losses_.empty() && losses_.count(peer); }
	pt2p_status_t source_status(int source);
	pt2p_status_t any_source_lost(int peer, const Loss &loss);

	const Config &config_;
	Reporter &reporter_;
	Job &job_;
	Router *router_ = nullptr;
	Progress *progress_ = nullptr;
	const int rank_, size_;

	HandlePool<Request> requests_;
	Matcher matcher_;
	HandlePool<UnexpectedMessage> messages_;
	BufferPool buffers_;
	size_t unexpected_bytes_ = 0;
	std::vector<unsigned char> staged_; // token and payload of a synchronous message while it is sent
	std::vector<int> eager_refused_; // peers that were told to announce only
	std::vector<Channel *> busy_;    // channels with something waiting
	std::map<int, Loss> losses_;
	std::map<uint64_t, std::string> reasons_; // of requests that have failed, by handle, where more is known than the status
	std::map<int, std::string> unreached_; // why the last try to connect failed
	unsigned losses_counted_ = 0, losses_told_ = 0; // ranks that are lost; those that a call that awaits any source was told of
	std::vector<int> awaited_;       // ranks that calls without a receive wait for
	std::set<int> examined_;         // ranks that somebody waits for and that are known to be reachable
	Extension *extension_ = nullptr;

	pt2p_context_t *context_ = nullptr;
	Pool<Details> details_;
	Fifo<Request> finished_; // detached, in order of completion
	unsigned callbacks_held_ = 0;
	bool handler_running_ = false, ending_ = false;
	pthread_t handler_{};
	std::vector<uint64_t> reading_, reading_now_; // receives that go on with their runs in the next turn

	int barrier_from_; // whose token a barrier waits for; this rank: nobody's
	uint64_t barrier_epoch_ = 0;
	uint64_t barrier_tokens_[32] = {};
	std::map<uint64_t, uint64_t> barrier_failures_; // by barrier: header of a token that reported a failure
	std::string barrier_lacks_;                     // what this rank cannot do in a barrier that fails for it
	std::map<int, unsigned> owed_tokens_;           // by rank: tokens of barriers that have failed which it has not got
};

} // namespace pt2p
