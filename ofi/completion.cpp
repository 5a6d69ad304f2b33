#include "ofi/completion.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ofi/domain.hpp"
#include "ofi/endpoint.hpp"
#include "ofi/fabric.hpp"

namespace pt2p_ofi {

// ---- waiting --------------------------------------------------------------------------------------------------------

WaitDescriptor::~WaitDescriptor()
{
	if (fd_ >= 0)
		close(fd_);
}

int WaitDescriptor::open()
{
	fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return fd_ < 0 ? -errno : 0;
}

void WaitDescriptor::signal()
{
	const uint64_t one = 1;
	if (!signalled_ && fd_ >= 0)
		signalled_ = write(fd_, &one, sizeof one) == sizeof one;
}

void WaitDescriptor::clear()
{
	uint64_t count;
	if (signalled_)
		signalled_ = read(fd_, &count, sizeof count) != sizeof count;
}

bool WaitDescriptor::wait(int timeout) const
{
	pollfd p{fd_, POLLIN, 0};
	return poll(&p, 1, timeout) > 0;
}

void Reporters::add(Endpoint *endpoint)
{
	const Locked locked(lock_);
	if (std::find(endpoints_.begin(), endpoints_.end(), endpoint) == endpoints_.end())
		endpoints_.push_back(endpoint);
}

void Reporters::remove(const Endpoint *endpoint)
{
	const Locked locked(lock_);
	std::erase(endpoints_, endpoint);
}

void Reporters::progress()
{
	const Locked locked(lock_);
	for (const Endpoint *endpoint : endpoints_)
		if (endpoint->ctx)
			pt2p_progress(endpoint->ctx);
}

namespace {

// The rest of a time limit in ms; negative: there is none.
class TimeLeft {
public:
	explicit TimeLeft(int timeout) : timeout_(timeout), begin_(std::chrono::steady_clock::now()) {}
	int operator()() const
	{
		if (timeout_ < 0)
			return -1;
		const auto passed = std::chrono::steady_clock::now() - begin_;
		const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(passed).count();
		return ms >= timeout_ ? 0 : static_cast<int>(timeout_ - ms);
	}

private:
	int timeout_;
	std::chrono::steady_clock::time_point begin_;
};

bool is_wait_object(fi_wait_obj object) { return object != FI_WAIT_NONE; }

// Whether this kind of wait object is offered.
bool offered(fi_wait_obj object, fi_log_subsys subsystem)
{
	switch (object) {
	case FI_WAIT_NONE:
	case FI_WAIT_UNSPEC:
	case FI_WAIT_FD:
	case FI_WAIT_YIELD: return true;
	default:
		PT2P_OFI_WARN(subsystem, "wait object %d is not offered; FI_WAIT_FD, FI_WAIT_UNSPEC and FI_WAIT_YIELD are\n",
		              static_cast<int>(object));
		return false;
	}
}

int control_of(WaitDescriptor &wait, fi_wait_obj kind, int command, void *argument)
{
	switch (command) {
	case FI_GETWAIT:
		if (!wait.is_open())
			return -FI_ENOSYS;
		*static_cast<int *>(argument) = wait.fd();
		return 0;
	case FI_GETWAITOBJ: *static_cast<fi_wait_obj *>(argument) = kind; return 0;
	default: return -FI_ENOSYS;
	}
}

// ---- completion queues ----------------------------------------------------------------------------------------------

size_t entry_size(fi_cq_format format)
{
	switch (format) {
	case FI_CQ_FORMAT_MSG: return sizeof(fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA: return sizeof(fi_cq_data_entry);
	case FI_CQ_FORMAT_TAGGED: return sizeof(fi_cq_tagged_entry);
	default: return sizeof(fi_cq_entry);
	}
}

int close_cq(fid *f)
{
	Cq *cq = object_of<Cq>(f);
	if (!cq->reporters.empty())
		return -FI_EBUSY;
	--cq->domain->users;
	delete cq;
	return 0;
}

int control_cq(fid *f, int command, void *argument)
{
	Cq *cq = object_of<Cq>(f);
	return control_of(cq->wait, cq->may_wait ? FI_WAIT_FD : FI_WAIT_NONE, command, argument);
}

ssize_t cq_read(fid_cq *f, void *buffer, size_t count) { return object_of<Cq>(f)->read(buffer, count, nullptr); }

ssize_t cq_readfrom(fid_cq *f, void *buffer, size_t count, fi_addr_t *sources)
{
	return object_of<Cq>(f)->read(buffer, count, sources);
}

ssize_t cq_readerr(fid_cq *f, fi_cq_err_entry *entry, uint64_t)
{
	Cq *cq = object_of<Cq>(f);
	const Locked locked(cq->lock);
	if (cq->errors.empty())
		return -FI_EAGAIN;
	Error &error = cq->errors.front();
	cq->shown = std::move(error.text);
	error.entry.err_data = cq->shown.empty() ? nullptr : cq->shown.data();
	error.entry.err_data_size = cq->shown.empty() ? 0 : cq->shown.size() + 1;
	// A program may have reserved memory for the data of the error.
	if (entry->err_data && entry->err_data_size) {
		const size_t fit = std::min(entry->err_data_size, error.entry.err_data_size);
		void *const place = entry->err_data;
		if (fit)
			std::memcpy(place, error.entry.err_data, fit);
		*entry = error.entry;
		entry->err_data = place;
		entry->err_data_size = fit;
	} else {
		*entry = error.entry;
	}
	cq->errors.pop_front();
	return 1;
}

ssize_t cq_sreadfrom(fid_cq *f, void *buffer, size_t count, fi_addr_t *sources, const void *, int timeout)
{
	Cq *cq = object_of<Cq>(f);
	if (!cq->may_wait)
		return -FI_ENOSYS;
	for (const TimeLeft left(timeout);;) {
		const ssize_t n = cq->read(buffer, count, sources);
		if (n != -FI_EAGAIN)
			return n;
		{
			const Locked locked(cq->lock);
			if (cq->begin != cq->end || !cq->errors.empty())
				continue;
			cq->wait.clear();
			if (std::exchange(cq->woken, false))
				return -FI_EAGAIN;
		}
		if (!left() || !cq->wait.wait(left()))
			return -FI_EAGAIN;
	}
}

ssize_t cq_sread(fid_cq *f, void *buffer, size_t count, const void *condition, int timeout)
{
	return cq_sreadfrom(f, buffer, count, nullptr, condition, timeout);
}

int cq_signal(fid_cq *f)
{
	Cq *cq = object_of<Cq>(f);
	if (!cq->may_wait)
		return -FI_ENOSYS;
	const Locked locked(cq->lock);
	cq->woken = true;
	cq->wait.signal();
	return 0;
}

const char *cq_strerror(fid_cq *, int provider_errno, const void *data, char *buffer, size_t length)
{
	const char *text =
	    data ? static_cast<const char *>(data) : pt2p_strerror(static_cast<pt2p_status_t>(provider_errno));
	if (buffer && length) {
		std::strncpy(buffer, text, length - 1);
		buffer[length - 1] = 0;
	}
	return text;
}

fi_ops cq_object_ops = object_ops(close_cq, not_offered, control_cq);
fi_ops_cq cq_ops = {.size = sizeof(fi_ops_cq),
                    .read = cq_read,
                    .readfrom = cq_readfrom,
                    .readerr = cq_readerr,
                    .sread = cq_sread,
                    .sreadfrom = cq_sreadfrom,
                    .signal = cq_signal,
                    .strerror = cq_strerror};

// ---- counters -------------------------------------------------------------------------------------------------------

int close_counter(fid *f)
{
	Counter *counter = object_of<Counter>(f);
	if (counter->bound)
		return -FI_EBUSY;
	counter->domain->forget(*counter);
	--counter->domain->users;
	delete counter;
	return 0;
}

int control_counter(fid *f, int command, void *argument)
{
	Counter *counter = object_of<Counter>(f);
	return control_of(counter->wait, counter->may_wait ? FI_WAIT_FD : FI_WAIT_NONE, command, argument);
}

uint64_t counter_read(fid_cntr *f)
{
	Counter *counter = object_of<Counter>(f);
	counter->reporters.progress();
	const Locked locked(counter->lock);
	counter->seen = counter->value + counter->errors;
	return counter->value;
}

uint64_t counter_readerr(fid_cntr *f)
{
	Counter *counter = object_of<Counter>(f);
	counter->reporters.progress();
	const Locked locked(counter->lock);
	return counter->errors;
}

int change(fid_cntr *f, uint64_t Counter::*member, uint64_t value, bool add)
{
	Counter *counter = object_of<Counter>(f);
	const Locked locked(counter->lock);
	counter->*member = add ? counter->*member + value : value;
	counter->wait.signal();
	return 0;
}

int counter_add(fid_cntr *f, uint64_t value) { return change(f, &Counter::value, value, true); }
int counter_set(fid_cntr *f, uint64_t value) { return change(f, &Counter::value, value, false); }
int counter_adderr(fid_cntr *f, uint64_t value) { return change(f, &Counter::errors, value, true); }
int counter_seterr(fid_cntr *f, uint64_t value) { return change(f, &Counter::errors, value, false); }

int counter_wait(fid_cntr *f, uint64_t threshold, int timeout)
{
	Counter *counter = object_of<Counter>(f);
	const uint64_t errors = counter_readerr(f);
	for (const TimeLeft left(timeout);;) {
		counter->reporters.progress();
		{
			const Locked locked(counter->lock);
			if (counter->value >= threshold)
				return 0;
			if (counter->errors != errors)
				return -FI_EAVAIL;
			if (counter->may_wait)
				counter->wait.clear();
		}
		const int rest = left();
		if (!rest)
			return -FI_ETIMEDOUT;
		if (counter->may_wait)
			counter->wait.wait(rest);
		else
			sched_yield();
	}
}

fi_ops counter_object_ops = object_ops(close_counter, not_offered, control_counter);
fi_ops_cntr counter_ops = {.size = sizeof(fi_ops_cntr),
                           .read = counter_read,
                           .readerr = counter_readerr,
                           .add = counter_add,
                           .set = counter_set,
                           .wait = counter_wait,
                           .adderr = counter_adderr,
                           .seterr = counter_seterr};

// ---- poll sets ------------------------------------------------------------------------------------------------------

// Queues and counters that are looked at together.
struct PollSet {
	fid_poll fid;
	Domain *domain;
	struct Member {
		::fid *object;
		uint64_t seen; // counter: its value at the last look
	};
	std::vector<Member> members;
};

int close_poll(fid *f)
{
	PollSet *set = object_of<PollSet>(f);
	--set->domain->users;
	delete set;
	return 0;
}

// Whether a queue has completions, or a counter has changed.
bool is_ready(PollSet::Member &member)
{
	if (member.object->fclass == FI_CLASS_CQ) {
		Cq *cq = object_of<Cq>(member.object);
		cq->reporters.progress();
		const Locked locked(cq->lock);
		return cq->begin != cq->end || !cq->errors.empty();
	}
	Counter *counter = object_of<Counter>(member.object);
	counter->reporters.progress();
	const Locked locked(counter->lock);
	return std::exchange(member.seen, counter->value + counter->errors) != counter->value + counter->errors;
}

int poll_poll(fid_poll *f, void **contexts, int count)
{
	int n = 0;
	for (PollSet::Member &member : object_of<PollSet>(f)->members)
		if (is_ready(member) && n < count)
			contexts[n++] = member.object->context;
	return n;
}

int poll_add(fid_poll *f, fid *object, uint64_t)
{
	if (object->fclass != FI_CLASS_CQ && object->fclass != FI_CLASS_CNTR)
		return -FI_EINVAL;
	return guarded([&] {
		object_of<PollSet>(f)->members.push_back({object, 0});
		return 0;
	});
}

int poll_del(fid_poll *f, fid *object, uint64_t)
{
	std::erase_if(object_of<PollSet>(f)->members, [object](const PollSet::Member &m) { return m.object == object; });
	return 0;
}

fi_ops poll_object_ops = object_ops(close_poll);
fi_ops_poll poll_ops = {.size = sizeof(fi_ops_poll), .poll = poll_poll, .poll_add = poll_add, .poll_del = poll_del};

} // namespace

void Cq::grow()
{
	std::vector<Completion> larger(2 * ring.size());
	for (size_t i = begin; i != end; ++i)
		larger[i & (larger.size() - 1)] = ring[i & (ring.size() - 1)];
	ring = std::move(larger);
}

void Cq::push_error(const fi_cq_err_entry &entry, fi_addr_t source, const char *text)
{
	const Locked locked(lock);
	errors.push_back({entry, source, text});
	if (may_wait)
		wait.signal();
}

ssize_t Cq::read(void *buffer, size_t count, fi_addr_t *sources)
{
	const ssize_t n = take(buffer, count, sources);
	if (n != -FI_EAGAIN)
		return n;
	reporters.progress();
	return take(buffer, count, sources);
}

ssize_t Cq::take(void *buffer, size_t count, fi_addr_t *sources)
{
	const Locked locked(lock);
	const size_t n = std::min(count, end - begin);
	auto *to = static_cast<unsigned char *>(buffer);
	for (size_t i = 0; i < n; ++i, to += entry_size) {
		const Completion &c = ring[begin++ & (ring.size() - 1)];
		std::memcpy(to, &c.entry, entry_size);
		if (sources)
			sources[i] = c.source;
	}
	if (__builtin_expect(n != 0, 1))
		return static_cast<ssize_t>(n);
	return errors.empty() ? -FI_EAGAIN : -FI_EAVAIL;
}

void Counter::add_error(uint64_t n)
{
	const Locked locked(lock);
	errors += n;
	if (may_wait)
		wait.signal();
}

int open_cq(fid_domain *d, fi_cq_attr *attributes, fid_cq **out, void *context)
{
	return guarded([&] {
		const fi_cq_attr attr = attributes ? *attributes : fi_cq_attr{};
		if (!offered(attr.wait_obj, FI_LOG_CQ))
			return -FI_ENOSYS;
		if (attr.format > FI_CQ_FORMAT_TAGGED)
			return -FI_ENOSYS;
		auto cq = std::make_unique<Cq>();
		cq->fid.fid = {FI_CLASS_CQ, context, &cq_object_ops};
		cq->fid.ops = &cq_ops;
		cq->domain = object_of<Domain>(d);
		cq->entry_size = entry_size(attr.format);
		cq->may_wait = is_wait_object(attr.wait_obj);
		if (const int error = cq->may_wait ? cq->wait.open() : 0)
			return error;
		if (cq->domain->several_threads || cq->may_wait)
			cq->enable_locks();
		size_t size = 64;
		while (size < attr.size)
			size *= 2;
		cq->ring.resize(size);
		++cq->domain->users;
		if (attributes && !attributes->size)
			attributes->size = size;
		*out = &cq.release()->fid;
		return 0;
	});
}

int open_counter(fid_domain *d, fi_cntr_attr *attributes, fid_cntr **out, void *context)
{
	return guarded([&] {
		const fi_cntr_attr attr = attributes ? *attributes : fi_cntr_attr{};
		if (!offered(attr.wait_obj, FI_LOG_CNTR))
			return -FI_ENOSYS;
		if (attr.flags || attr.events != FI_CNTR_EVENTS_COMP)
			return -FI_EINVAL;
		auto counter = std::make_unique<Counter>();
		counter->fid.fid = {FI_CLASS_CNTR, context, &counter_object_ops};
		counter->fid.ops = &counter_ops;
		counter->domain = object_of<Domain>(d);
		// fi_cntr_wait works without a descriptor; only a descriptor needs a thread that makes progress.
		counter->may_wait = attr.wait_obj == FI_WAIT_FD;
		if (const int error = counter->may_wait ? counter->wait.open() : 0)
			return error;
		if (counter->domain->several_threads || counter->may_wait)
			counter->enable_locks();
		++counter->domain->users;
		*out = &counter.release()->fid;
		return 0;
	});
}

int open_poll(fid_domain *d, fi_poll_attr *, fid_poll **out)
{
	return guarded([&] {
		auto set = std::make_unique<PollSet>();
		set->fid.fid = {FI_CLASS_POLL, nullptr, &poll_object_ops};
		set->fid.ops = &poll_ops;
		set->domain = object_of<Domain>(d);
		++set->domain->users;
		*out = &set.release()->fid;
		return 0;
	});
}

int try_wait(fid *object)
{
	const auto try_one = [](auto &o, auto &&has_something) {
		if (!o.may_wait)
			return -FI_EINVAL;
		o.reporters.progress();
		const Locked locked(o.lock);
		if (has_something(o))
			return -FI_EAGAIN;
		o.wait.clear();
		return 0;
	};
	switch (object->fclass) {
	case FI_CLASS_CQ:
		return try_one(*object_of<Cq>(object),
		               [](const Cq &cq) { return cq.begin != cq.end || !cq.errors.empty() || cq.woken; });
	case FI_CLASS_CNTR:
		return try_one(*object_of<Counter>(object), [](const Counter &c) { return c.value + c.errors != c.seen; });
	case FI_CLASS_EQ: return try_wait_events(object);
	default: return -FI_EINVAL;
	}
}

} // namespace pt2p_ofi
