#include "transports/dct/dct.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <infiniband/mlx5dv.h>
#include <utility>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "transports/channel_facts.hpp"

namespace pt2p::dct {

extern const TransportTable dct_table;

using verbs::SendQueue;
using verbs::WorkRequest;

namespace {

constexpr uint32_t max_tuned = 4; // initiators for the bulk data of one peer; one is always left to others

} // namespace

SendQueue *DctPeer::acquire() { return ready ? transport->choose(*this) : nullptr; }
SendQueue *DctPeer::acquire_for_part() { return ready ? transport->choose_for_part(*this) : nullptr; }

SendQueue *DctPeer::acquire_alone() { return ready ? transport->choose_idle(*this) : nullptr; }

// Stops the initiators that work for this peer. After their restart they post again what they have for others.
void DctPeer::cut()
{
	transport->leave_line(*this);
	if (!in_flight)
		return;
	for (SendQueue *q : transport->queues_for(*this)) {
		if (!q->works_for(*this))
			continue;
		verbs::set_state(q->qp(), IBV_QPS_ERR);
		q->drop(*this);
		net->queues.report_broken(*q, IBV_WC_SUCCESS);
	}
}

DctTransport::DctTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net)
    : NetTransport(environment, std::move(net)), key_(random_secret().words[0])
{
	make_target();
	make_initiators(1); // a rank that sends nothing by dct needs no more, and none shows that the device has no DC
	net_->answerer = this;
}

DctTransport::~DctTransport() { net_->answerer = nullptr; }

void DctTransport::make_initiators(size_t count)
{
	while (initiators_.size() < count) {
		make_initiator();
		states_.resize(initiators_.size());
	}
}

void DctTransport::make_target()
{
	const verbs::Device &device = net_->device();
	ibv_qp_init_attr_ex init{};
	init.qp_type = IBV_QPT_DRIVER;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.pd = device.pd.get();
	init.send_cq = init.recv_cq = net_->completions.first();
	init.srq = net_->receives.srq();
	mlx5dv_qp_init_attr driver{};
	driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
	driver.dc_init_attr.dct_access_key = key_;
	target_.reset(mlx5dv_create_qp(device.context.get(), &init, &driver));
	if (!target_)
		verbs::fail("mlx5dv_create_qp (DC target)", errno);
	if (const int error =
	        verbs::bring_up(device, target_.get(), {.role = verbs::BringUp::Role::target, .port = device.address}))
		verbs::fail("ibv_modify_qp (DC target)", error);
}

void DctTransport::make_initiator()
{
	ibv_qp_init_attr_ex init = net_->queue_attributes(IBV_QPT_DRIVER);
	mlx5dv_qp_init_attr driver{};
	driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	verbs::QpOwner qp(mlx5dv_create_qp(net_->device().context.get(), &init, &driver));
	if (!qp)
		verbs::fail_queue(net_->device(), "mlx5dv_create_qp (DC initiator)", errno, "PT2P_NET_SEND_DEPTH",
		                  net_->shared.depth, net_->device().limits.max_qp_wr);
	if (const int error = start_initiator(qp.get()))
		verbs::fail("ibv_modify_qp (DC initiator)", error);
	const auto max_inline = static_cast<uint32_t>(environment_.config.net_inline);
	initiators_.push_back(
	    std::make_unique<SendQueue>(net_->shared, *this, std::move(qp), max_inline, verbs::QueueKind::initiator));
}

int DctTransport::start_initiator(ibv_qp *qp) const
{
	return verbs::bring_up(net_->device(), qp,
	                       {.role = verbs::BringUp::Role::initiator,
	                        .timeout = environment_.config.net_timeout,
	                        .retries = environment_.config.net_retries});
}

// ---- peers ----------------------------------------------------------------------------------------------------------

static_assert(offsetof(Address, port) == 0);

std::string DctTransport::queue_address()
{
	Address address;
	std::memset(static_cast<void *>(&address), 0, sizeof address);
	address.port = net_->device().address;
	address.number = target_->qp_num;
	address.key = key_;
	return {reinterpret_cast<const char *>(&address), sizeof address};
}

Endpoint &DctTransport::connect(int rank, std::string_view text)
{
	if (verbs::NetPeer *known = peers_[static_cast<size_t>(rank)].get())
		return *known;
	make_initiators(static_cast<size_t>(environment_.config.dct_initiators));
	Address address;
	std::memcpy(&address, text.data(), sizeof address);
	auto peer = std::make_unique<DctPeer>();
	ibv_ah_attr path = net_->device().path_to(address.port);
	peer->path.reset(ibv_create_ah(net_->device().pd.get(), &path));
	if (!peer->path)
		verbs::fail("ibv_create_ah", errno);
	peer->transport = this;
	peer->address = {peer->path.get(), address.number, address.key,
	                 verbs::mlx5::dc_address_vector(peer->path.get(), address.number, address.key)};
	peer->remote = &peer->address;
	peer->ready = true;
	const auto initiators = static_cast<uint32_t>(initiators_.size());
	peer->max_queue_pairs =
	    environment_.config.net_queue_pairs ? initiators : std::clamp(initiators - 1, 1u, max_tuned);
	return add(rank, std::move(peer));
}

verbs::NetPeer *DctTransport::connect_back(int rank)
{
	if (verbs::NetPeer *known = peers_[static_cast<size_t>(rank)].get())
		return known;
	try {
		std::string text, why_not;
		if (!environment_.addresses.find_address(rank, table().name, text) || !reaches(rank, text, why_not))
			return nullptr;
		return static_cast<DctPeer *>(&connect(rank, text));
	} catch (const Error &e) {
		environment_.reporter.log(LogLevel::debug, "no endpoint to rank %d: %s", rank, e.what());
		return nullptr;
	}
}

SendQueue *DctTransport::choose(DctPeer &peer)
{
	if (__builtin_expect(peer.open && peer.queue->can_post(), 1))
		return peer.queue;
	const size_t current = look_at_initiators(peer);
	if (current != no_initiator) {
		const InitiatorState &s = states_[current];
		if (s.target == &peer && goes_on(s, !line_.empty())) {
			peer.open = line_.empty();
			return peer.queue;
		}
		if (under_way(peer, s)) {
			line_.keep(free_places(states_), net_->turns());
			return wait();
		}
	}
	if (!line_.admit(peer, free_places(states_), net_->turns())) {
		for (const InitiatorState &s : states_) // from now on they have to ask whether they may go on
			if (s.target)
				static_cast<DctPeer *>(s.target)->open = false;
		return wait();
	}
	const size_t chosen = choose_initiator(states_, &peer);
	peer.queue = initiators_[chosen].get();
	peer.open = line_.empty();
	return take(chosen, peer);
}

SendQueue *DctTransport::wait() const
{
	environment_.reporter.add(Counter::dct_waits);
	return nullptr;
}

// The first part goes where messages would go, and later parts find it there.
SendQueue *DctTransport::choose_for_part(DctPeer &peer)
{
	uint32_t working = 1;
	SendQueue *queue;
	if (!peer.in_flight) {
		queue = choose(peer);
	} else {
		const size_t current = look_at_initiators(peer);
		queue = take(dct::choose_for_part(states_, &peer, current, peer.striping->queue_pairs(), working), peer);
	}
	if (!queue)
		return nullptr;
	peer.striping->uses(working);
	if (queue != peer.queue)
		environment_.reporter.add(Counter::net_parts_beside);
	return queue;
}

SendQueue *DctTransport::choose_idle(DctPeer &peer)
{
	look_at_initiators(peer);
	const size_t chosen = choose_initiator(states_, &peer);
	if (peer.in_flight || chosen == no_initiator || states_[chosen].outstanding)
		return nullptr;
	peer.queue = initiators_[chosen].get();
	return take(chosen, peer);
}

// Updates the states of the initiators. Returns the one that the peer's messages used last.
size_t DctTransport::look_at_initiators(const DctPeer &peer)
{
	size_t current = no_initiator;
	++looks_;
	for (size_t i = 0; i < initiators_.size(); ++i) {
		const SendQueue &queue = *initiators_[i];
		InitiatorState &s = states_[i];
		if (&queue == peer.queue)
			current = i;
		s.outstanding = queue.in_flight();
		s.room = queue.can_post();
		s.targets = !s.outstanding ? 0 : queue.has_completed(s.begun) ? 1 : 2;
		if (std::exchange(s.posted, queue.posted()) != s.posted)
			s.used = looks_;
	}
	return current;
}

// Whether messages of the peer are in flight in the initiator that they used last, whose state this is.
bool DctTransport::under_way(const DctPeer &peer, const InitiatorState &state) const
{
	if (state.target == &peer)
		return state.outstanding;
	return peer.in_flight && state.outstanding && !peer.queue->has_completed(peer.upto);
}

SendQueue *DctTransport::take(size_t i, DctPeer &peer)
{
	if (i == no_initiator)
		return wait();
	SendQueue *const queue = initiators_[i].get();
	InitiatorState &s = states_[i];
	if (s.target && s.target != &peer) {
		// While targets change, completions must be known at once: of a target whose work has another's behind it, and
		// of an initiator that would else be taken for busy.
		constexpr uint32_t calm = 64;
		for (const auto &initiator : initiators_) {
			initiator->signal_each(calm);
			initiator->flush();
		}
		if (!queue->can_post()) { // flush() has taken the last room of a small window
			line_.put_first(peer, net_->turns());
			static_cast<DctPeer *>(s.target)->open = false;
			return wait();
		}
		environment_.reporter.add(Counter::dct_switches);
		DctPeer &before = *static_cast<DctPeer *>(s.target);
		if (before.queue == queue) {
			before.open = false;
			before.upto = queue->posted();
		}
	}
	s.target = &peer;
	s.begun = queue->posted();
	return queue->can_post() ? queue : wait();
}

// ---- failures -------------------------------------------------------------------------------------------------------

void DctTransport::on_broken(SendQueue &queue, ibv_wc_status status)
{
	WorkRequest *front = queue.front();
	switch (status) {
	case IBV_WC_SUCCESS:
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_FATAL_ERR: break;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ABORT_ERR:
		if (front)
			fail_target(static_cast<DctPeer &>(*front->target), status);
		break;
	default: // the work request itself is at fault
		if (front && front->is_operation())
			queue.abandon(*front, PT2P_ERR_SYSTEM, verbs::cause_of(status));
		else if (front)
			net_->take_down(static_cast<DctPeer &>(*front->target), PT2P_ERR_SYSTEM,
			                format("a message to it failed: %s", ibv_wc_status_str(status)));
	}
	environment_.reporter.add(Counter::reconnects);
	const int error = restart(queue);
	if (error == ENOMEM || error == EAGAIN)
		stopped_.push_back({&queue, now_ns()});
	else if (error)
		end_work(queue, error);
}

// Returns an errno; 0: it goes on.
int DctTransport::restart(SendQueue &queue)
{
	if (const int error = verbs::set_state(queue.qp(), IBV_QPS_RESET))
		return error;
	queue.was_reset();
	if (const int error = start_initiator(queue.qp()))
		return error;
	queue.post_again();
	return 0;
}

// The initiator is lost, and so are all targets that have work in it.
void DctTransport::end_work(SendQueue &queue, int error)
{
	const std::string reason = verbs::failure("ibv_modify_qp (DC initiator)", error);
	while (WorkRequest *request = queue.front()) {
		net_->take_down(static_cast<DctPeer &>(*request->target), PT2P_ERR_SYSTEM, reason);
		queue.drop_all();
	}
}

// Tries again to restart initiators: resources may be free now, and what was sent has to arrive.
void DctTransport::check()
{
	NetTransport::check();
	std::erase_if(stopped_, [this](const Stopped &s) {
		const int error = restart(*s.queue);
		if (error && now_ns() - s.since < environment_.config.net_reconnect_time)
			return false;
		if (error)
			end_work(*s.queue, error);
		return true;
	});
}

void DctTransport::forget_peer(int rank)
{
	if (auto *peer = static_cast<DctPeer *>(peers_[static_cast<size_t>(rank)].get())) {
		line_.leave(*peer);
		for (InitiatorState &state : states_)
			if (state.target == peer)
				state.target = nullptr;
	}
	NetTransport::forget_peer(rank);
}

bool DctTransport::left() const
{
	return std::none_of(peers_.begin(), peers_.end(), [](const auto &p) { return p && !p->down && p->in_flight; });
}

// This rank itself.
verbs::Target *DctTransport::substitute()
{
	try {
		return static_cast<DctPeer *>(loopback());
	} catch (const Error &) {
		return nullptr;
	}
}

// A rank that has left in order has read all that it wants. What did not arrive in time, such as a consumer index,
// would be retried for long and keep others waiting in the initiator.
void DctTransport::look_after(SendQueue &queue)
{
	constexpr int64_t patience = 5'000'000; // ns; its device may still answer
	const WorkRequest *front = queue.front();
	if (!front || !front->target->down)
		return;
	DctPeer &peer = static_cast<DctPeer &>(*front->target);
	if (!peer.left_since) {
		peer.left_since = now_ns();
		queue.flush(); // or it could complete unnoticed
	} else if (now_ns() - peer.left_since >= patience) {
		peer.cut();
	}
}

// A target does not answer. It is tried again, and given up in the end. Work for other targets goes on in between.
void DctTransport::fail_target(DctPeer &peer, ibv_wc_status status)
{
	const int64_t now = now_ns();
	if (!peer.failing_since || std::exchange(peer.answered, false))
		peer.failing_since = now;
	if (now - peer.failing_since >= environment_.config.net_reconnect_time)
		net_->take_down(peer, PT2P_ERR_PEER_LOST,
		                format("its DC target does not answer: %s", ibv_wc_status_str(status)));
}

// ---- the table ------------------------------------------------------------------------------------------------------

std::vector<SendQueue *> DctTransport::queues_for(const verbs::NetPeer &) const
{
	std::vector<SendQueue *> all;
	for (const auto &queue : initiators_)
		all.push_back(queue.get());
	return all;
}

bool DctTransport::facts(int rank, ChannelFacts &f)
{
	f.shared = true;
	f.switches = environment_.reporter.read(Counter::dct_switches);
	return NetTransport::facts(rank, f);
}

Inspection::Memory DctTransport::memory_per_peer()
{
	return {sizeof(std::unique_ptr<DctPeer>) + verbs::Net::bytes_per_silent_peer,
	        sizeof(DctPeer) + sizeof(ibv_ah) + 64};
}

const TransportTable &DctTransport::table() const { return dct_table; }

namespace {

std::unique_ptr<Transport> open_dct(const TransportEnvironment &environment, std::string &why_not)
{
	auto net = verbs::Net::open(environment, why_not);
	if (!net)
		return nullptr;
	if (!mlx5dv_is_supported(net->device().context->device)) {
		why_not = net->device().name + " is not a device of mlx5, and others have no DC";
		return nullptr;
	}
	try {
		return std::make_unique<DctTransport>(environment, std::move(net));
	} catch (const Error &e) {
		if (environment.config.transports != "all")
			throw;
		why_not = e.what();
		return nullptr;
	}
}

} // namespace

const TransportTable dct_table = {
    "dct",         cap_send | cap_get | cap_put | cap_atomic,
    open_dct,      verbs::send<DctPeer, Counter::dct_messages>,
    verbs::get,    verbs::put,
    verbs::atomic, verbs::progress<DctTransport>,
    nullptr,       verbs::NetTransport::longest_message,
};

} // namespace pt2p::dct
