// What the work of a call costs a network device, by the generation of the device. The advisor (advice.hpp) stands on
// it.
//
// Sources. K16: Kalia et al., Design Guidelines for High Performance RDMA Systems, USENIX ATC 2016. RB: raw sweeps that
// belong to it. DCTB: measurements of DC that belong to FaSST (Kalia et al., OSDI 2016). SMART: raw results that belong
// to SMART (Ren et al., ASPLOS 2024). UCX: defaults of its models of devices. Each figure is also in
// softhca/model/profile.def, which tells what is published, what was calibrated, and what is assumed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pt2p::rpc::laws {

// Times in ns. A processing unit of the device does one thing after the other.
struct DeviceClass {
	const char *name;
	bool dc;
	double units;        // that send and, unless there are `serve_units`, execute; K16: 16 of Connect-IB
	double serve_units;  // that only execute requests; RB: ConnectX-3 sends 11 M/s and serves 11 at once
	double request;      // sent: one queue pair of Connect-IB sends 8.3 M/s; K16
	double datagram;     // sent: 16.6 M/s; K16
	double acknowledged; // the acknowledgement taken: WRITE 11 and 89.5 M/s out; K16, SMART
	double response;     // the response to a READ taken: READ 11.1, 88, 111 M/s out; K16, SMART
	double piece;        // each further 256 bytes of a packet written to memory: READ of 264 bytes 7.1 M/s; RB
	double serve;        // a request executed: WRITE 122 M/s in; K16
	double respond;      // its response: READ 11.26 and 120 M/s in; K16, S1
	double wqe_cache;    // WQEs: READ falls above 336 outstanding on Connect-IB, 1536 on ConnectX-6; RB, SMART
	bool wqe_kept;       // a WRITE needs its WQE again when it is acknowledged; K16, SMART
	double requesters;   // contexts of queue pairs that send: READ over 264 and 1260 queue pairs; RB
	double responders;   // contexts of those that serve; DCTB, SMART
	double overlap;      // of a unit's reads of WQEs and contexts: READ with 2688 outstanding 62.4 M/s; SMART
	double latency;      // of each passage through the device: READ takes 1.79, 1.9, 2.35 us; RB, SMART
	double pcie;         // bytes a ns; K16
	double wire;         // bytes a ns
	double dc_request;   // more for a request of a DC initiator: 39 M READs/s; DCTB
	double dc_switch;    // more when it changes its target: READ 1.9 us to one target, 2.9 alternating; DCTB, UCX
};

// connectx3, connectib, connectx5, connectx6.
std::span<const DeviceClass> device_classes();
// Null: none has that name.
const DeviceClass *device_class(std::string_view name);
// The class of a device with that vendor_part_id, or of the generation nearest to it; null: it is not known.
const DeviceClass *class_of_part(uint32_t vendor_part_id);

} // namespace pt2p::rpc::laws
