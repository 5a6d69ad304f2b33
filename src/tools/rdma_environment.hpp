// SPDX-License-Identifier: BSD-3-Clause
// What users can set for libmlx5, below libpt2p, that changes what is measured. pt2p_info tells of those that are set;
// pt2p_tunables(7) lists them.
#pragma once

namespace pt2p {

struct RdmaVariable {
	const char *name, *standard, *effect;
};

// Without effect on the queues that libpt2p writes and reads itself.
#define PT2P_NOT_DIRECT " Without effect on rc and dct, unless PT2P_NET_DIRECT is off."
// Read by libmlx5 when a device is opened or a queue made; as of rdma-core 44, and the same in its newer releases.
inline constexpr RdmaVariable rdma_variables[] = {
    {"MLX5_SINGLE_THREADED", "0",
     "1: libmlx5 takes no locks, which saves instructions of each post and poll. Only for processes in which one "
     "thread "
     "at a time uses the devices: libmlx5 ends a process in which it sees two." PT2P_NOT_DIRECT},
    {"MLX5_SHUT_UP_BF", "0",
     "Anything but 0: no BlueFlame. A doorbell does not bring the work request along, so the device reads each one "
     "from "
     "memory: higher latency."},
    {"MLX5_POST_SEND_PREFER_BF", "1",
     "0: BlueFlame only for work requests with inline data; the device reads others from memory. Else for every single "
     "one that fits." PT2P_NOT_DIRECT},
    {"MLX5_SCATTER_TO_CQE", "1",
     "0: the device writes small payloads to their buffers instead of into completions, from where they are taken "
     "when these are read."},
    {"MLX5_CQE_SIZE", "64",
     "Bytes of a completion, 64 or 128; with any other number no completion queue can be made. 128 takes two cache "
     "lines "
     "for each message, and has room for more payload."},
    {"MLX5_TOTAL_UUARS", "16",
     "Doorbell registers of a process, rounded up to an even number, at most 512. Queue pairs beyond them share "
     "registers, "
     "with a lock around each doorbell."},
    {"MLX5_NUM_LOW_LAT_UUARS", "4",
     "Those of the doorbell registers that belong to one queue pair each and need no lock. At least the total less 12; "
     "no "
     "device can be opened unless it is below the total."},
    {"MLX5_STALL_CQ_POLL", "by the processor",
     "Anything but 0: a poll after one that found nothing waits a moment first, so that the device can write "
     "undisturbed. "
     "Not set: on Sandy Bridge processors away from the device only." PT2P_NOT_DIRECT},
};
#undef PT2P_NOT_DIRECT

} // namespace pt2p
