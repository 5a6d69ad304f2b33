// WQEs and packets that no program would make. The rings of queue pairs are filled with anything, and a second process
// on the wire (this program, which the device does not know) sends anything. The device must survive it, touch no
// memory that no key allows, and serve a new pair of queue pairs afterwards.
//
//   fuzz [SEED [SECONDS]]    below softhca; the same seed does the same, except for what depends on time
//   fuzz --joins N           joins the wire and leaves it N times
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "softhca/wire/wire.hpp"
#include "tests/softhca/hostile/round.hpp"

namespace {

using namespace hostile;
using softhca::Wire;
using Clock = std::chrono::steady_clock;

// A new pair of queue pairs exchanges a message.
void prove_alive(ibv_context *context, ibv_pd *pd, Arena &arena)
{
	Round round(context, pd, arena, true);
	uint8_t *from = arena.bytes + area, *to = from + 8192;
	for (size_t i = 0; i < 5000; ++i)
		from[i] = static_cast<uint8_t>(i * 7);
	std::memset(to, 0, 5000);
	ibv_sge source{reinterpret_cast<uintptr_t>(from), 5000, arena.open->lkey},
	    destination{reinterpret_cast<uintptr_t>(to), 5000, arena.open->lkey};
	ibv_recv_wr receive{}, *bad_receive;
	receive.sg_list = &destination;
	receive.num_sge = 1;
	check(ibv_post_recv(round.other, &receive, &bad_receive) == 0, "no receive can be posted");
	ibv_send_wr send{}, *bad_send;
	send.sg_list = &source;
	send.num_sge = 1;
	send.opcode = IBV_WR_SEND;
	send.send_flags = IBV_SEND_SIGNALED;
	check(ibv_post_send(round.one, &send, &bad_send) == 0, "no send can be posted");
	const auto until = Clock::now() + std::chrono::seconds(20);
	for (int done = 0; done < 2;) {
		ibv_wc wc;
		const int n = ibv_poll_cq(round.cq, 1, &wc);
		check(n >= 0 && Clock::now() < until, "a message does not arrive any more");
		if (n)
			check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		done += n;
	}
	check(std::memcmp(from, to, 5000) == 0, "a message arrives damaged");
}

// Twenty times something hostile. In between, what an honest program would do.
void play_round(ibv_context *context, ibv_pd *pd, Arena &arena, Wire &wire)
{
	Round round(context, pd, arena);
	for (uint32_t n = 20; n; --n) {
		round.post_receives();
		const bool work_requests = random_below(2), packets = !work_requests || sometimes(4);
		if (work_requests) {
			fuzz_send_queue(round, round.one, false);
			fuzz_send_queue(round, round.datagrams, true);
			fuzz_send_queue(round, round.dci, true);
			if (sometimes(10))
				fuzz_srq(round);
		}
		if (packets)
			fuzz_packets(round, wire);
		round.poll(1 + random_below(60));
		if (sometimes(3))
			round.connect(round.one, round.other->qp_num);
		if (sometimes(3))
			round.connect(round.other, round.one->qp_num);
		if (sometimes(3))
			round.connect(round.shared, Round::hostile_number);
		if (sometimes(3))
			round.start_datagrams();
		if (sometimes(3))
			round.start_dci();
	}
}

} // namespace

int main(int argc, char **argv)
{
	const char *fabric = std::getenv("SOFTHCA_FABRIC");
	check(fabric, "run it below softhca");
	if (argc > 2 && std::strcmp(argv[1], "--joins") == 0) {
		for (unsigned long n = std::strtoul(argv[2], nullptr, 0); n; --n)
			Wire joined(fabric);
		return 0;
	}
	const auto seed = static_cast<uint32_t>(argc > 1 ? std::strtoul(argv[1], nullptr, 0) : 1);
	const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 3;
	ibv_device **devices = ibv_get_device_list(nullptr);
	check(devices && devices[0], "no device");
	ibv_context *context = ibv_open_device(devices[0]);
	check(context, "the device cannot be opened");
	ibv_free_device_list(devices);
	ibv_pd *pd = ibv_alloc_pd(context);
	check(pd, "no protection domain");
	Arena arena(pd);
	prove_alive(context, pd, arena); // now the device has its slot of the wire
	Wire wire(fabric);
	Round::hostile_number = wire.slot() << 14 | 16;
	const auto until = Clock::now() + std::chrono::duration<double>(seconds);
	unsigned rounds = 0;
	for (; Clock::now() < until; ++rounds) {
		engine.seed(seed + rounds);
		play_round(context, pd, arena, wire);
		arena.check_guards();
		prove_alive(context, pd, arena);
	}
	check(ibv_dereg_mr(arena.open) == 0 && ibv_dereg_mr(arena.constant) == 0, "a region does not go");
	check(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "the device does not close");
	munmap(arena.bytes, 4 * area);
	std::printf("fuzz: %u rounds from seed %u\n", rounds, seed);
	return 0;
}
