#include "softhca/process.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <pthread.h>
#include <sys/prctl.h>

#include "softhca/fabric/sysfs.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/live/live.hpp"
#include "softhca/model/model.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

namespace {

std::unique_ptr<Scheduler> make_scheduler(Nic &nic, const Fabric *fabric)
{
	if (!time_is_virtual() || !fabric)
		return std::make_unique<live::Live>(nic);
	// Many ranks in one process touch little of what they allocate: the kernel would clear huge pages in vain.
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	const char *profile = std::getenv("SOFTHCA_MODEL");
	try {
		const model::Profile costs = model::read_profile(profile && *profile ? profile : "connectx5");
		// A lane moves 128 bits of 130.
		put_pcie_links(fabric->sysfs(), fabric->devices(), costs.pcie_lane * 8e-3 * 130 / 128, costs.pcie_lanes);
		return std::make_unique<model::Model>(nic, costs, fabric->devices(), max_virtual_queue_pairs);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "softhca: SOFTHCA_MODEL: %s\n", e.what());
		std::exit(2);
	}
}

Nic &make_nic()
{
	const Fabric *fabric = Fabric::get();
	Nic &nic = *new Nic(fabric);
	nic.run_by(make_scheduler(nic, fabric));
	return nic;
}

std::atomic<bool> follows_forks = false;
thread_local bool follows_this_one = false;

void before_fork()
{
	follows_this_one = follows_forks;
	if (follows_this_one)
		process_nic().mutex.lock();
}
void after_fork_in_parent()
{
	if (follows_this_one)
		process_nic().mutex.unlock();
}
void after_fork_in_child()
{
	if (!follows_this_one)
		return;
	new (&process_nic().mutex) std::mutex;
	process_nic().abandon();
	Context::forked();
}

// Before the program registers handlers of its own, so that those find a NIC whose lock is free in the child: they may
// close files.
[[gnu::constructor]] void register_fork_handlers()
{
	if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
		std::abort(); // no memory, at the very start
}

} // namespace

Nic &process_nic()
{
	static Nic &nic = make_nic();
	return nic;
}

Scheduler &process_scheduler() { return process_nic().scheduler(); }

void follow_forks() { follows_forks = true; }

} // namespace softhca
