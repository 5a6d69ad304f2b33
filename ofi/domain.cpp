#include "ofi/domain.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include <unistd.h>

#include "ofi/address.hpp"
#include "ofi/atomic.hpp"
#include "ofi/completion.hpp"
#include "ofi/endpoint.hpp"
#include "ofi/fabric.hpp"

namespace pt2p_ofi {

namespace {

// ---- memory ---------------------------------------------------------------------------------------------------------

int close_mr(fid *f)
{
	std::unique_ptr<Mr> mr(object_of<Mr>(f));
	{
		// Until all is done: meanwhile no endpoint gives its context up. None of these calls runs a handler.
		const std::lock_guard guard(mr->domain->mutex);
		mr->domain->memories.erase(mr->fid.key);
		for (const auto &[ctx, rank] : mr->asked)
			tell_end(ctx, rank, mr->fid.key);
		for (const auto &[ctx, handle] : mr->handles)
			pt2p_memory_release(ctx, handle);
	}
	--mr->domain->users;
	return 0;
}

int bind_mr(fid *f, fid *object, uint64_t flags)
{
	Mr *mr = object_of<Mr>(f);
	if (object->fclass == FI_CLASS_EP) // memory is reached through all endpoints of the domain
		return 0;
	if (object->fclass != FI_CLASS_CNTR || !(mr->domain->caps & FI_RMA_EVENT))
		return -FI_EINVAL;
	Counter *counter = object_of<Counter>(object);
	{
		const std::lock_guard guard(mr->domain->mutex);
		mr->counter = counter;
		mr->counted = flags & (FI_REMOTE_READ | FI_REMOTE_WRITE);
	}
	return guarded([&] {
		const std::lock_guard guard(mr->domain->members);
		auto &counters = mr->domain->memory_counters;
		if (std::find(counters.begin(), counters.end(), counter) == counters.end())
			counters.push_back(counter);
		for (Endpoint *endpoint : mr->domain->endpoints) // it makes their progress
			endpoint->use(*counter);
		return 0;
	});
}

int control_mr(fid *f, int command, void *argument)
{
	Mr *mr = object_of<Mr>(f);
	switch (command) {
	case FI_ENABLE: return 0;
	case FI_GET_RAW_MR: {
		auto *raw = static_cast<struct fi_mr_raw_attr *>(argument);
		if (*raw->key_size < sizeof mr->fid.key) {
			*raw->key_size = sizeof mr->fid.key;
			return -FI_ETOOSMALL;
		}
		*raw->key_size = sizeof mr->fid.key;
		*raw->base_addr = mr->base();
		std::memcpy(raw->raw_key, &mr->fid.key, sizeof mr->fid.key);
		return 0;
	}
	default: return -FI_ENOSYS;
	}
}

fi_ops mr_object_ops = object_ops(close_mr, bind_mr, control_mr);

int register_attr(fid *f, const fi_mr_attr *attr, uint64_t flags, fid_mr **out)
{
	Domain *domain = object_of<Domain>(f);
	if (attr->iov_count > 1 || (flags & ~(FI_RMA_EVENT | FI_RMA_PMEM)))
		return -FI_EINVAL;
	if (flags & FI_RMA_EVENT && !(domain->caps & FI_RMA_EVENT)) {
		PT2P_OFI_WARN(FI_LOG_MR, "FI_RMA_EVENT is not among the capabilities of the domain\n");
		return -FI_EINVAL;
	}
	if (attr->iface != FI_HMEM_SYSTEM) {
		PT2P_OFI_WARN(FI_LOG_MR, "memory of devices cannot be registered\n");
		return -FI_ENOSYS;
	}
	return guarded([&] {
		auto mr = std::make_unique<Mr>();
		mr->domain = domain;
		mr->address = attr->iov_count ? static_cast<unsigned char *>(attr->mr_iov->iov_base) : nullptr;
		mr->length = attr->iov_count ? attr->mr_iov->iov_len : 0;
		mr->access = attr->access;
		mr->fid.fid = {FI_CLASS_MR, attr->context, &mr_object_ops};
		mr->fid.mem_desc = mr.get();
		const std::lock_guard lock(domain->mutex);
		mr->fid.key = domain->mr_mode & FI_MR_PROV_KEY ? domain->next_key++ : attr->requested_key;
		if (!domain->memories.try_emplace(mr->fid.key, mr.get()).second) {
			PT2P_OFI_WARN(FI_LOG_MR, "key %llu is in use: close its memory first, or ask for another\n",
			              static_cast<unsigned long long>(mr->fid.key));
			return -FI_ENOKEY;
		}
		++domain->users;
		*out = &mr.release()->fid;
		return 0;
	});
}

int register_v(fid *f, const iovec *iov, size_t count, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags,
               fid_mr **out, void *context)
{
	fi_mr_attr attr{};
	attr.mr_iov = iov;
	attr.iov_count = count;
	attr.access = access;
	attr.offset = offset;
	attr.requested_key = key;
	attr.context = context;
	return register_attr(f, &attr, flags, out);
}

int register_one(fid *f, const void *buffer, size_t length, uint64_t access, uint64_t offset, uint64_t key,
                 uint64_t flags, fid_mr **out, void *context)
{
	const iovec iov{const_cast<void *>(buffer), length};
	return register_v(f, &iov, 1, access, offset, key, flags, out, context);
}

fi_ops_mr mr_ops = {.size = sizeof(fi_ops_mr), .reg = register_one, .regv = register_v, .regattr = register_attr};

// ---- domains --------------------------------------------------------------------------------------------------------

int close_domain(fid *f)
{
	Domain *domain = object_of<Domain>(f);
	if (domain->users)
		return -FI_EBUSY;
	--domain->fabric->users;
	delete domain;
	return 0;
}

// Event queues get no events of a domain.
int bind_domain(fid *, fid *object, uint64_t flags)
{
	return object->fclass != FI_CLASS_EQ ? -FI_EINVAL : flags & FI_REG_MR ? -FI_ENOSYS : 0;
}

fi_ops domain_object_ops = object_ops(close_domain, bind_domain);
fi_ops_domain domain_ops = {.size = sizeof(fi_ops_domain),
                            .av_open = open_av,
                            .cq_open = open_cq,
                            .endpoint = open_endpoint,
                            .scalable_ep = not_offered,
                            .cntr_open = open_counter,
                            .poll_open = open_poll,
                            .stx_ctx = not_offered,
                            .srx_ctx = not_offered,
                            .query_atomic = query_atomic,
                            .query_collective = not_offered,
                            .endpoint2 = not_offered};

} // namespace

void Domain::forget(Counter &counter)
{
	{
		const std::lock_guard guard(mutex);
		for (const auto &[key, mr] : memories)
			if (mr->counter == &counter)
				mr->counter = nullptr;
	}
	const std::lock_guard guard(members);
	std::erase(memory_counters, &counter);
	for (Endpoint *endpoint : endpoints)
		std::erase(endpoint->counters, &counter);
}

int open_domain(fid_fabric *f, fi_info *info, fid_domain **out, void *context)
{
	return guarded([&] {
		auto domain = std::make_unique<Domain>();
		domain->fid.fid = {FI_CLASS_DOMAIN, context, &domain_object_ops};
		domain->fid.ops = &domain_ops;
		domain->fid.mr = &mr_ops;
		domain->fabric = object_of<Fabric>(f);
		domain->several_threads = info->domain_attr->threading != FI_THREAD_DOMAIN;
		domain->progress_by_thread = info->domain_attr->data_progress == FI_PROGRESS_AUTO ||
		                             info->domain_attr->control_progress == FI_PROGRESS_AUTO;
		domain->mr_mode = info->domain_attr->mr_mode;
		if (domain->mr_mode == FI_MR_BASIC)
			domain->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
		else if (domain->mr_mode == FI_MR_SCALABLE)
			domain->mr_mode = 0;
		domain->caps = info->caps;
		// Keys differ between runs, so that a peer's old one is noticed.
		domain->next_key = static_cast<uint64_t>(getpid()) << 32 | 1;
		++domain->fabric->users;
		*out = &domain.release()->fid;
		return 0;
	});
}

} // namespace pt2p_ofi
