// libibverbs calls its provider through tables of functions. The address of a completion queue leads to its table, so
// the device can replace these functions.
#include "softhca/kernel/verbs_hooks.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <infiniband/verbs.h>
#include <utility>

#include "softhca/nic/scheduler.hpp"
#include "softhca/process.hpp"

namespace softhca {

namespace {

// Replaces a function of a table by a stand-in, which calls it. There are only a few such functions; each gets a
// stand-in of its own.
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
		// More functions than expected: calls of those are not seen.
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
		Scheduler &scheduler = process_scheduler();
		scheduler.before_poll(cq->context->cmd_fd);
		const int n = real(cq, most, completions);
		return scheduler.after_poll(cq->context->cmd_fd, n != 0) ? real(cq, most, completions) : n;
	}
};

struct StartPoll {
	static int call(int (*real)(ibv_cq_ex *, ibv_poll_cq_attr *), ibv_cq_ex *cq, ibv_poll_cq_attr *attributes)
	{
		Scheduler &scheduler = process_scheduler();
		const int fd = ibv_cq_ex_to_cq(cq)->context->cmd_fd;
		scheduler.before_poll(fd);
		const int result = real(cq, attributes);
		return scheduler.after_poll(fd, result != ENOENT) ? real(cq, attributes) : result;
	}
};

struct PostSend {
	static int call(int (*real)(ibv_qp *, ibv_send_wr *, ibv_send_wr **), ibv_qp *qp, ibv_send_wr *request,
	                ibv_send_wr **bad)
	{
		const int result = real(qp, request, bad);
		process_scheduler().posted();
		return result;
	}
};

struct Notify {
	static int call(int (*real)(ibv_cq *, int), ibv_cq *cq, int solicited_only)
	{
		const int result = real(cq, solicited_only);
		process_scheduler().armed();
		return result;
	}
};

} // namespace

void hook_verbs(uint64_t cq)
{
	auto *queue = reinterpret_cast<ibv_cq *>(static_cast<uintptr_t>(cq));
	if (!queue || !queue->context) // before libibverbs has filled it in
		return;
	ibv_context_ops &ops = queue->context->ops;
	StandIns<int(ibv_cq *, int, ibv_wc *), Poll>::install(ops.poll_cq);
	StandIns<int(ibv_qp *, ibv_send_wr *, ibv_send_wr **), PostSend>::install(ops.post_send);
	StandIns<int(ibv_cq *, int), Notify>::install(ops.req_notify_cq);
	// libmlx5 has room for the extended part in every queue; the function is set where the program has asked for it.
	auto *extended = reinterpret_cast<ibv_cq_ex *>(queue);
	StandIns<int(ibv_cq_ex *, ibv_poll_cq_attr *), StartPoll>::install(extended->start_poll);
}

} // namespace softhca
