// What an unmodified libibverbs gets from softhca: devices, ports, protection domains, memory regions, completion
// channels and queues, and errors for wrong arguments. Run below the softhca command.
#include <catch2/catch.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <memory>
#include <poll.h>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/softhca/device/device.hpp"
#include "tests/softhca/traffic/traffic.hpp"

namespace {

// A page whose access rights can be taken away.
struct Page {
	explicit Page(int rights = PROT_READ | PROT_WRITE)
	    : at(mmap(nullptr, 4096, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
	{
		REQUIRE(at != MAP_FAILED);
	}
	~Page() { munmap(at, 4096); }
	Page(const Page &) = delete;
	Page &operator=(const Page &) = delete;
	void *at;
};

ibv_mr *refused(ibv_pd *pd, void *at, size_t bytes, int access, int error)
{
	errno = 0;
	ibv_mr *mr = ibv_reg_mr(pd, at, bytes, access);
	CHECK(!mr);
	CHECK(errno == error);
	return mr;
}

} // namespace

TEST_CASE("every device of the host is listed once, with its own identity")
{
	int count;
	ibv_device **list = ibv_get_device_list(&count);
	REQUIRE(list);
	const char *wanted = getenv("SOFTHCA_DEVICES");
	CHECK(count == (wanted ? atoi(wanted) : 1));
	std::set<uint64_t> guids;
	std::set<uint16_t> lids;
	for (int i = 0; i < count; ++i) {
		ibv_context *context = ibv_open_device(list[i]);
		REQUIRE(context);
		ibv_port_attr port;
		REQUIRE(ibv_query_port(context, 1, &port) == 0);
		lids.insert(port.lid);
		guids.insert(ibv_get_device_guid(list[i]));
		union ibv_gid gid;
		REQUIRE(ibv_query_gid(context, 1, 0, &gid) == 0);
		CHECK(gid.global.interface_id == ibv_get_device_guid(list[i]));
		CHECK(ibv_close_device(context) == 0);
	}
	ibv_free_device_list(list);
	CHECK(guids.size() == static_cast<size_t>(count));
	CHECK(lids.size() == static_cast<size_t>(count));
	CHECK_FALSE(lids.count(0));
}

TEST_CASE("a port that does not exist is refused")
{
	Device device;
	ibv_port_attr port;
	CHECK(ibv_query_port(device.context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE);
	CHECK(port.link_layer == IBV_LINK_LAYER_INFINIBAND);
	CHECK(port.active_mtu == IBV_MTU_4096);
	CHECK(ibv_query_port(device.context, 0, &port) == EINVAL);
	CHECK(ibv_query_port(device.context, 2, &port) == EINVAL);
	uint16_t pkey;
	CHECK(ibv_query_pkey(device.context, 1, 0, &pkey) == 0);
	CHECK(pkey == 0xffff);
}

TEST_CASE("the device offers only what works")
{
	Device device;
	ibv_device_attr attributes;
	REQUIRE(ibv_query_device(device.context, &attributes) == 0);
	CHECK(attributes.vendor_id == 0x02c9);
	CHECK(attributes.phys_port_cnt == 1);
	CHECK(attributes.max_cqe > 0);
	CHECK(attributes.max_qp > 0);
	CHECK(attributes.max_srq > 0);
	CHECK(attributes.atomic_cap == IBV_ATOMIC_HCA);
	CHECK(attributes.max_mw == 0);
	CHECK(attributes.max_mcast_grp == 0);
}

TEST_CASE("memory is registered when this process may use it that way")
{
	Device device;
	Page page, readable(PROT_READ), none(PROT_NONE);
	constexpr int all =
	    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	ibv_mr *mr = ibv_reg_mr(device.pd, page.at, 4096, all);
	REQUIRE(mr);
	CHECK(mr->lkey == mr->rkey);
	CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
	ibv_mr *odd = ibv_reg_mr(device.pd, static_cast<char *>(page.at) + 100, 17, 0);
	REQUIRE(odd);
	CHECK(odd->lkey != mr->lkey);
	const uint32_t old_key = odd->lkey;
	CHECK(ibv_dereg_mr(odd) == 0);
	odd = ibv_reg_mr(device.pd, static_cast<char *>(page.at) + 100, 17, 0);
	REQUIRE(odd);
	CHECK(odd->lkey != old_key); // an old key is not used again
	CHECK(ibv_dereg_mr(odd) == 0);
	ibv_mr *nothing = ibv_reg_mr(device.pd, page.at, 0, 0);
	CHECK(nothing);
	if (nothing)
		CHECK(ibv_dereg_mr(nothing) == 0);
	constexpr int remote_read = IBV_ACCESS_REMOTE_READ; // an int, or the macro mixes two enumerations
	ibv_mr *constant = ibv_reg_mr(device.pd, readable.at, 4096, remote_read);
	CHECK(constant);
	if (constant)
		CHECK(ibv_dereg_mr(constant) == 0);

	refused(device.pd, page.at, 4096, IBV_ACCESS_REMOTE_WRITE, EINVAL);  // needs local write
	refused(device.pd, page.at, 4096, IBV_ACCESS_REMOTE_ATOMIC, EINVAL); // the same
	refused(device.pd, readable.at, 4096, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	refused(device.pd, none.at, 4096, 0, EFAULT);
	refused(device.pd, page.at, SIZE_MAX / 2, IBV_ACCESS_LOCAL_WRITE, EINVAL);
	refused(device.pd, page.at, UINT64_C(1) << 46, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	refused(device.pd, page.at, 4096, IBV_ACCESS_ON_DEMAND, EOPNOTSUPP);
	CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("completion queues come in all sizes, empty and quiet")
{
	Device device;
	ibv_comp_channel *channel = ibv_create_comp_channel(device.context);
	REQUIRE(channel);
	for (int entries : {1, 2, 3, 63, 64, 1000, 100000}) {
		ibv_cq *cq = ibv_create_cq(device.context, entries, device.context, channel, 0);
		REQUIRE(cq);
		CHECK(cq->cqe >= entries);
		ibv_wc wc;
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		pollfd quiet{channel->fd, POLLIN, 0};
		CHECK(poll(&quiet, 1, 0) == 0);
		CHECK(ibv_destroy_cq(cq) == 0);
	}
	CHECK_FALSE(ibv_create_cq(device.context, 0, nullptr, nullptr, 0));
	CHECK_FALSE(ibv_create_cq(device.context, 1 << 30, nullptr, nullptr, 0));
	CHECK_FALSE(ibv_create_cq(device.context, 64, nullptr, nullptr, 7)); // one vector
	ibv_cq_init_attr_ex attributes{};
	attributes.cqe = 64;
	attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
	ibv_cq_ex *extended = ibv_create_cq_ex(device.context, &attributes);
	REQUIRE(extended);
	ibv_poll_cq_attr poll_attributes{};
	CHECK(ibv_start_poll(extended, &poll_attributes) == ENOENT);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

TEST_CASE("a completion channel that was closed is refused")
{
	Device device;
	ibv_comp_channel *channel = ibv_create_comp_channel(device.context);
	REQUIRE(channel);
	ibv_comp_channel stale = *channel;
	REQUIRE(ibv_destroy_comp_channel(channel) == 0);
	CHECK_FALSE(ibv_create_cq(device.context, 16, nullptr, &stale, 0));
	CHECK(errno == EINVAL);
}

TEST_CASE("there are no asynchronous events at first, and a non-blocking read says so")
{
	Device device;
	REQUIRE(fcntl(device.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	ibv_async_event event;
	CHECK(ibv_get_async_event(device.context, &event) == -1);
	CHECK(errno == EAGAIN);
}

TEST_CASE("contexts are independent, and leave nothing behind")
{
	const auto descriptors = [] {
		int n = 0;
		for (int fd = 0; fd < 1024; ++fd)
			n += fcntl(fd, F_GETFD) >= 0;
		return n;
	};
	{
		Device first; // what libraries open once and keep
	}
	const int before = descriptors();
	for (int i = 0; i < 50; ++i) {
		Device one, other;
		ibv_cq *cq = ibv_create_cq(one.context, 16, nullptr, nullptr, 0);
		REQUIRE(cq);
		CHECK(ibv_destroy_cq(cq) == 0);
	}
	CHECK(descriptors() == before);
}

TEST_CASE("other files are not touched")
{
	const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	REQUIRE(fd >= 0);
	CHECK(write(fd, "x", 1) == 1);
	CHECK(close(fd) == 0);
	CHECK(open("/dev/infiniband/uverbs99", O_RDWR) == -1);
	CHECK(errno == ENOENT);
	CHECK(close(fd) == -1);
	CHECK(errno == EBADF);
}

TEST_CASE("a completion queue can be resized, and what has not been polled is still there")
{
	Device device;
	for (const char *entry_bytes : {"64", "128"}) {
		setenv("MLX5_CQE_SIZE", entry_bytes, 1);
		Cq cq(device.context, 31);
		unsetenv("MLX5_CQE_SIZE");
		Settings settings;
		settings.send_cq = cq;
		Pair pair(device, settings, {});
		Memory memory(device.pd, 4096);
		uint64_t posted = 0, polled = 0;
		const auto write_some = [&](unsigned n) {
			while (n--)
				write(pair.a.qp, memory.piece(0, 8), memory.address(100), memory.key(), posted++);
		};
		const auto poll_some = [&](unsigned n) {
			for (const ibv_wc &wc : wait(cq, n)) {
				CHECK(wc.status == IBV_WC_SUCCESS);
				CHECK(wc.wr_id == polled++);
			}
		};
		// Polls of the other queue move both sides forward, so completions are there that nobody has polled.
		const auto settle = [&] {
			ibv_wc wc;
			for (int i = 0; i < 1000; ++i)
				REQUIRE(ibv_poll_cq(pair.b.send_cq, 1, &wc) == 0);
			usleep(5000);
		};
		for (int entries : {100, 20, 300, 7, 31}) {
			write_some(5);
			settle();
			REQUIRE(ibv_resize_cq(cq, entries) == 0);
			CHECK(cq.cq->cqe >= entries);
			poll_some(5);
			ibv_wc wc;
			CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
			for (int i = 0; i < 100; ++i) {
				write_some(3);
				poll_some(3);
			}
		}
		write_some(20);
		settle();
		CHECK(ibv_resize_cq(cq, 8) != 0); // too few CQEs for the completions
		poll_some(20);
		CHECK(ibv_resize_cq(cq, 1 << 30) != 0);
		exchange(device, pair.a, pair.b);
	}
}

TEST_CASE("resizing a completion queue raises no event, and an event that is asked for comes afterwards")
{
	Device device;
	ibv_comp_channel *channel = ibv_create_comp_channel(device.context);
	REQUIRE(channel);
	{
		Cq cq(device.context, 31, channel);
		Settings settings;
		settings.send_cq = cq;
		Pair pair(device, settings);
		Memory memory(device.pd, 4096);
		const auto quiet = [&](int milliseconds) {
			pollfd fd{channel->fd, POLLIN, 0};
			return poll(&fd, 1, milliseconds) == 0;
		};
		write(pair.a.qp, memory.piece(0, 8), memory.address(100), memory.key());
		expect(cq);
		REQUIRE(ibv_req_notify_cq(cq, 0) == 0);
		REQUIRE(ibv_resize_cq(cq, 100) == 0);
		CHECK(quiet(50));
		write(pair.a.qp, memory.piece(0, 8), memory.address(100), memory.key());
		CHECK_FALSE(quiet(5000));
		ibv_cq *which;
		void *context;
		REQUIRE(ibv_get_cq_event(channel, &which, &context) == 0);
		CHECK(which == cq.cq);
		ibv_ack_cq_events(cq, 1);
		expect(cq);
	}
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

TEST_CASE("a region that is registered again has its new rights, domain and memory")
{
	Device device;
	Pair pair(device);
	Memory from(device.pd, 4096);
	Page page, other;
	auto *at = static_cast<uint8_t *>(page.at);
	ibv_mr *mr = ibv_reg_mr(device.pd, page.at, 4096, all_access);
	REQUIRE(mr);
	const auto write_to = [&](uint64_t address, ibv_wc_status status) {
		from.word(0)++;
		write(pair.a.qp, from.piece(0, 8), address, mr->rkey);
		CHECK(wait(pair.a.send_cq, 1)[0].status == status);
		if (status != IBV_WC_SUCCESS)
			reconnect(pair.a, pair.b);
	};
	const uint64_t address = reinterpret_cast<uintptr_t>(page.at), elsewhere = reinterpret_cast<uintptr_t>(other.at);
	const uint32_t key = mr->rkey;
	write_to(address, IBV_WC_SUCCESS);
	CHECK(at[0] == 1);

	REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, local_write) == 0);
	CHECK(mr->rkey == key);
	write_to(address, IBV_WC_REM_ACCESS_ERR);
	CHECK(at[0] == 1);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, remote_write) != 0); // needs local write
	REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, all_access) == 0);
	write_to(address, IBV_WC_SUCCESS);

	ibv_pd *domain = ibv_alloc_pd(device.context);
	REQUIRE(domain);
	REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, domain, nullptr, 0, 0) == 0);
	CHECK(ibv_dealloc_pd(domain) == EBUSY);
	write_to(address, IBV_WC_REM_ACCESS_ERR);
	REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, device.pd, nullptr, 0, 0) == 0);
	CHECK(ibv_dealloc_pd(domain) == 0);

	REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.at, 2048, 0) == 0);
	write_to(address, IBV_WC_REM_ACCESS_ERR);
	write_to(elsewhere, IBV_WC_SUCCESS);
	write_to(elsewhere + 2040, IBV_WC_SUCCESS);
	write_to(elsewhere + 2041, IBV_WC_REM_ACCESS_ERR);
	const uint32_t small = mr->rkey;
	REQUIRE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.at, 4096, 0) == 0);
	CHECK(mr->rkey != small); // it takes more room
	write_to(elsewhere + 4088, IBV_WC_SUCCESS);

	Page none(PROT_NONE);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, none.at, 4096, 0) != 0);
	CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("completions have a time stamp, by the device's clock and by the time of day")
{
	Device device;
	ibv_device_attr_ex attributes{};
	REQUIRE(ibv_query_device_ex(device.context, nullptr, &attributes) == 0);
	CHECK(attributes.completion_timestamp_mask != 0);
	REQUIRE(attributes.hca_core_clock == 1'000'000); // kHz: nanoseconds
	const auto now = [](clockid_t clock) {
		timespec t;
		clock_gettime(clock, &t);
		return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
	};
	for (const auto &[flag, clock] :
	     {std::pair<uint64_t, clockid_t>{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, CLOCK_MONOTONIC},
	      {IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, CLOCK_REALTIME}}) {
		ibv_cq_init_attr_ex wanted{};
		wanted.cqe = 16;
		wanted.wc_flags = flag;
		ibv_cq_ex *cq = ibv_create_cq_ex(device.context, &wanted);
		REQUIRE(cq);
		{
			Settings settings;
			settings.send_cq = ibv_cq_ex_to_cq(cq);
			Pair pair(device, settings);
			Memory memory(device.pd, 4096);
			// Both clocks are read one after the other when a device is opened.
			constexpr uint64_t slack = 10'000'000;
			for (int i = 0; i < 10; ++i) {
				const uint64_t before = now(clock);
				write(pair.a.qp, memory.piece(0, 8), memory.address(100), memory.key());
				ibv_poll_cq_attr poll_attributes{};
				int result;
				do
					result = ibv_start_poll(cq, &poll_attributes);
				while (result == ENOENT);
				REQUIRE(result == 0);
				CHECK(cq->status == IBV_WC_SUCCESS);
				const uint64_t stamp =
				    clock == CLOCK_MONOTONIC ? ibv_wc_read_completion_ts(cq) : ibv_wc_read_completion_wallclock_ns(cq);
				ibv_end_poll(cq);
				CHECK(stamp + slack >= before);
				CHECK(stamp <= now(clock) + slack);
			}
		}
		CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	}
}

TEST_CASE("a queue pair says how many receives its ring takes, and no more can be posted")
{
	Device device;
	Settings settings;
	settings.receive_wr = 50;
	Pair pair(device, settings);
	Memory memory(device.pd, 4096);
	ibv_qp_attr attributes{};
	ibv_qp_init_attr initial{};
	REQUIRE(ibv_query_qp(pair.a.qp, &attributes, IBV_QP_CAP, &initial) == 0);
	CHECK(attributes.cap.max_recv_wr >= 50);
	CHECK(attributes.cap.max_recv_sge >= settings.pieces);
	ibv_sge piece = memory.whole();
	ibv_recv_wr request{}, *bad;
	request.sg_list = &piece;
	request.num_sge = 1;
	for (uint32_t i = 0; i < attributes.cap.max_recv_wr; ++i)
		REQUIRE(ibv_post_recv(pair.a.qp, &request, &bad) == 0);
	CHECK(ibv_post_recv(pair.a.qp, &request, &bad) == ENOMEM);
}

TEST_CASE("a shared receive queue may have the smallest size")
{
	Device device;
	ibv_srq_init_attr attributes{};
	ibv_srq *srq = ibv_create_srq(device.pd, &attributes);
	REQUIRE(srq);
	CHECK(ibv_destroy_srq(srq) == 0);
}
