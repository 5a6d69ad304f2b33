#include "ofi/completion.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <sched.h>

#include "ofi/domain.hpp"

namespace pt2p_ofi {

void Reporters::add(pt2p_context_t *context)
{
	const Locked locked(lock_);
	for (auto &[known, endpoints] : contexts_)
		if (known == context) {
			++endpoints;
			return;
		}
	contexts_.emplace_back(context, 1);
}

void Reporters::remove(pt2p_context_t *context)
{
	const Locked locked(lock_);
	std::erase_if(contexts_, [context](auto &entry) { return entry.first == context && !--entry.second; });
}

namespace {

// ---- completion queues ----------------------------------------------------------------------------------------------

int close_cq(fid *f)
{
	Cq *cq = object_of<Cq>(f);
	if (cq->users)
		return -FI_EBUSY;
	--cq->domain->users;
	delete cq;
	return 0;
}

int control_cq(fid *f, int command, void *argument)
{
	Cq *cq = object_of<Cq>(f);
	const Locked locked(cq->lock);
	return control_wait(cq->wait, command, argument);
}

// What is there already, with the lock. Entry: of the queue's format.
template <class Entry>
inline ssize_t take(Cq &cq, void *buffer, size_t count, fi_addr_t *sources)
{
	if (cq.completions.empty() || !count)
		return cq.errors.empty() ? -FI_EAGAIN : -FI_EAVAIL;
	auto *to = static_cast<unsigned char *>(buffer); // may be unaligned
	size_t n = 0;
	do {
		const Completion &c = cq.completions.pop();
		std::memcpy(to + n * sizeof(Entry), &c.entry, sizeof(Entry));
		if (sources)
			sources[n] = c.source;
	} while (++n < count && !cq.completions.empty());
	return static_cast<ssize_t>(n);
}

template <class Entry>
[[gnu::noinline]] ssize_t read_among_threads(Cq &cq, void *buffer, size_t count, fi_addr_t *sources)
{
	const auto take_locked = [&] {
		const Locked locked(cq.lock);
		return take<Entry>(cq, buffer, count, sources);
	};
	const ssize_t n = take_locked();
	if (n != -FI_EAGAIN)
		return n;
	cq.reporters.progress();
	return take_locked();
}

template <class Entry>
inline ssize_t read(Cq &cq, void *buffer, size_t count, fi_addr_t *sources)
{
	if (__builtin_expect(cq.lock.enabled(), 0))
		return read_among_threads<Entry>(cq, buffer, count, sources);
	if ((cq.completions.empty() || !count) && cq.errors.empty())
		cq.reporters.progress_all();
	return take<Entry>(cq, buffer, count, sources);
}

template <class Entry>
ssize_t cq_readfrom(fid_cq *f, void *buffer, size_t count, fi_addr_t *sources)
{
	Cq &cq = *object_of<Cq>(f);
	const ssize_t n = read<Entry>(cq, buffer, count, sources);
	if (n == -FI_EAGAIN && __builtin_expect(cq.may_wait, 0))
		cq.note_empty();
	return n;
}

template <class Entry>
ssize_t cq_read(fid_cq *f, void *buffer, size_t count)
{
	return cq_readfrom<Entry>(f, buffer, count, nullptr);
}

ssize_t cq_readerr(fid_cq *f, fi_cq_err_entry *entry, uint64_t)
{
	Cq *cq = object_of<Cq>(f);
	const Locked locked(cq->lock);
	if (cq->errors.empty())
		return -FI_EAGAIN;
	Error &error = cq->errors.front();
	const size_t length = std::min(error.text.size(), max_error_text - 1);
	error.entry.err_data = length ? cq->shown : nullptr;
	error.entry.err_data_size = length ? length + 1 : 0;
	std::memcpy(cq->shown, error.text.c_str(), length);
	cq->shown[length] = 0;
	// A program may have reserved memory for the data of the error. If it uses an entry again, it still says where the
	// last data was.
	if (entry->err_data && entry->err_data != cq->shown && entry->err_data_size) {
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

template <class Entry>
ssize_t cq_sreadfrom(fid_cq *f, void *buffer, size_t count, fi_addr_t *sources, const void *, int timeout)
{
	Cq *cq = object_of<Cq>(f);
	if (!cq->may_wait)
		return -FI_ENOSYS;
	for (const TimeLeft left(timeout);;) {
		const ssize_t n = read<Entry>(*cq, buffer, count, sources);
		if (n != -FI_EAGAIN)
			return n;
		{
			const Locked locked(cq->lock);
			if (!cq->empty())
				continue;
			cq->wait.prepare();
			if (std::exchange(cq->woken, false))
				return -FI_EAGAIN;
		}
		if (!left() || !cq->wait.wait(left()))
			return -FI_EAGAIN;
	}
}

template <class Entry>
ssize_t cq_sread(fid_cq *f, void *buffer, size_t count, const void *condition, int timeout)
{
	return cq_sreadfrom<Entry>(f, buffer, count, nullptr, condition, timeout);
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
	return copy_text(data ? static_cast<const char *>(data) : pt2p_strerror(static_cast<pt2p_status_t>(provider_errno)),
	                 buffer, length);
}

fi_ops cq_object_ops = object_ops(close_cq, not_offered, control_cq);
template <class Entry>
fi_ops_cq cq_ops = {.size = sizeof(fi_ops_cq),
                    .read = cq_read<Entry>,
                    .readfrom = cq_readfrom<Entry>,
                    .readerr = cq_readerr,
                    .sread = cq_sread<Entry>,
                    .sreadfrom = cq_sreadfrom<Entry>,
                    .signal = cq_signal,
                    .strerror = cq_strerror};

fi_ops_cq *ops_for(fi_cq_format format)
{
	switch (format) {
	case FI_CQ_FORMAT_MSG: return &cq_ops<fi_cq_msg_entry>;
	case FI_CQ_FORMAT_DATA: return &cq_ops<fi_cq_data_entry>;
	case FI_CQ_FORMAT_TAGGED: return &cq_ops<fi_cq_tagged_entry>;
	default: return &cq_ops<fi_cq_entry>;
	}
}

// ---- counters -------------------------------------------------------------------------------------------------------

int close_counter(fid *f)
{
	Counter *counter = object_of<Counter>(f);
	if (counter->users)
		return -FI_EBUSY;
	counter->domain->forget(*counter);
	--counter->domain->users;
	delete counter;
	return 0;
}

int control_counter(fid *f, int command, void *argument)
{
	Counter *counter = object_of<Counter>(f);
	const Locked locked(counter->lock);
	return control_wait(counter->wait, command, argument);
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
	return counter->errors_told = counter->errors;
}

int change(fid_cntr *f, uint64_t Counter::*member, uint64_t value, bool add)
{
	Counter *counter = object_of<Counter>(f);
	const Locked locked(counter->lock);
	counter->*member = add ? counter->*member + value : value;
	counter->errors_told = std::min(counter->errors_told, counter->errors);
	counter->wait.signal();
	return 0;
}

int counter_add(fid_cntr *f, uint64_t value) { return change(f, &Counter::value, value, true); }
int counter_set(fid_cntr *f, uint64_t value) { return change(f, &Counter::value, value, false); }
int counter_adderr(fid_cntr *f, uint64_t value) { return change(f, &Counter::errors, value, true); }
int counter_seterr(fid_cntr *f, uint64_t value) { return change(f, &Counter::errors, value, false); }

uint64_t known_errors(Counter &counter)
{
	const Locked locked(counter.lock);
	return counter.errors_told;
}

// Errors that were counted before the call end it, too, unless the program knows of them: what it waits for would never
// come.
int counter_wait(fid_cntr *f, uint64_t threshold, int timeout)
{
	Counter *counter = object_of<Counter>(f);
	const uint64_t errors = known_errors(*counter);
	for (const TimeLeft left(timeout);;) {
		counter->reporters.progress();
		{
			const Locked locked(counter->lock);
			if (counter->value >= threshold)
				return 0;
			if (counter->errors > errors) {
				counter->errors_told = counter->errors;
				return -FI_EAVAIL;
			}
			if (counter->may_wait)
				counter->wait.prepare();
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

} // namespace

void CompletionRing::grow() noexcept
{
	CompletionRing larger;
	larger.allocate(2 * (mask_ + 1));
	while (!empty()) {
		const Completion &c = pop();
		larger.push(c.entry, c.source);
	}
	*this = std::move(larger);
}

void Cq::push_locked(void *context, uint64_t flags, size_t length, void *buffer, uint64_t data, uint64_t tag,
                     fi_addr_t source) noexcept
{
	const Locked locked(lock);
	completions.push({context, flags, length, buffer, data, tag}, source);
	if (may_wait)
		wait.signal();
}

void Cq::note_empty()
{
	const Locked locked(lock);
	if (!empty())
		return;
	woken = false;
	wait.clear();
}

void Cq::push_error(const fi_cq_err_entry &entry, fi_addr_t source, const char *text)
{
	const Locked locked(lock);
	errors.push_back({entry, source, text});
	if (may_wait)
		wait.signal();
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
		if (!is_offered(attr.wait_obj, FI_LOG_CQ))
			return -FI_ENOSYS;
		if (attr.format > FI_CQ_FORMAT_TAGGED)
			return -FI_ENOSYS;
		auto cq = std::make_unique<Cq>();
		cq->fid.fid = {FI_CLASS_CQ, context, &cq_object_ops};
		cq->fid.ops = ops_for(attr.format);
		cq->domain = object_of<Domain>(d);
		cq->may_wait = attr.wait_obj != FI_WAIT_NONE;
		if (const int error = cq->may_wait ? cq->wait.open() : 0)
			return error;
		if (cq->domain->several_threads || cq->may_wait)
			cq->enable_locks();
		size_t size = 64;
		while (size < attr.size)
			size *= 2;
		cq->completions.allocate(size);
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
		if (!is_offered(attr.wait_obj, FI_LOG_CNTR))
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

} // namespace pt2p_ofi
