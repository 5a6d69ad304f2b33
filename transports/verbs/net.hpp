// A rank on its RDMA device: what all transports over verbs share. Completion queues, one shared receive queue, buffers, device
// memory, registrations; and the one place where completions are read.
#pragma once

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"
#include "base/clock.hpp"
#include "transports/verbs/device/buffers.hpp"
#include "transports/verbs/qp/completions.hpp"
#include "transports/verbs/device/registrations.hpp"
#include "transports/verbs/qp/send_queue.hpp"
#include "transports/verbs/wireup.hpp"
#include "transports/verbs/tuning/batch.hpp"

namespace pt2p::verbs {

// Who makes connections, and hears of them.
class Connector {
public:
	virtual void on_wireup(const WireupMessage &message) = 0;
	// A message has come from a rank that was not ready.
	virtual void on_heard(int rank) = 0;

protected:
	~Connector() = default;
};

class Net {
	const TransportEnvironment environment_;
	const int rank_, size_;
	const std::unique_ptr<Device> device_;
	std::string device_memory_reason_;

public:
	DeviceMemory device_memory;

	// The one of this context, opened by the first who asks. Null, with the reason in `why_not`, when there is no device;
	// throws Error when the one that was asked for cannot be used.
	static std::shared_ptr<Net> open(const TransportEnvironment &environment, std::string &why_not);
	Net(const TransportEnvironment &environment, std::unique_ptr<Device> device);
	~Net();

	const TransportEnvironment &environment() const { return environment_; }
	const Config &config() const { return environment_.config; }
	Reporter &reporter() const { return environment_.reporter; }
	int rank() const { return rank_; }
	const Device &device() const { return *device_; }
	// For a send queue: to be asked for each, just before it is made. Throws Error: there is no room for another.
	ibv_cq *cq_with_room() { return completions_.with_room(); }
	// For what only receives.
	ibv_cq *cq() const { return completions_.first(); }
	ibv_srq *srq() const { return srq_.get(); }
	Wireup &wireup() { return *wireup_; }
	static size_t max_payload(size_t message_bytes) { return message_bytes - sizeof(MessageHeader); }
	size_t max_payload() const { return max_payload(message_bytes_); }
	uint32_t depth() const { return depth_; }
	uint32_t period() const { return period_; }
	double ticks_in_a_ns() const;
	int64_t ticks_at_start() const { return ticks_at_start_; }
	tune::Mode tuning() const { return tuning_; }
	// For a queue of this depth.
	tune::PeriodLaw law(uint32_t depth) const;
	// Whether device memory or a buffer is chosen by what is measured.
	bool tunes_staging() const { return tunes_staging_; }
	// Null: the batch is fixed.
	const tune::BatchTuner *batch_tuner() const { return batch_tuner_ ? &*batch_tuner_ : nullptr; }
	// PT2P_TUNE_TRACE: what the tuner has seen of a work request, L or N.
	bool traces() const { return trace_ != nullptr; }
	void trace(const Peer &peer, tune::SizeClass kind, int64_t latency, bool normal);
	// A queue observes the latency of a work request, or no longer.
	void begin_watch()
	{
		++watching_;
		environment_.events.pacing.look_soon();
	}
	void end_watch() { --watching_; }

	// Reads completions and delivers what has come; `caller` is one of the transports that share this, and only the calls
	// of one of them do anything. Returns how many messages were delivered.
	unsigned progress(const void *caller);
	// As progress, whoever calls.
	unsigned progress();
	// Calls of it so far.
	uint64_t turns() const { return turns_; }
	// Whether the last progress() found nothing at all.
	bool drained() const { return drained_; }
	// Events of the device; for one of the transports, as progress(). Every few milliseconds.
	void check(const void *caller);
	// From here on to the end, what is posted is rung for together.
	void cork(bool corked);
	// For sleeping, as Transport's; for one of the transports, as progress().
	bool arm(const void *caller);
	int wake_fd() const;
	void disarm(const void *caller);

	Connector *connector = nullptr;
	// Of each rank that has an endpoint here; `depth`: of the queue that its messages go through.
	void set_peer(Peer &peer, uint32_t depth);
	// As Transport's; at first as PT2P_NET_DELIVERY says.
	void set_delivery(Peer &peer, pt2p_delivery_t delivery);
	Peer *peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
	void drop_peer(int rank)
	{
		peers_[static_cast<size_t>(rank)] = nullptr;
		expected_[static_cast<size_t>(rank)].unusual = true;
	}
	// Its connection is not there, or there no more.
	void not_ready(Peer &peer)
	{
		peer.ready = false;
		expected_[static_cast<size_t>(peer.peer)].unusual = true;
	}
	// Nothing goes to that rank any more. May be called at any time.
	void take_down(Peer &peer, pt2p_status_t status, const std::string &reason);
	// Nothing goes to that rank for now, and nothing has yet: what waits for it fails.
	void put_off(Peer &peer, pt2p_status_t status, const std::string &reason);
	// As Transport's; for one of the transports, as progress().
	void unconnected_senders(const void *caller, std::vector<int> &ranks) const;
	// Nothing need be told to that rank, which has no endpoint here.
	void forget_unconnected(int rank) { expected_[static_cast<size_t>(rank)].gone = true; }
	// Says goodbye to all peers, and waits until what was posted has arrived.
	void leave(const void *caller);

	// A one-sided operation; `wanted` is copied.
	Outcome start(const Operation &wanted);
	// Why the last one was refused.
	const Refusal &refusal() const { return refusal_; }
	void *expose(void *memory, size_t length, uint64_t &key, std::string &why_not);
	void withdraw(void *exposure) { registrations_.release(static_cast<Registration *>(exposure)); }
	void forget(const void *memory, size_t length) { registrations_.forget(memory, length); }

	// For SendQueue.
	void add(SendQueue &queue);
	void remove(SendQueue &queue, const ibv_cq *cq, uint32_t number); // its queue pair, which is gone
	void forget(const ibv_cq *cq, uint32_t number) { completions_.forget(cq, number); }
	// Whether queues are written and read directly, without verbs.
	bool direct() const { return direct_; }
	// Whether a doorbell may take its entry along.
	bool entries_with_doorbells() const;
	std::vector<std::unique_ptr<mlx5::DoorbellRegister>> registers;
	// So many work requests share a doorbell from now on, when they are posted in one go.
	void use_batch(uint32_t work_requests);
	uint32_t batch() const { return usual_batch_; }
	// Whether that is for good more than one: a trial of the tuner's is to change nothing else.
	bool shares_doorbells() const { return (batch_tuner_ ? batch_tuner_->accepted() : usual_batch_) != 1; }
	// For the tuner of the batch, while there is one: what queues have rung for together, what is complete, and L/N of the last
	// of a period.
	void rang(uint32_t work_requests)
	{
		interval_.posted += work_requests;
		++interval_.doorbells;
	}
	void completed(uint32_t work_requests)
	{
		if ((interval_.work += work_requests) >= tune::BatchLaw::interval)
			tune_batch();
	}
	// N, of any channel.
	int64_t saw_normal(int64_t latency)
	{
		least_normal_ = least_normal_ ? std::min(least_normal_, latency) : latency;
		return latency;
	}
	int64_t least_normal() const { return least_normal_; } // 0: not seen yet
	// L/N
	void saw(double ratio)
	{
		interval_.ratios += ratio;
		++interval_.observed;
	}
	// Whether work requests wait for others before a doorbell is rung.
	bool batches() const { return batch_ != 1; }
	// Longest payload that goes inside a work request, bytes.
	int64_t most_inline_payload() const;
	void list(SendQueue &queue);
	void posted(SendQueue &queue, uint32_t unrung)
	{
		if (__builtin_expect(unrung >= batch_, 1))
			queue.ring();
		else if (!queue.listed)
			list(queue);
	}
	void rung(SendQueue &queue)
	{
		if (__builtin_expect(queue.listed, 0))
			unlist(queue);
	}
	void part_done(Operation &operation, size_t bytes);
	void part_failed(Operation &operation, size_t bytes, pt2p_status_t status, const char *reason);
	// Its owner will be told outside of the reading of completions, when everything that is there has been read.
	void report_broken(SendQueue &queue, ibv_wc_status status);

	uint32_t take_buffer() { return free_buffers_.take(); }
	void give_buffer(uint32_t place) { free_buffers_.give(place); }
	bool buffers_scarce() const { return free_buffers_.count() < buffer_count_ / 2; }
	unsigned char *buffer(uint32_t place) const { return sends_.at(place * message_bytes_); }
	uint32_t buffer_key() const { return sends_.key(); }
	// Rings (ring.hpp).
	bool ring_has_room(Peer &peer) { return look_at_ring(peer) && peer.ring.has_room(); }
	bool has_been_read(Peer &peer, uint32_t number)
	{
		look_at_ring(peer);
		return static_cast<int32_t>(peer.ring.read - number) >= 0;
	}
	void ask_for_ring(Peer &peer);

	// Where the device puts what an atomic operation has found.
	uint32_t take_result() { return free_results_.take(); }
	void give_result(uint32_t place) { free_results_.give(place); }
	uint64_t *result(uint32_t place) const { return reinterpret_cast<uint64_t *>(results_.at(place * sizeof(uint64_t))); }
	uint32_t result_key() const { return results_.key(); }

	// Ids of work requests.
	static constexpr uint64_t is_send = UINT64_C(1) << 63;
	static uint64_t send_id(uint32_t index, uint32_t number) { return is_send | uint64_t{index} << 32 | number; }

	size_t bytes_per_queue() const;
	static constexpr size_t bytes_per_silent_peer = sizeof(Peer *) + sizeof(uint32_t);

private:
	// What one call of progress() has done so far.
	struct Turn {
		static constexpr unsigned most = 32; // completions
		unsigned events = 0, used_count = 0;
		uint64_t used[most]; // receives, to be posted again
	};
	bool read(CompletionQueue &queue, Turn &turn);
	bool read_directly(mlx5::CompletionRing &ring, Turn &turn);
	void handle(uint64_t id, ibv_wc_status status, uint32_t bytes, Turn &turn);
	void on_send_completion(SendQueue *queue, uint32_t number, ibv_wc_status status);
	bool on_receive(const unsigned char *message, uint32_t bytes);
	[[gnu::noinline]] bool on_unusual(const MessageHeader &header, const unsigned char *data, size_t length);
	SendQueue *queue_of(uint32_t number) const;
	void index_queues();
	bool take_wireup();
	void post_receives(const uint64_t *buffers, unsigned count);
	void hold(const MessageHeader &header, const unsigned char *data, size_t length);
	void deliver_held(int rank);
	// A message in its turn.
	void deliver(const MessageHeader &h, const unsigned char *data, size_t length)
	{
		if (__builtin_expect(h.id() < id_ring_request, 1))
			environment_.events.on_message(h.rank(), h.id(), h.header, data, length);
		else
			take(h, data, length);
	}
	void take(const MessageHeader &header, const unsigned char *data, size_t length);
	bool look_at_ring(Peer &peer);
	void on_ring_request(Peer &peer, const RingRequest &request);
	void on_ring_offer(Peer &peer, const RingOffer &offer);
	unsigned read_rings();
	unsigned read_ring(Peer &peer, unsigned most);
	bool tell_read(Peer &peer, uint64_t flags = 0);
	void handle_broken();
	void look_after_queues();
	static bool busy(const SendQueue *queue);
	void flush_all();
	void say_goodbye(bool all, int64_t end);
	void end_waiting(const Peer &peer, pt2p_status_t status);
	// take_down() of a rank that need not have an endpoint here.
	void lose(int rank, pt2p_status_t status, const std::string &reason);
	void read_events();
	void drive_waiting();
	Outcome refuse(pt2p_status_t status, std::string reason);
	Registration *register_for(const Operation &wanted);
	bool spreads(Peer &peer, size_t length) const;
	bool post_parts(Operation &operation);
	static void part_is_over(Operation &operation, size_t bytes);
	void finish(Operation &operation);
	void unlist(SendQueue &queue);
	void ring_all();
	void tune_batch();
	void open_trace();

	const size_t message_bytes_; // of a buffer, the header included
	// Of one-sided operations, bytes: what is written from within the work request; and what goes by way of a buffer unless its
	// memory is registered, as that costs more than a copy.
	const size_t most_in_entry_, most_copied_;
	const uint32_t depth_, period_, buffer_count_;
	const int idle_turn_; // what a turn in which nothing was found takes of look_at_wireup_
	const bool direct_;
	const tune::Mode tuning_;
	const bool tunes_staging_;
	uint32_t usual_batch_;
	int64_t least_normal_ = 0;   // ticks
	uint32_t batch_ = 1;         // work requests for one ring at present
	bool corked_ = false;
	std::optional<tune::BatchTuner> batch_tuner_;
	struct {
		uint64_t work = 0, posted = 0, doorbells = 0;
		double ratios = 0;
		uint32_t observed = 0;
		int64_t since = 0; // ticks
	} interval_;
	Completions completions_;
	uint64_t turns_ = 0;
	static constexpr int look_after = 64; // turns, or four in which nothing was found, or one where ranks share processors
	int look_at_wireup_ = 0;              // at 0 or less, with the next turn
	uint64_t strange_ = 0;       // datagrams that have been counted as refused
	SrqOwner srq_;
	std::optional<mlx5::ReceiveRing> receive_ring_; // none: by verbs
	RegisteredMemory receives_, sends_, results_;
	Places free_buffers_, free_results_;
	Registrations registrations_;
	std::unique_ptr<Wireup> wireup_;
	std::vector<Peer *> peers_;           // by rank
	// From a rank.
	struct Expected {
		uint32_t sequence = 0; // of the next message
		bool unusual = true;   // that goes to on_unusual() in any case: no connection, or later ones are held
		bool gone = false;     // a rank without an endpoint has left, or is lost
	};
	std::vector<Expected> expected_;      // by rank
	struct Held {
		MessageHeader header;
		std::vector<unsigned char> payload;
	};
	std::map<std::pair<int, uint32_t>, Held> held_; // by rank and sequence number: came before their turn
	std::vector<Peer *> ringing_;         // those with a ring to us
	RegisteredMemory told_;               // words in which peers tell how much they have read
	Places free_told_;
	std::vector<SendQueue *> queues_;     // by index; null: free
	std::vector<SendQueue *> by_number_;  // of their queue pairs: a hash table, half empty at least
	std::vector<SendQueue *> unrung_;
	struct Broken {
		SendQueue *queue;
		ibv_wc_status status;
	};
	std::vector<Broken> broken_;
	Pool<Operation> operations_;
	Refusal refusal_;
	Fifo<Operation> waiting_; // for room
	const void *driver_ = nullptr;
	int watching_ = 0; // queues
	const int64_t ticks_at_start_, ns_at_start_;
	struct Close {
		void operator()(FILE *file) const { fclose(file); }
	};
	std::unique_ptr<FILE, Close> trace_;
	bool failed_ = false, asleep_ = false, drained_ = false, left_ = false;
};

inline void SendQueue::end_period(uint32_t number)
{
	// Now and then is enough, as it costs more looks at the completions; and not in step with them.
	constexpr uint32_t periods_between = 13;
	const bool alone = completed_ == number - 1;
	// A period that was cut short tells what is normal, not what is last.
	if (tuned_ && !watching_ && (!each_ || alone) && (tied_ || periods_++ % periods_between == 0)) {
		watching_ = true;
		watched_ = {number, alone, now_ticks()};
		net_.begin_watch();
	}
	signalled(number);
}

// Operations of a transport's table.
Outcome get(Endpoint &endpoint, void *local, RemoteMemory from, size_t length, void *operation);
Outcome put(Endpoint &endpoint, const void *local, RemoteMemory to, size_t length, void *operation);
Outcome atomic(Endpoint &endpoint, AtomicOperation what, RemoteMemory at, uint64_t operand, uint64_t compare,
               uint64_t *result, void *operation);

} // namespace pt2p::verbs
