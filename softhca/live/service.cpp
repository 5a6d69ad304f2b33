// Records of doorbells have to be looked at by somebody. A thread that did nothing else would take a core; on a machine
// with few cores it would take the core that the program needs. So the program helps: libibverbs calls the provider
// through tables of functions, and completion queues are known by their address, so that the device can stand in front
// of these functions ("assist"). A poll that finds nothing, a post, and a request for an event move the NIC forward. What
// the program does not do, the thread does, in ever longer intervals, and at once when packets come.
#include "softhca/live/service.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <utility>

#include "softhca/kernel/context.hpp"
#include "softhca/exact/exact.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::service {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

std::atomic<uint64_t> empty_polls = 0;   // so far
std::atomic<bool> polling = false;       // the program polls again and again
std::atomic<bool> deaf = false;          // the thread sleeps, and packets do not wake it
bool started = false;                    // under the NIC's lock

// Moves the NIC, unless somebody else does so. True when something was done.
bool lend_a_hand()
{
	Nic &nic = Nic::get();
	if (nic.model())
		return false;
	if (!nic.mutex.try_lock())
		return false;
	const bool did = nic.progress();
	nic.mutex.unlock();
	return did;
}

// Empty polls of this thread in a row.
thread_local unsigned idle __attribute__((tls_model("initial-exec"))) = 0;

// After an empty poll. True when it is worth to poll again.
bool help()
{
	// Long enough that whoever answers quickly does so, short enough that who waits for our processor gets it.
	constexpr unsigned patience = 4;
	empty_polls.store(empty_polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
	if (lend_a_hand()) {
		idle = 0;
		return true;
	}
	if (++idle >= patience) {
		polling.store(true, std::memory_order_relaxed);
		sched_yield();
	}
	return false;
}

template <class Poll>
int poll_in_virtual_time(const ibv_cq *cq, const Poll &poll, int nothing)
{
	const auto context = Context::find(cq->context->cmd_fd);
	if (!context)
		return poll();
	model::Model &model = *Nic::get().model();
	model.before_poll(*context);
	const int result = poll();
	if (result == nothing)
		model.after_empty_poll(*context);
	return result;
}

// Stands in front of the functions of a table. A table's function is one of a few; each of them gets a stand-in, which
// knows what it stands for.
template <class Function, class Call, size_t most = 16>
class StandIns {
public:
	// Puts a stand-in into `slot`.
	static void install(Function *&slot)
	{
		if (!slot || std::find(stand_ins.begin(), stand_ins.end(), slot) != stand_ins.end())
			return;
		for (size_t i = 0; i < most; ++i) {
			if (!real[i])
				real[i] = slot;
			if (real[i] == slot) {
				slot = stand_ins[i];
				return;
			}
		}
		// More functions than expected: those go without assistance.
	}

private:
	template <size_t i, class... Arguments>
	static int stand_in(Arguments... arguments)
	{
		return Call::call(real[i], arguments...);
	}
	template <class>
	struct Make;
	template <class... Arguments>
	struct Make<int(Arguments...)> {
		template <size_t... i>
		static constexpr std::array<Function *, most> all(std::index_sequence<i...>)
		{
			return {stand_in<i, Arguments...>...};
		}
	};
	static inline std::array<Function *, most> real{};
	static inline const std::array<Function *, most> stand_ins = Make<Function>::all(std::make_index_sequence<most>());
};

struct Poll {
	static int call(int (*real)(ibv_cq *, int, ibv_wc *), ibv_cq *cq, int most, ibv_wc *completions)
	{
		if (Nic::get().model())
			return poll_in_virtual_time(cq, [&] { return real(cq, most, completions); }, 0);
		const int n = real(cq, most, completions);
		if (n == 0 && most > 0)
			return help() ? real(cq, most, completions) : n;
		idle = 0;
		return n;
	}
};

struct StartPoll {
	static int call(int (*real)(ibv_cq_ex *, ibv_poll_cq_attr *), ibv_cq_ex *cq, ibv_poll_cq_attr *attributes)
	{
		if (Nic::get().model())
			return poll_in_virtual_time(ibv_cq_ex_to_cq(cq), [&] { return real(cq, attributes); }, ENOENT);
		const int result = real(cq, attributes);
		if (result == ENOENT)
			return help() ? real(cq, attributes) : result;
		idle = 0;
		return result;
	}
};

struct PostSend {
	static int call(int (*real)(ibv_qp *, ibv_send_wr *, ibv_send_wr **), ibv_qp *qp, ibv_send_wr *request,
	                ibv_send_wr **bad)
	{
		const int result = real(qp, request, bad);
		lend_a_hand();
		return result;
	}
};

// Who asks for an event is going to sleep: the thread takes over.
struct Notify {
	static int call(int (*real)(ibv_cq *, int), ibv_cq *cq, int solicited_only)
	{
		const int result = real(cq, solicited_only);
		lend_a_hand();
		// It looks once more before it sleeps: that is no polling.
		idle = 0;
		polling = false;
		if (deaf.exchange(false))
			Nic::get().wire()->wake();
		return result;
	}
};

// Who has just had something to do will soon have more: that long the thread only gives way to others.
constexpr Time linger = 50'000;
// What shows that others need the processor, and for how long that is taken for granted.
constexpr Time crowded = 300'000, crowded_for = 20'000'000;
// How long the thread sleeps: short after something was done, longer and longer while nothing is.
constexpr nanoseconds shortest = 20us, longest = 1ms, with_assistance = 1ms, without_work = 100ms;

void *serve(void *)
{
	prctl(PR_SET_NAME, "softhca");
	prctl(PR_SET_TIMERSLACK, 1000); // the default would triple the shortest sleep
	Nic &nic = Nic::get();
	nanoseconds pause = shortest;
	uint64_t last = 0; // empty polls at the last look
	Time last_did = 0, crowded_until = 0;
	for (;;) {
		const uint64_t before = empty_polls.load(std::memory_order_relaxed);
		bool did, used;
		Time deadline, now;
		Wire *wire;
		{
			const std::lock_guard guard(nic.mutex);
			did = nic.progress();
			used = nic.used();
			deadline = nic.next_deadline();
			now = nic.now();
			wire = nic.wire();
		}
		if (did) {
			pause = shortest;
			last_did = now;
			continue;
		}
		const bool assisted = before != last && polling;
		last = before;
		if (!assisted && now - last_did < linger && now >= crowded_until) {
			sched_yield();
			// Who gives way to a thread that never does waits for its time slice to end; who sleeps is let in at once.
			if (const Time then = Nic::read_clock(); then - now > crowded)
				crowded_until = then + crowded_for;
			continue;
		}
		nanoseconds most = !used ? without_work : assisted ? with_assistance : exact::wanted() ? without_work : pause;
		if (deadline)
			most = std::min(most, nanoseconds(std::max<Time>(deadline > now ? deadline - now : 0, 20'000)));
		deaf = assisted;
		wire->sleep(most, !assisted);
		deaf = false;
		pause = std::min(pause * 5 / 4, longest);
	}
	return nullptr;
}

// A forked child has no thread, and no place on the wire until it makes queue pairs of its own.
void before_fork() { Nic::get().mutex.lock(); }
void after_fork_in_parent() { Nic::get().mutex.unlock(); }
void after_fork_in_child()
{
	new (&Nic::get().mutex) std::mutex;
	started = false;
	Nic::get().abandon();
	Context::forked();
}

} // namespace

void start()
{
	if (started || Nic::get().model())
		return;
	static const int handlers = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	// Signals are for the program's threads.
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_t thread;
	const int error = pthread_create(&thread, nullptr, serve, nullptr);
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
	if (error || handlers) {
		std::fprintf(stderr, "softhca: no thread, the device moves only while completion queues are polled: %s\n",
		             std::strerror(error ? error : handlers));
		return;
	}
	pthread_detach(thread);
	started = true;
}

void assist(uint64_t cq)
{
	auto *queue = reinterpret_cast<ibv_cq *>(static_cast<uintptr_t>(cq));
	if (!queue || !queue->context) // before libibverbs has filled it in
		return;
	ibv_context_ops &ops = queue->context->ops;
	StandIns<int(ibv_cq *, int, ibv_wc *), Poll>::install(ops.poll_cq);
	StandIns<int(ibv_qp *, ibv_send_wr *, ibv_send_wr **), PostSend>::install(ops.post_send);
	StandIns<int(ibv_cq *, int), Notify>::install(ops.req_notify_cq);
	// libmlx5 keeps room for the extended part in every queue; the function is set where it was asked for.
	StandIns<int(ibv_cq_ex *, ibv_poll_cq_attr *), StartPoll>::install(reinterpret_cast<ibv_cq_ex *>(queue)->start_poll);
}

} // namespace softhca::service
