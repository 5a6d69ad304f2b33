// The functions of softhca.h.
#include "softhca/softhca.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "softhca/kernel/context.hpp"
#include "softhca/nic/nic.hpp"
#include "softhca/process.hpp"

using namespace softhca;

namespace {

// counter_count when there is no such counter.
size_t index_of(const char *name)
{
	static constexpr const char *names[] = {
#define COUNTER(name, description) #name,
#include "softhca/counters/counters.def"
#undef COUNTER
	};
	size_t i = 0;
	while (i < counter_count && std::strcmp(names[i], name) != 0)
		++i;
	return i;
}

} // namespace

extern "C" {

int softhca_counter(const char *name, int device, uint32_t qp_num, uint64_t *value)
{
	const size_t index = name ? index_of(name) : counter_count;
	if (index == counter_count || !value || !Fabric::get() || device < -1 ||
	    device >= static_cast<int>(Fabric::get()->devices())) {
		errno = ENOENT;
		return -1;
	}
	const auto counter = static_cast<Counter>(index);
	Nic &nic = process_nic();
	const std::lock_guard guard(nic.mutex);
	const Account &account = nic.accounts().account();
	if (qp_num) {
		const QpAccount &entry = account.queue_pair[nic.index_of(qp_num)];
		if (entry.number != qp_num) {
			errno = ENOENT;
			return -1;
		}
		*value = entry.counters.get(counter);
		return 0;
	}
	*value = 0;
	for (int i = 0; i < static_cast<int>(max_devices); ++i)
		if (device == -1 || device == i)
			*value += account.device[i].get(counter);
	return 0;
}

uint32_t softhca_queue_pairs(int device)
{
	Nic &nic = process_nic();
	const std::lock_guard guard(nic.mutex);
	const Account &account = nic.accounts().account();
	return static_cast<uint32_t>(
	    std::count_if(account.queue_pair, account.queue_pair + account.queue_pairs,
	                  [&](const QpAccount &qp) { return qp.live && (device == -1 || device == qp.device); }));
}

int softhca_fault(const char *rules, char *why, uint64_t size)
{
	Nic &nic = process_nic();
	const std::lock_guard guard(nic.mutex);
	const std::string error = rules ? nic.faults.add(rules) : "no rules";
	if (error.empty())
		return 0;
	if (why && size)
		std::snprintf(why, size, "%s", error.c_str());
	errno = EINVAL;
	return -1;
}

void softhca_polled(int device, int found) { process_scheduler().polled(static_cast<unsigned>(device), found != 0); }

void softhca_count_work(softhca_work_t (*read)(void *object), void *object)
{
	process_scheduler().count_work(read, object);
}

} // extern "C"
