// What messages cost the device, as softhca counts it: WQEs, doorbells, reads over PCIe, completions.
#include <filesystem>
#include <sched.h>
#include <string>
#include <thread>

#include "tests/net/job.hpp"

#include "transports/verbs/net.hpp"

using namespace net;

namespace {

constexpr uint64_t unit = 64; // a WQEBB, in bytes

// Sends `k` messages of 8 bytes together. Their receives are posted before.
void send_together(Job &job, unsigned k)
{
	std::vector<uint64_t> out(k), in(k);
	std::vector<pt2p_request_t *> receives(k), sends(k);
	for (unsigned i = 0; i < k; ++i)
		REQUIRE(pt2p_irecv(job.ctx[1], &in[i], 8, 0, 1, PT2P_TAG_EXACT, &receives[i]) == PT2P_OK);
	for (unsigned i = 0; i < k; ++i) {
		out[i] = i;
		REQUIRE(pt2p_isend(job.ctx[0], &out[i], 8, 1, 1, &sends[i]) == PT2P_OK);
	}
	REQUIRE(pt2p_waitall(job.ctx[0], k, sends.data(), nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[1], k, receives.data(), nullptr) == PT2P_OK);
	CHECK(in == out);
}

// While it lives, all threads of this process run on one processor.
class OneProcessor {
public:
	OneProcessor()
	{
		REQUIRE(sched_getaffinity(0, sizeof before_, &before_) == 0);
		cpu_set_t one;
		CPU_ZERO(&one);
		CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
		bind(one);
	}
	~OneProcessor() { bind(before_); }
	OneProcessor(const OneProcessor &) = delete;
	OneProcessor &operator=(const OneProcessor &) = delete;

private:
	static void bind(const cpu_set_t &set)
	{
		for (const auto &task : std::filesystem::directory_iterator("/proc/self/task"))
			sched_setaffinity(std::stoi(task.path().filename()), sizeof set, &set);
	}

	cpu_set_t before_;
};

} // namespace

TEST_CASE("an 8-byte message is one WQE of the smallest size and one BlueFlame write, without payload reads",
          "[.exact]")
{
	const bool dc = GENERATE(false, true);
	Job job(dc ? "dct" : "rc", 2, {"PT2P_TUNE=off", "PT2P_NET_DELIVERY=send"});
	job.warm_up();
	send_singly(job, 64, 8);
	constexpr unsigned n = 256;
	Change wqes("wqes"), bytes("wqe_bytes"), rings("doorbells"), blueflames("blueflames"), payload("payload_reads"),
	    fetched("wqe_reads"), completions("cqes"), payload_bytes("inline_bytes");
	send_singly(job, n, 8);
	CHECK(wqes() == n);
	// The control segment has 16 bytes, the payload with its header and length 28, and the address of DC 48.
	CHECK(bytes() == n * unit * (dc ? 2 : 1));
	CHECK(payload_bytes() == n * 24);
	CHECK(rings() == n);
	CHECK(blueflames() == n);
	CHECK(fetched() == 0);
	CHECK(payload() == 0);
	// The receiver has one for each message, the sender one for each signal period.
	CHECK(completions() <= n + n / 32 + 1);
	CHECK(completions() >= n + n / 32);
}

TEST_CASE("messages that are posted together share one doorbell", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	constexpr unsigned k = 16;
	Job job(transport, 2, {"PT2P_NET_DOORBELL_BATCH=16"});
	job.warm_up();
	job.progress();
	Change wqes("wqes"), rings("doorbells"), reads("payload_reads");
	send_together(job, k);
	CHECK(wqes() == k);
	CHECK(rings() == 1);
	CHECK(reads() == 0);
}

TEST_CASE("messages that had to wait for room are posted together", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_SEND_DEPTH=8", "PT2P_NET_DELIVERY=send"});
	job.warm_up();
	constexpr unsigned k = 256;
	Change wqes("wqes"), rings("doorbells");
	send_together(job, k);
	CHECK(wqes() == k);
	// Of each sixteen, the first eight are posted one by one. The others are posted in progress, when there is room
	// again.
	CHECK(rings() <= k * 3 / 4);
}

TEST_CASE("a message of 512 bytes goes through device memory, and is not read from the host's", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport);
	job.warm_up();
	constexpr unsigned n = 100;
	Change wqes("wqes"), reads("payload_reads"), from_device("dm_read_bytes"), stored("dm_store_bytes");
	send_singly(job, n, 512);
	CHECK(wqes() == n);
	CHECK(reads() == 0);
	CHECK(from_device() == n * (512 + 16));
	CHECK(stored() == n * (512 + 16));
	CHECK(job.counter(0, "net_device_memory_messages") == n);
}

TEST_CASE("without device memory the same message goes through a buffer", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_DEVICE_MEMORY=0"});
	job.warm_up();
	constexpr unsigned n = 100;
	Change reads("payload_read_bytes"), from_device("dm_read_bytes");
	send_singly(job, n, 512);
	CHECK(reads() == n * (512 + 16));
	CHECK(from_device() == 0);
}

TEST_CASE("up to which length device memory is used can be measured")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_DEVICE_MEMORY_MAX=0"});
	job.warm_up();
	// softhca is as quick with the one as with the other, so the measured length can be anything. Messages up to that
	// length go through device memory when they fit into its cells.
	const pt2p::Channel *channel = job.ctx[0]->router->find(1);
	const auto &net = *static_cast<const pt2p::verbs::NetPeer &>(channel->endpoint).net;
	const size_t header = sizeof(pt2p::verbs::MessageHeader), cell = net.memory.device_memory.max_bytes();
	INFO("cells of " << cell << " bytes");
	uint64_t fit = job.counter(0, "net_device_memory_messages");
	for (size_t length = 8; length <= 4096; length *= 2) {
		fit += length + header > net.shared.max_inline && length + header <= cell;
		job.exchange(0, 1, length);
		INFO(length << " bytes");
		CHECK(job.counter(0, "net_device_memory_messages") == fit);
	}
	CHECK(cell <= 4096 + 64);
}

TEST_CASE("messages that find device memory full go through buffers", "[.exact]")
{
	Job job("rc", 2, {"PT2P_NET_DEVICE_MEMORY=4096"}); // three cells
	job.warm_up();
	constexpr unsigned k = 64;
	Change from_device("dm_read_bytes"), from_host("payload_read_bytes");
	std::vector<unsigned char> out(512, 1);
	std::vector<std::vector<unsigned char>> in(k, std::vector<unsigned char>(512));
	std::vector<pt2p_request_t *> requests(k), sends(k);
	for (unsigned i = 0; i < k; ++i)
		REQUIRE(pt2p_irecv(job.ctx[1], in[i].data(), 512, 0, 1, PT2P_TAG_EXACT, &requests[i]) == PT2P_OK);
	for (unsigned i = 0; i < k; ++i)
		REQUIRE(pt2p_isend(job.ctx[0], out.data(), 512, 1, 1, &sends[i]) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[0], k, sends.data(), nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[1], k, requests.data(), nullptr) == PT2P_OK);
	for (const auto &message : in)
		CHECK(message == out);
	CHECK(from_device() + from_host() == k * (512 + 16));
	CHECK(from_device() >= 3 * (512 + 16));
	CHECK(job.counter(0, "net_device_memory_full") > 0);
}

TEST_CASE("a message in a write ring takes no receive and no completion", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_TUNE=off", "PT2P_NET_DELIVERY=write"});
	job.warm_up();
	send_singly(job, 200, 8);
	constexpr unsigned n = 320;
	Change wqes("wqes"), rings("doorbells"), payload("payload_reads"), receives("receives"), completions("cqes");
	send_singly(job, n, 8);
	CHECK(job.counter(0, "net_deposits") >= n);
	// The receiver returns its consumer index twice for a round of 64 slots.
	CHECK(wqes() == n + n / 32);
	CHECK(rings() == wqes());
	CHECK(payload() == 0);
	CHECK(receives() == 0);
	CHECK(completions() <= n / 32 + 2);
}

TEST_CASE("write rings carry what fits, messages that find them full are sent, and all arrive in order", "[.exact]")
{
	Job job("rc", 2, {"PT2P_NET_DELIVERY=write", "PT2P_NET_RING_SLOTS=4", "PT2P_NET_RINGS=1"});
	job.warm_up();
	send_singly(job, 20, 8);
	constexpr unsigned k = 60;
	std::vector<uint64_t> out(k), in(k);
	std::vector<pt2p_request_t *> sends(k);
	const uint64_t before = job.counter(0, "net_deposits");
	for (unsigned i = 0; i < k; ++i) {
		out[i] = i;
		REQUIRE(pt2p_isend(job.ctx[0], &out[i], 8, 1, 1, &sends[i]) == PT2P_OK);
	}
	for (unsigned i = 0; i < k; ++i)
		REQUIRE(pt2p_recv(job.ctx[1], &in[i], 8, 0, 1, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[0], k, sends.data(), nullptr) == PT2P_OK);
	CHECK(in == out);
	CHECK(job.counter(0, "net_deposits") > before);
	CHECK(job.counter(0, "net_deposits") < before + k);
}

TEST_CASE("the sender sets the delivery of its direction, which can change with each message, and order is kept")
{
	const char *transport = GENERATE("rc", "dct");
	const bool preset = GENERATE(false, true);
	Job job(transport, 2, {preset ? "PT2P_NET_DELIVERY=read" : "PT2P_NET_DELIVERY=auto"});
	const pt2p_delivery_t all[] = {PT2P_DELIVERY_SEND, PT2P_DELIVERY_WRITE, PT2P_DELIVERY_READ};
	uint64_t number[2] = {};
	for (const pt2p_delivery_t there : all)
		for (const pt2p_delivery_t back : all) {
			INFO("there " << there << " back " << back);
			REQUIRE(pt2p_set_delivery(job.ctx[0], 1, there) == PT2P_OK);
			REQUIRE(pt2p_set_delivery(job.ctx[1], 0, back) == PT2P_OK);
			uint64_t deposits[2], announced[2], eager[2];
			constexpr unsigned settle = 40, n = 100; // without a write ring, the first message asks for one
			for (unsigned i = 0; i < settle + n; ++i) {
				for (int r = 0; i == settle && r < 2; ++r) {
					deposits[r] = job.counter(r, "net_deposits");
					announced[r] = job.counter(r, "rendezvous_sent");
					eager[r] = job.counter(r, "eager_sent");
				}
				for (int from = 0; from < 2; ++from) {
					// Two at a time: the second must not overtake the first.
					uint64_t out[2] = {number[from], number[from] + 1}, in[2] = {};
					number[from] += 2;
					pt2p_request_t *requests[4];
					pt2p_context_t *here = job.ctx[net::Job::index(from)], *other = job.ctx[net::Job::index(1 - from)];
					for (unsigned k = 0; k < 2; ++k)
						REQUIRE(pt2p_irecv(other, &in[k], 8, from, 3, PT2P_TAG_EXACT, &requests[k]) == PT2P_OK);
					for (unsigned k = 0; k < 2; ++k)
						REQUIRE(pt2p_isend(here, &out[k], 8, 1 - from, 3, &requests[2 + k]) == PT2P_OK);
					REQUIRE(pt2p_waitall(other, 2, requests, nullptr) == PT2P_OK);
					REQUIRE(pt2p_waitall(here, 2, requests + 2, nullptr) == PT2P_OK);
					REQUIRE(in[0] == out[0]);
					REQUIRE(in[1] == out[1]);
				}
			}
			for (int r = 0; r < 2; ++r) {
				const pt2p_delivery_t delivery = r ? back : there;
				CHECK(job.counter(r, "rendezvous_sent") - announced[r] == (delivery == PT2P_DELIVERY_READ ? 2 * n : 0));
				CHECK(job.counter(r, "eager_sent") - eager[r] == (delivery == PT2P_DELIVERY_READ ? 0 : 2 * n));
				const uint64_t written = job.counter(r, "net_deposits") - deposits[r];
				if (delivery == PT2P_DELIVERY_SEND)
					CHECK(written == 0);
				if (delivery == PT2P_DELIVERY_WRITE)
					CHECK(written >= 2 * n);
			}
		}
}

TEST_CASE("a call sets the delivery of its input and of its reply")
{
	const char *transport = GENERATE("rc", "dct");
	const char *preset = GENERATE("PT2P_NET_DELIVERY=send", "PT2P_NET_DELIVERY=write");
	Job job(transport, 2, {preset});
	pt2p_service_t *service = nullptr;
	const auto echo = [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *) {
		pt2p_reply(ctx, call, length, input, length);
	};
	REQUIRE(pt2p_service_open(job.ctx[1], 1, echo, nullptr, nullptr, &service) == PT2P_OK);
	const pt2p_delivery_t ways[] = {PT2P_DELIVERY_SEND, PT2P_DELIVERY_WRITE};
	for (const pt2p_delivery_t there : ways)
		for (const pt2p_delivery_t back : ways) {
			INFO("there " << there << " back " << back);
			uint64_t writes[2];
			constexpr uint64_t settle = 60, n = 100; // without a write ring, some calls ask for one
			for (uint64_t i = 0; i < settle + n; ++i) {
				for (int r = 0; i == settle && r < 2; ++r)
					writes[r] = job.counter(r, "net_deposits");
				pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
				options.input_by = there;
				options.reply_by = back;
				uint64_t in = 0;
				pt2p_request_t *call = nullptr;
				REQUIRE(pt2p_icall(job.ctx[0], 1, 1, &i, sizeof i, &in, sizeof in, &options, &call) == PT2P_OK);
				int done = 0;
				while (!done) {
					REQUIRE(pt2p_progress(job.ctx[1]) == PT2P_OK);
					REQUIRE(pt2p_test(job.ctx[0], call, &done, nullptr) == PT2P_OK);
				}
				REQUIRE(in == i);
			}
			for (int r = 0; r < 2; ++r) {
				const uint64_t written = job.counter(r, "net_deposits") - writes[r];
				CHECK(written == ((r ? back : there) == PT2P_DELIVERY_WRITE ? n : 0));
			}
		}
	REQUIRE(pt2p_service_close(job.ctx[1], service) == PT2P_OK);
}

TEST_CASE("a message of 1 MiB moves from buffer to buffer without a copy", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	const bool write = GENERATE(false, true);
	Job job(transport, 2, {write ? "PT2P_RENDEZVOUS=write" : "PT2P_RENDEZVOUS=read"});
	job.warm_up();
	constexpr size_t length = 1 << 20;
	std::vector<unsigned char> out(length), in(length);
	for (size_t i = 0; i < length; ++i)
		out[i] = static_cast<unsigned char>(i * 7 + i / 251);
	Change wqes("wqes"), rings("doorbells"), read("payload_read_bytes"), written("payload_write_bytes");
	pt2p_request_t *receive, *send;
	REQUIRE(pt2p_irecv(job.ctx[1], in.data(), length, 0, 3, PT2P_TAG_EXACT, &receive) == PT2P_OK);
	REQUIRE(pt2p_isend(job.ctx[0], out.data(), length, 1, 3, &send) == PT2P_OK);
	REQUIRE(pt2p_wait(job.ctx[1], receive, nullptr) == PT2P_OK);
	REQUIRE(pt2p_wait(job.ctx[0], send, nullptr) == PT2P_OK);
	CHECK(in == out);
	// The device reads and writes each byte once. Besides, there are only control messages.
	CHECK(read() == length);
	CHECK(written() >= length);
	CHECK(written() < length + 512);
	CHECK(wqes() == (write ? 4 : 3));
	CHECK(rings() == wqes());
	CHECK(job.counter(write ? 0 : 1, write ? "net_written_bytes" : "net_read_bytes") == length);
	CHECK(job.counter(1, "pipelined_bytes") == 0);
}

TEST_CASE("segments are not packed")
{
	const char *transport = GENERATE("shm", "rc", "dct");
	Job job(transport, 2);
	job.warm_up();
	constexpr size_t length = 1 << 20;
	std::vector<unsigned char> out(length), in(length);
	for (size_t i = 0; i < length; ++i)
		out[i] = static_cast<unsigned char>(i * 7 + i / 251);
	// Backwards, so that no two are adjacent. The other side cuts at other places.
	std::vector<pt2p_iovec_t> from, to;
	for (size_t at = length; at; at -= length / 16)
		from.push_back({&out[at - length / 16], length / 16});
	to = {{&in[length - 300'001], 300'001}, {&in[0], length - 300'001}};
	pt2p_request_t *receive, *send;
	REQUIRE(pt2p_irecvv(job.ctx[1], to.data(), to.size(), 0, 3, PT2P_TAG_EXACT, &receive) == PT2P_OK);
	REQUIRE(pt2p_isendv(job.ctx[0], from.data(), from.size(), 1, 3, &send) == PT2P_OK);
	REQUIRE(pt2p_wait(job.ctx[1], receive, nullptr) == PT2P_OK);
	REQUIRE(pt2p_wait(job.ctx[0], send, nullptr) == PT2P_OK);
	std::vector<unsigned char> sent, got;
	for (const auto &[list, bytes] : {std::pair{&from, &sent}, std::pair{&to, &got}})
		for (const pt2p_iovec_t &s : *list)
			bytes->insert(bytes->end(), static_cast<unsigned char *>(s.base),
			              static_cast<unsigned char *>(s.base) + s.length);
	CHECK(sent == got);
	CHECK(job.counter(1, "pipelined_bytes") == 0);
}

namespace {

// Sends from `out`, which is all that rank 0 has to register for that.
void send_long(Job &job, std::vector<unsigned char> &out)
{
	std::vector<unsigned char> in(out.size());
	pt2p_request_t *send;
	REQUIRE(pt2p_isend(job.ctx[0], out.data(), out.size(), 1, 2, &send) == PT2P_OK);
	REQUIRE(pt2p_recv(job.ctx[1], in.data(), in.size(), 0, 2, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	REQUIRE(pt2p_wait(job.ctx[0], send, nullptr) == PT2P_OK);
	REQUIRE(in == out);
}

} // namespace

TEST_CASE("memory that the program has registered is not registered again", "[.exact]")
{
	Job job("rc");
	job.warm_up();
	std::vector<unsigned char> out(100000, 7);
	const uint64_t before = job.counter(0, "registrations");
	pt2p_memory_t *memory;
	REQUIRE(pt2p_memory_register(job.ctx[0], out.data(), out.size(), &memory) == PT2P_OK);
	CHECK(job.counter(0, "registrations") == before + 1);
	for (int i = 0; i < 3; ++i)
		send_long(job, out);
	CHECK(job.counter(0, "registrations") == before + 1);
	CHECK(job.counter(0, "registrations_reused") == 3);
	REQUIRE(pt2p_memory_release(job.ctx[0], memory) == PT2P_OK);
	send_long(job, out);
	CHECK(job.counter(0, "registrations") == before + 2);
}

TEST_CASE("a registration ends with its message, or with a promise of the program when the program says so", "[.exact]")
{
	const bool all = GENERATE(false, true);
	Job job("rc", 2, {all ? "PT2P_REGISTRATION_CACHE=all" : "PT2P_REGISTRATION_CACHE=explicit"});
	job.warm_up();
	std::vector<unsigned char> out(100000, 7);
	for (int i = 0; i < 5; ++i)
		send_long(job, out);
	CHECK(job.counter(0, "registrations") == (all ? 1 : 5));
	CHECK(job.counter(0, "registrations_reused") == (all ? 4 : 0));
	REQUIRE(pt2p_memory_gone(job.ctx[0], out.data() + 50000, 1) == PT2P_OK);
	send_long(job, out);
	CHECK(job.counter(0, "registrations") == (all ? 2 : 6));
}

TEST_CASE("allocated memory is not registered any more when it is released", "[.exact]")
{
	Job job("rc", 2, {"PT2P_REGISTRATION_CACHE=all"});
	job.warm_up();
	constexpr size_t length = 100000;
	void *first = nullptr;
	for (uint64_t i = 1; i <= 3; ++i) {
		pt2p_memory_t *memory;
		void *address;
		REQUIRE(pt2p_memory_allocate(job.ctx[0], length, &memory, &address) == PT2P_OK);
		// New memory often comes to the same place: then a registration of the old would name pages that are gone.
		CHECK((!first || address == first));
		first = address;
		CHECK(job.counter(0, "registrations") == i);
		REQUIRE(pt2p_memory_release(job.ctx[0], memory) == PT2P_OK);
	}
	CHECK(job.counter(0, "registrations_reused") == 0);
}

TEST_CASE("an idle peer takes nothing of the device, and few bytes")
{
	const char *transport = GENERATE("rc", "dct");
	constexpr int size = 16;
	Job job(transport, size);
	job.warm_up();
	for (auto &t : job.ctx[0]->router->transports()) {
		const auto memory = t->memory_per_peer();
		if (std::string(t->table().name) == "self")
			continue;
		CAPTURE(t->table().name);
		CHECK(memory.silent <= 32);
		CHECK(memory.talking <= (std::string(t->table().name) == "rc" ? 64 * 1024 : 512));
	}
	CHECK(job.counter(0, "peers_connected") == 1);
	CHECK(job.counter(5, "peers_connected") == 0);
}

TEST_CASE("a depth below PT2P_NET_SEND_DEPTH is reported")
{
	const char *transport = GENERATE("rc", "dct");
	const bool direct = GENERATE(true, false);
	Job job(transport, 2, {std::string("PT2P_NET_DIRECT=") + (direct ? "yes" : "no")});
	job.warm_up();
	std::vector<char> text(20000);
	REQUIRE(pt2p_summary(job.ctx[0], text.data(), text.size(), nullptr) == PT2P_OK);
	const std::string summary = text.data();
	CAPTURE(summary);
	// WQEs of a DC initiator are longer, and so is its queue.
	const bool less = direct && !std::strcmp(transport, "rc");
	CHECK((summary.find("85 of 128 work requests at a time (PT2P_NET_SEND_DEPTH)") != summary.npos) == less);
}

TEST_CASE("where ranks share processors, softhca gets a turn with each progress call that finds nothing")
{
	const char *transport = GENERATE("rc", "dct");
	const bool direct = GENERATE(true, false);
	const unsigned processors = std::thread::hardware_concurrency();
	if (processors > 32)
		return;                // too many ranks
	const OneProcessor pinned; // so that the thread of softhca does not hold the device meanwhile
	Job job(transport, static_cast<int>(processors) + 1, {std::string("PT2P_NET_DIRECT=") + (direct ? "yes" : "no")});
	job.warm_up();
	constexpr unsigned n = 300;
	unsigned slow = 0;
	for (unsigned i = 0; i < n; ++i) {
		unsigned in = n;
		int done = 0;
		pt2p_request_t *receive, *send;
		REQUIRE(pt2p_irecv(job.ctx[1], &in, sizeof in, 0, 1, PT2P_TAG_EXACT, &receive) == PT2P_OK);
		REQUIRE(pt2p_isend(job.ctx[0], &i, sizeof i, 1, 1, &send) == PT2P_OK);
		unsigned turns = 0;
		for (; !done; ++turns) {
			REQUIRE(pt2p_test(job.ctx[1], receive, &done, nullptr) == PT2P_OK);
			if (turns > 100)
				pt2p_progress(job.ctx[0]); // what did not go out at once waits for it
		}
		REQUIRE(in == i);
		REQUIRE(pt2p_wait(job.ctx[0], send, nullptr) == PT2P_OK);
		slow += turns > 4; // one after a message, one in which the device sends, one in which it receives
	}
	CHECK(slow <= n / 10);
}
