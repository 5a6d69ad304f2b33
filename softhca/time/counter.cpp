// The processor's time stamp counter, which programs read without a call. Reading it faults (PR_SET_TSC), and the
// handler returns the virtual time, in nanoseconds. Handlers that are installed later must pass on unknown signals
// (traps.cpp does).
#if defined(__x86_64__) && defined(__linux__)
#include <csignal>
#include <cstdint>
#include <cstring>
#include <sys/prctl.h>
#include <ucontext.h>

#include "softhca/time/fibres.hpp"

using namespace softhca::time;

namespace {

constexpr uint64_t look_at_counter = 10 * ps_per_ns;
constexpr uint8_t read_counter[] = {0x0f, 0x31}, read_counter_and_processor[] = {0x0f, 0x01, 0xf9};

struct sigaction earlier;

void on_fault(int signal, siginfo_t *info, void *context)
{
	gregset_t &registers = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
	const auto *at = reinterpret_cast<const uint8_t *>(registers[REG_RIP]);
	// A forbidden instruction faults without an address. It was fetched, so it can be read.
	if (info->si_code == SI_KERNEL) {
		const bool plain = std::memcmp(at, read_counter, sizeof read_counter) == 0;
		if (plain || std::memcmp(at, read_counter_and_processor, sizeof read_counter_and_processor) == 0) {
			softhca_time_charge(look_at_counter);
			const uint64_t ns = softhca_time_now() / ps_per_ns;
			registers[REG_RAX] = static_cast<greg_t>(ns & UINT32_MAX);
			registers[REG_RDX] = static_cast<greg_t>(ns >> 32);
			if (!plain)
				registers[REG_RCX] = 0;
			registers[REG_RIP] += static_cast<greg_t>(plain ? sizeof read_counter : sizeof read_counter_and_processor);
			return;
		}
	}
	if (earlier.sa_flags & SA_SIGINFO)
		return earlier.sa_sigaction(signal, info, context);
	if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN)
		return earlier.sa_handler(signal);
	std::signal(signal, SIG_DFL); // the fault comes again
	if (info->si_code <= 0)
		std::raise(signal);
}

[[gnu::constructor]] void install()
{
	struct sigaction ours = {};
	ours.sa_sigaction = on_fault;
	ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	sigaction(SIGSEGV, &ours, &earlier);
}

} // namespace

void softhca_time_trap_counter() { prctl(PR_SET_TSC, PR_TSC_SIGSEGV); }
#else
#include "softhca/time/virtual_time.h"

void softhca_time_trap_counter() {}
#endif
