#include "ofi/fabric.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "ofi/domain.hpp"

namespace pt2p_ofi {

namespace {

// ---- event queues ---------------------------------------------------------------------------------------------------

int close_eq(fid *f)
{
	EventQueue *eq = object_of<EventQueue>(f);
	if (eq->users)
		return -FI_EBUSY;
	--eq->fabric->users;
	delete eq;
	return 0;
}

int control_eq(fid *f, int command, void *argument)
{
	EventQueue *eq = object_of<EventQueue>(f);
	const Locked locked(eq->lock);
	return control_wait(eq->wait, command, argument);
}

ssize_t eq_read(fid_eq *f, uint32_t *event, void *buffer, size_t length, uint64_t flags)
{
	EventQueue *eq = object_of<EventQueue>(f);
	const Locked locked(eq->lock);
	if (!eq->errors.empty())
		return -FI_EAVAIL;
	if (eq->events.empty()) {
		eq->wait.clear();
		return -FI_EAGAIN;
	}
	const EventQueue::Event &front = eq->events.front();
	if (length < front.data.size())
		return -FI_ETOOSMALL;
	*event = front.number;
	const auto n = static_cast<ssize_t>(front.data.size());
	if (n)
		std::memcpy(buffer, front.data.data(), front.data.size());
	if (!(flags & FI_PEEK))
		eq->events.pop_front();
	return n;
}

ssize_t eq_readerr(fid_eq *f, fi_eq_err_entry *entry, uint64_t flags)
{
	EventQueue *eq = object_of<EventQueue>(f);
	const Locked locked(eq->lock);
	if (eq->errors.empty())
		return -FI_EAGAIN;
	*entry = eq->errors.front();
	if (!(flags & FI_PEEK))
		eq->errors.pop_front();
	return sizeof *entry;
}

ssize_t eq_write(fid_eq *f, uint32_t event, const void *data, size_t length, uint64_t)
{
	return guarded([&] {
		object_of<EventQueue>(f)->push(event, data, length);
		return static_cast<int>(length);
	});
}

ssize_t eq_sread(fid_eq *f, uint32_t *event, void *buffer, size_t length, int timeout, uint64_t flags)
{
	EventQueue *eq = object_of<EventQueue>(f);
	if (!eq->may_wait)
		return -FI_ENOSYS;
	for (const TimeLeft left(timeout);;) {
		const ssize_t n = eq_read(f, event, buffer, length, flags);
		if (n != -FI_EAGAIN)
			return n;
		{
			const Locked locked(eq->lock);
			if (!eq->events.empty() || !eq->errors.empty())
				continue;
			eq->wait.prepare();
		}
		if (!left() || !eq->wait.wait(left()))
			return -FI_EAGAIN;
	}
}

const char *eq_strerror(fid_eq *, int provider_errno, const void *, char *buffer, size_t length)
{
	return copy_text(pt2p_strerror(static_cast<pt2p_status_t>(provider_errno)), buffer, length);
}

fi_ops eq_object_ops = object_ops(close_eq, not_offered, control_eq);
fi_ops_eq eq_ops = {.size = sizeof(fi_ops_eq),
                    .read = eq_read,
                    .readerr = eq_readerr,
                    .write = eq_write,
                    .sread = eq_sread,
                    .strerror = eq_strerror};

// ---- fabrics --------------------------------------------------------------------------------------------------------

int close_fabric(fid *f)
{
	Fabric *fabric = object_of<Fabric>(f);
	if (fabric->users)
		return -FI_EBUSY;
	delete fabric;
	return 0;
}

int trywait(fid_fabric *, fid **objects, int count)
{
	for (int i = 0; i < count; ++i)
		if (const int error = try_wait(objects[i]))
			return error;
	return 0;
}

fi_ops fabric_object_ops = object_ops(close_fabric);
fi_ops_fabric fabric_ops = {.size = sizeof(fi_ops_fabric),
                            .domain = open_domain,
                            .passive_ep = not_offered,
                            .eq_open = open_eq,
                            .wait_open = not_offered,
                            .trywait = trywait,
                            .domain2 = not_offered};

} // namespace

void EventQueue::push(uint32_t number, const void *data, size_t length)
{
	const auto *bytes = static_cast<const unsigned char *>(data);
	const Locked locked(lock);
	events.push_back({number, {bytes, bytes + length}});
	wait.signal();
}

void EventQueue::push_error(const fi_eq_err_entry &error)
{
	const Locked locked(lock);
	errors.push_back(error);
	wait.signal();
}

int open_eq(fid_fabric *f, fi_eq_attr *attributes, fid_eq **out, void *context)
{
	return guarded([&] {
		const fi_eq_attr attr = attributes ? *attributes : fi_eq_attr{};
		if (!is_offered(attr.wait_obj, FI_LOG_EQ))
			return -FI_ENOSYS;
		auto eq = std::make_unique<EventQueue>();
		eq->fid.fid = {FI_CLASS_EQ, context, &eq_object_ops};
		eq->fid.ops = &eq_ops;
		eq->fabric = object_of<Fabric>(f);
		eq->may_wait = attr.wait_obj != FI_WAIT_NONE;
		eq->lock.enable();
		if (const int error = eq->may_wait ? eq->wait.open() : 0)
			return error;
		++eq->fabric->users;
		*out = &eq.release()->fid;
		return 0;
	});
}

int try_wait_events(fid *f)
{
	EventQueue *eq = object_of<EventQueue>(f);
	if (!eq->may_wait)
		return -FI_EINVAL;
	const Locked locked(eq->lock);
	if (!eq->events.empty() || !eq->errors.empty())
		return -FI_EAGAIN;
	eq->wait.prepare();
	return 0;
}

int open_fabric(fi_fabric_attr *attributes, fid_fabric **out, void *context)
{
	return guarded([&] {
		auto fabric = std::make_unique<Fabric>();
		fabric->fid.fid = {FI_CLASS_FABRIC, context, &fabric_object_ops};
		fabric->fid.ops = &fabric_ops;
		fabric->fid.api_version = attributes->api_version;
		*out = &fabric.release()->fid;
		return 0;
	});
}

} // namespace pt2p_ofi
