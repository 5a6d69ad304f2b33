#include "ofi/endpoint.hpp"

#include <algorithm>
#include <cstring>

#include <rdma/fi_cm.h>

#include "ofi/multi_receive.hpp"

namespace pt2p_ofi {

Endpoint::Endpoint() = default;
Endpoint::~Endpoint() = default;

void Endpoint::allocate_ops()
{
	op_blocks.push_back(std::make_unique<Op[]>(ops_per_block));
	for (size_t i = 0; i < ops_per_block; ++i) {
		Op &op = op_blocks.back()[i];
		op.endpoint = this;
		op.next = free_ops;
		free_ops = &op;
	}
}

ssize_t Endpoint::not_started(Op *op, pt2p_status_t status)
{
	give(op);
	return failed(status, ctx, FI_LOG_EP_DATA);
}

// ---- addresses ------------------------------------------------------------------------------------------------------

void Endpoint::remember(int rank, fi_addr_t address)
{
	const auto at = static_cast<size_t>(rank);
	if (addresses.size() <= at)
		addresses.resize(at + 1, FI_ADDR_NOTAVAIL);
	addresses[at] = address;
}

int Endpoint::look_up(fi_addr_t address)
{
	Av::Entry entry;
	lock.unlock(); // the vector's lock comes first
	const bool found = av && av->find(address, entry);
	lock.lock();
	if (!found)
		return -FI_EINVAL;
	RankAddress in_that_job;
	std::memcpy(&in_that_job, entry.bytes, sizeof in_that_job);
	const bool is_rank = in_that_job.magic == RankAddress::expected;
	int rank = -1;
	if (is_rank != in_job) {
		PT2P_OFI_WARN(FI_LOG_EP_CTRL,
		              "an endpoint of a launched job and one without a launcher cannot reach each other\n");
		return -FI_EINVAL;
	}
	if (is_rank) {
		rank = in_that_job.rank; // of this job: vectors take no other ones
		if (rank < 0 || rank >= pt2p_size(ctx)) {
			PT2P_OFI_WARN(FI_LOG_EP_CTRL, "the job has no rank %d\n", rank);
			return -FI_EINVAL;
		}
	} else {
		sockaddr_in internet;
		std::memcpy(&internet, entry.bytes, sizeof internet);
		lock.unlock(); // the peer is asked
		const pt2p_status_t status = pt2p_peer_add(ctx, text_of(internet).c_str(), &rank);
		lock.lock();
		if (status != PT2P_OK)
			return failed(status, ctx, FI_LOG_EP_CTRL);
		remember(rank, entry.id);
	}
	if (ranks.size() <= address)
		ranks.resize(address + 1, -1);
	ranks[address] = rank;
	return rank;
}

bool Endpoint::name_of(int rank, unsigned char *address) const
{
	if (in_job) {
		const RankAddress name{RankAddress::expected, rank, job_number()};
		std::memcpy(address, &name, sizeof name);
		return true;
	}
	char text[64];
	sockaddr_in internet;
	if (pt2p_peer_address(ctx, rank, text, sizeof text, nullptr) != PT2P_OK || !parse(text, internet))
		return false;
	std::memcpy(address, &internet, sizeof internet);
	return true;
}

fi_addr_t Endpoint::look_up_source(int rank)
{
	if (!av)
		return FI_ADDR_NOTAVAIL;
	unsigned char address[address_size];
	if (!name_of(rank, address))
		return FI_ADDR_NOTAVAIL;
	const fi_addr_t id = av->id_of(address);
	if (id == FI_ADDR_NOTAVAIL)
		return id;
	const Locked locked(lock);
	remember(rank, id);
	return id;
}

void Endpoint::forget(fi_addr_t address)
{
	const Locked locked(lock);
	if (address >= ranks.size() || ranks[address] < 0)
		return;
	const auto rank = static_cast<size_t>(std::exchange(ranks[address], -1));
	if (rank < addresses.size())
		addresses[rank] = FI_ADDR_NOTAVAIL;
	// Another entry may have the same address: it is looked up again when it is used next, and names the peer then.
	std::replace(ranks.begin(), ranks.end(), static_cast<int>(rank), -1);
}

// ---- the end of operations ------------------------------------------------------------------------------------------

namespace {

// Why an operation has failed. What the provider itself finds out about memory is not the last error of libpt2p.
const char *explanation(pt2p_status_t status, const pt2p_context_t *ctx)
{
	// Who cancels knows why. Some programs that do so leave the place for a text in their error entry unset.
	if (status == PT2P_ERR_CANCELLED)
		return "";
	const bool own = status == PT2P_ERR_MEMORY || status == PT2P_ERR_BOUNDS || status == PT2P_ERR_PROTOCOL;
	return own ? pt2p_strerror(status) : pt2p_last_error(ctx);
}

} // namespace

void Endpoint::fail(Op *op, const pt2p_result_t &result, Cq *cq)
{
	if (!context->closing) {
		fi_cq_err_entry entry{};
		entry.op_context = op->context;
		entry.flags = op->flags;
		entry.buf = op->buffer;
		entry.tag = result.tag & tag_bits;
		entry.err = errno_of(result.status);
		entry.prov_errno = static_cast<int>(result.status);
		const char *why = explanation(result.status, ctx);
		// MPI libraries do not show the text of an error.
		if (result.status != PT2P_ERR_CANCELLED && result.status != PT2P_ERR_TRUNCATED)
			PT2P_OFI_WARN(FI_LOG_EP_DATA, "%s\n", why);
		if (result.status == PT2P_ERR_TRUNCATED) {
			entry.len = op->length;
			entry.olen = result.length - op->length;
		}
		if (result.has_data) {
			entry.flags |= FI_REMOTE_CQ_DATA;
			entry.data = result.data;
		}
		if (cq)
			cq->push_error(entry, op->receives && result.source >= 0 ? address_of(result.source) : FI_ADDR_NOTAVAIL,
			               why);
		if (op->counter)
			op->counter->add_error(1);
	}
	give(op);
}

bool Endpoint::has_operations(int rank)
{
	const auto asked_for = [rank](const Op &op) { return op.rank >= 0 && (rank < 0 || op.rank == rank); };
	const Locked locked(lock);
	return std::any_of(op_blocks.begin(), op_blocks.end(), [&](const auto &block) {
		return std::any_of(block.get(), block.get() + ops_per_block, asked_for);
	});
}

ssize_t Endpoint::fence(fi_addr_t peer)
{
	const int rank = rank_at(peer);
	if (rank < 0)
		return rank;
	if (!has_operations(rank))
		return 0;
	pt2p_progress(ctx);
	return -FI_EAGAIN;
}

// ---- making and ending ----------------------------------------------------------------------------------------------

void Endpoint::update_flags()
{
	constexpr uint64_t special = FI_INJECT | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;
	tx_reports = reports_send(tx_flags);
	rx_reports = reports_receive(rx_flags);
	tx_plain = !(tx_flags & special);
	const bool alone = enabled && !lock.enabled();
	quick_injects = alone && !send_counter;
	quick_sends = quick_injects && tx_plain && tx_reports;
	quick_receives = alone && rx_reports && !recv_counter;
	quick_rma = alone && tx_plain;
}

void Endpoint::use(Counter &counter)
{
	if (std::find(counters.begin(), counters.end(), &counter) != counters.end())
		return;
	counters.push_back(&counter);
	if (ctx)
		counter.reporters.add(ctx);
}

int Endpoint::enable()
{
	if (enabled)
		return 0;
	if (!av) {
		PT2P_OFI_WARN(FI_LOG_EP_CTRL, "no address vector is bound to the endpoint\n");
		return -FI_ENOAV;
	}
	const bool sends = caps & (FI_SEND | FI_READ | FI_WRITE), receives = caps & FI_RECV;
	if ((sends && !tx_cq && !send_counter && !write_counter && !read_counter) ||
	    (receives && !rx_cq && !recv_counter)) {
		PT2P_OFI_WARN(FI_LOG_EP_CTRL, "no completion queue is bound to the endpoint\n");
		return -FI_ENOCQ;
	}
	if (const int error = make_context())
		return error;
	if (context->owner == this) {
		if (caps & (FI_RMA | FI_ATOMIC))
			if (const int error = open_rma_services(*context))
				return error;
		if (caps & FI_ATOMIC)
			if (const int error = open_atomic_service(*context))
				return error;
	}
	{
		const std::lock_guard guard(domain->members); // others may share the context from now on
		enabled = true;
	}
	update_flags();
	return 0;
}

namespace {

int close_endpoint(fid *f)
{
	auto *endpoint = object_of<Endpoint>(f);
	const int error = endpoint->close();
	if (!error)
		delete endpoint;
	return error;
}

int bind_counter(Endpoint &e, Counter *counter, uint64_t flags)
{
	const struct {
		uint64_t flag;
		Counter *Endpoint::*place;
	} places[] = {{FI_SEND, &Endpoint::send_counter},
	              {FI_RECV, &Endpoint::recv_counter},
	              {FI_READ, &Endpoint::read_counter},
	              {FI_WRITE, &Endpoint::write_counter},
	              {FI_REMOTE_READ, &Endpoint::remote_read_counter},
	              {FI_REMOTE_WRITE, &Endpoint::remote_write_counter}};
	if (e.lock.enabled())
		counter->enable_locks();
	const std::lock_guard guard(e.domain->members);
	{
		const std::lock_guard remote(e.domain->mutex); // peers may be operating on memory
		for (const auto &[flag, place] : places)
			if (flags & flag)
				e.*place = counter;
	}
	e.use(*counter);
	e.bound_counters.push_back(counter);
	++counter->users;
	e.update_flags();
	return 0;
}

int bind_endpoint(fid *f, fid *object, uint64_t flags)
{
	Endpoint &e = *object_of<Endpoint>(f);
	return guarded([&] {
		// An enabled endpoint still takes counters: Sandia OpenSHMEM binds them late.
		if (e.enabled && object->fclass != FI_CLASS_CNTR)
			return -FI_EOPBADSTATE;
		const bool waits = (object->fclass == FI_CLASS_CQ && object_of<Cq>(object)->may_wait) ||
		                   (object->fclass == FI_CLASS_CNTR && object_of<Counter>(object)->may_wait);
		if (waits && e.context && !e.context->has_thread) {
			PT2P_OFI_WARN(FI_LOG_EP_CTRL, "bind queues and counters with a wait object before fi_getname\n");
			return -FI_EOPBADSTATE;
		}
		switch (object->fclass) {
		case FI_CLASS_AV: {
			if (e.av)
				return -FI_EINVAL;
			e.av = object_of<Av>(object);
			const Locked locked(e.av->lock);
			e.av->endpoints.push_back(&e);
			return 0;
		}
		case FI_CLASS_CQ: {
			Cq *cq = object_of<Cq>(object);
			if (!(flags & (FI_TRANSMIT | FI_RECV)) || ((flags & FI_TRANSMIT) && e.tx_cq) ||
			    ((flags & FI_RECV) && e.rx_cq))
				return -FI_EINVAL;
			const bool bound = cq == e.tx_cq || cq == e.rx_cq;
			if (flags & FI_TRANSMIT) {
				++cq->users;
				e.tx_cq = cq;
				e.tx_selective = flags & FI_SELECTIVE_COMPLETION;
			}
			if (flags & FI_RECV) {
				++cq->users;
				e.rx_cq = cq;
				e.rx_selective = flags & FI_SELECTIVE_COMPLETION;
			}
			if (e.lock.enabled())
				cq->enable_locks();
			if (e.ctx && !bound)
				cq->reporters.add(e.ctx);
			return 0;
		}
		case FI_CLASS_CNTR: return bind_counter(e, object_of<Counter>(object), flags);
		case FI_CLASS_EQ: return 0; // no event of an endpoint of this type exists
		default: return -FI_EINVAL;
		}
	});
}

int control_endpoint(fid *f, int command, void *argument)
{
	Endpoint &e = *object_of<Endpoint>(f);
	return guarded([&] {
		switch (command) {
		case FI_ENABLE: return e.enable();
		case FI_GETOPSFLAG: {
			auto *flags = static_cast<uint64_t *>(argument);
			if (((*flags & FI_TRANSMIT) != 0) == ((*flags & FI_RECV) != 0))
				return -FI_EINVAL;
			*flags = *flags & FI_TRANSMIT ? e.tx_flags : e.rx_flags;
			return 0;
		}
		case FI_SETOPSFLAG: {
			const uint64_t flags = *static_cast<const uint64_t *>(argument);
			if (((flags & FI_TRANSMIT) != 0) == ((flags & FI_RECV) != 0))
				return -FI_EINVAL;
			(flags & FI_TRANSMIT ? e.tx_flags : e.rx_flags) = flags & ~(FI_TRANSMIT | FI_RECV);
			e.update_flags();
			return 0;
		}
		default: return -FI_ENOSYS;
		}
	});
}

ssize_t cancel_one(fid *f, void *context) { return cancel(*object_of<Endpoint>(f), context); }

int get_option(fid *f, int level, int name, void *value, size_t *length)
{
	const Endpoint &e = *object_of<Endpoint>(f);
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (*length < sizeof e.min_multi_recv)
		return -FI_ETOOSMALL;
	std::memcpy(value, &e.min_multi_recv, sizeof e.min_multi_recv);
	*length = sizeof e.min_multi_recv;
	return 0;
}

int set_option(fid *f, int level, int name, const void *value, size_t length)
{
	Endpoint &e = *object_of<Endpoint>(f);
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (length < sizeof e.min_multi_recv)
		return -FI_ETOOSMALL;
	std::memcpy(&e.min_multi_recv, value, sizeof e.min_multi_recv);
	return 0;
}

// Nothing limits how many operations may be under way.
ssize_t size_left(fid_ep *) { return 1 << 16; }

int get_name(fid *f, void *address, size_t *length)
{
	Endpoint &e = *object_of<Endpoint>(f);
	if (const int error = guarded([&] { return e.make_context(); }))
		return error;
	const size_t room = std::exchange(*length, address_size);
	unsigned char name[address_size];
	if (!e.name_of(pt2p_rank(e.ctx), name))
		return -FI_EOPNOTSUPP;
	if (room)
		std::memcpy(address, name, std::min(room, sizeof name));
	return room < address_size ? -FI_ETOOSMALL : 0;
}

fi_ops endpoint_object_ops = object_ops(close_endpoint, bind_endpoint, control_endpoint);
fi_ops_ep endpoint_ops = {.size = sizeof(fi_ops_ep),
                          .cancel = cancel_one,
                          .getopt = get_option,
                          .setopt = set_option,
                          .tx_ctx = not_offered,
                          .rx_ctx = not_offered,
                          .rx_size_left = size_left,
                          .tx_size_left = size_left};
fi_ops_cm name_ops = {.size = sizeof(fi_ops_cm),
                      .setname = not_offered,
                      .getname = get_name,
                      .getpeer = not_offered,
                      .connect = not_offered,
                      .listen = not_offered,
                      .accept = not_offered,
                      .reject = not_offered,
                      .shutdown = not_offered,
                      .join = not_offered};

} // namespace

int open_endpoint(fid_domain *d, fi_info *info, fid_ep **out, void *context)
{
	if (!info || !info->ep_attr || !info->tx_attr || !info->rx_attr || info->ep_attr->type != FI_EP_RDM)
		return -FI_EINVAL;
	return guarded([&] {
		auto e = std::make_unique<Endpoint>();
		e->fid.fid = {FI_CLASS_EP, context, &endpoint_object_ops};
		e->fid.ops = &endpoint_ops;
		e->fid.cm = &name_ops;
		e->fid.msg = &message_ops;
		e->fid.tagged = &tagged_ops;
		e->fid.rma = &rma_ops;
		e->fid.atomic = &atomic_ops;
		e->domain = object_of<Domain>(d);
		e->in_job = info->addr_format == FI_FORMAT_UNSPEC;
		e->caps = info->caps;
		e->directed = info->caps & FI_DIRECTED_RECV;
		e->tx_flags = info->tx_attr->op_flags;
		e->rx_flags = info->rx_attr->op_flags;
		if (info->src_addr && info->src_addrlen == sizeof e->listen)
			std::memcpy(&e->listen, info->src_addr, sizeof e->listen);
		e->multi = std::make_unique<MultiReceive>();
		++e->domain->users;
		const std::lock_guard guard(e->domain->members);
		e->domain->endpoints.push_back(e.get());
		for (Counter *counter : e->domain->memory_counters)
			e->use(*counter);
		*out = &e.release()->fid;
		return 0;
	});
}

} // namespace pt2p_ofi
