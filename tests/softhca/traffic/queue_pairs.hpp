// Queue pairs and completion queues as C++ objects. Destruction must not fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <initializer_list>
#include <vector>

#include "tests/softhca/device/device.hpp"

// An int: the enumerators are of a type that the access flags of functions are not.
constexpr int local_write = IBV_ACCESS_LOCAL_WRITE, remote_write = IBV_ACCESS_REMOTE_WRITE,
              remote_read = IBV_ACCESS_REMOTE_READ, remote_atomic = IBV_ACCESS_REMOTE_ATOMIC;
constexpr int all_access = local_write | remote_write | remote_read | remote_atomic;

class Cq {
public:
	explicit Cq(ibv_context *context, int entries = 512, ibv_comp_channel *channel = nullptr);
	~Cq();
	Cq(const Cq &) = delete;
	Cq &operator=(const Cq &) = delete;
	operator ibv_cq *() const { return cq; } // as libibverbs wants it
	ibv_cq *cq;
};

class Srq {
public:
	explicit Srq(Device &device, uint32_t entries = 64, uint32_t pieces = 2);
	~Srq();
	Srq(const Srq &) = delete;
	Srq &operator=(const Srq &) = delete;
	void post(const ibv_sge &piece, uint64_t id = 0);
	ibv_srq *srq;
};

struct Settings {
	ibv_mtu mtu = IBV_MTU_1024;
	uint8_t timeout = 14, retries = 7, rnr_retries = 7; // 67 ms
	uint8_t rnr_timer = 1;                              // 10 us
	uint8_t rd_atomic = 16, dest_rd_atomic = 16;
	uint32_t psn = 0;
	int access = all_access;
	uint32_t send_wr = 64, receive_wr = 64, pieces = 4, inline_bytes = 64;
	bool signal_all = false;
	ibv_srq *srq = nullptr;
	ibv_cq *send_cq = nullptr, *receive_cq = nullptr; // null: its own
	uint64_t operations = 0;                          // of the ibv_wr_* interface; 0: without
	uint32_t qkey = 0x11111111;
	uint32_t create_flags = 0; // MLX5DV_QP_CREATE_*
};

uint16_t lid_of(ibv_context *context);

// A queue pair and its completion queues, in the state RESET at first.
class Endpoint {
public:
	Endpoint(Device &device, const Settings &settings, ibv_qp_type type = IBV_QPT_RC);
	~Endpoint();
	Endpoint(const Endpoint &) = delete;
	Endpoint &operator=(const Endpoint &) = delete;

	void to_init();
	void to_rtr(uint32_t destination, uint16_t lid, uint32_t psn);
	void to_rts();
	void to(ibv_qp_state state);
	ibv_qp_state state() const;
	uint32_t number() const { return qp->qp_num; }
	void destroy(); // before the destructor

	Device &device;
	const Settings settings;
	const ibv_qp_type type;
	ibv_cq *send_cq, *receive_cq;
	ibv_qp *qp;

private:
	std::vector<ibv_cq *> own_;
};

// Brings both to RTS, each with the other as its destination.
void connect(Endpoint &one, Endpoint &other);
// From any state.
void reconnect(Endpoint &one, Endpoint &other);

struct Pair {
	explicit Pair(Device &device, const Settings &settings = {}) : Pair(device, settings, settings) {}
	Pair(Device &device, const Settings &first, const Settings &second) : a(device, first), b(device, second)
	{
		connect(a, b);
	}
	Endpoint a, b;
};

// A datagram queue pair in RTS.
class Datagrams : public Endpoint {
public:
	explicit Datagrams(Device &device, const Settings &settings = {});
};

class AddressHandle {
public:
	AddressHandle(Device &device, uint16_t lid, const union ibv_gid *gid = nullptr);
	~AddressHandle();
	AddressHandle(const AddressHandle &) = delete;
	AddressHandle &operator=(const AddressHandle &) = delete;
	ibv_ah *ah;
};

constexpr uint64_t dc_key = 0x0123456789abcdef;

class Dct {
public:
	Dct(Device &device, ibv_srq *srq, ibv_cq *cq, const Settings &settings = {}, uint64_t key = dc_key);
	~Dct();
	Dct(const Dct &) = delete;
	Dct &operator=(const Dct &) = delete;
	uint32_t number() const { return qp->qp_num; }
	ibv_qp *qp;
};

class Dci {
public:
	explicit Dci(Device &device, const Settings &settings = {});
	~Dci();
	Dci(const Dci &) = delete;
	Dci &operator=(const Dci &) = delete;
	void to_rts();
	void to(ibv_qp_state state);
	// Begins a list of work requests, each of which begins with one of ibv_wr_*, then address() and data().
	void begin();
	void address(uint32_t dct, uint64_t key = dc_key, ibv_ah *other = nullptr);
	void data(std::initializer_list<ibv_sge> pieces);
	void complete(); // of the list
	void set(uint64_t id, unsigned flags = IBV_SEND_SIGNALED);
	// One work request of one piece.
	void send(uint32_t dct, const ibv_sge &piece, uint64_t id = 0, uint64_t key = dc_key);
	void write(uint32_t dct, const ibv_sge &piece, uint64_t to, uint32_t rkey, uint64_t id = 0);
	void read(uint32_t dct, const ibv_sge &piece, uint64_t from, uint32_t rkey, uint64_t id = 0);

	const Settings settings;
	Cq cq;
	AddressHandle peer; // this device
	ibv_qp *qp;
	ibv_qp_ex *ex;
	mlx5dv_qp_ex *dv;

private:
	template <class Operation>
	void one(const Operation &operation, uint32_t dct, const ibv_sge &piece, uint64_t id, uint64_t key);
};
