// SPDX-License-Identifier: BSD-3-Clause
// Who is no peer stays outside, and keeps nobody else out.
#include "tests/open/open.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>

using namespace open_test;

namespace {

// A file with a secret, which goes with the test.
struct SecretFile {
	explicit SecretFile(const std::string &text, mode_t mode = 0600)
	{
		char name[] = "/tmp/pt2p-open-test.XXXXXX";
		const int fd = mkstemp(name);
		REQUIRE(fd >= 0);
		REQUIRE(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
		REQUIRE(fchmod(fd, mode) == 0);
		close(fd);
		path = name;
	}
	~SecretFile() { unlink(path.c_str()); }
	std::vector<std::string> tunables() const { return {"PT2P_OPEN_SECRET=" + path, "PT2P_OPEN_SOCKETS=tcp"}; }
	std::string path;
};

int port_of(const Context &ctx) { return atoi(ctx.address.substr(ctx.address.rfind(':') + 1).c_str()); }

int connect_local(const Context &ctx)
{
	sockaddr_un name{};
	name.sun_family = AF_UNIX;
	const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "pt2p.%d", port_of(ctx));
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n));
	REQUIRE(connect(fd, reinterpret_cast<sockaddr *>(&name), length) == 0);
	return fd;
}

int connect_tcp(const Context &ctx)
{
	sockaddr_in at{};
	at.sin_family = AF_INET;
	at.sin_port = htons(static_cast<uint16_t>(port_of(ctx)));
	REQUIRE(inet_pton(AF_INET, ctx.address.substr(0, ctx.address.rfind(':')).c_str(), &at.sin_addr) == 1);
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, reinterpret_cast<sockaddr *>(&at), sizeof at) == 0)
		return fd;
	close(fd);
	return -1;
}

// What it says until it closes the connection; the test fails if it does not close it.
std::string rest_of(int fd)
{
	std::string all;
	for (;;) {
		pollfd p{fd, POLLIN, 0};
		REQUIRE(poll(&p, 1, 20000) == 1);
		char buffer[4096];
		const ssize_t n = read(fd, buffer, sizeof buffer);
		if (n <= 0)
			return all;
		all.append(buffer, static_cast<size_t>(n));
	}
}

uint64_t refusals(pt2p_context_t *ctx)
{
	std::this_thread::sleep_for(std::chrono::milliseconds(20)); // for the helper thread
	for (int i = 0; i < 200000; ++i)
		pt2p_progress(ctx);
	for (int c = 0; c < pt2p_counter_count(); ++c)
		if (std::string(pt2p_counter_name(c)) == "auth_refused") {
			uint64_t value = 0;
			pt2p_counter_read(ctx, c, &value);
			return value;
		}
	return 0;
}

} // namespace

TEST_CASE("over TCP, with the same secret")
{
	const SecretFile secret("a secret of more than sixteen bytes");
	Context a(secret.tunables()), b(secret.tunables());
	const int b_at_a = a.add(b), a_at_b = carry({a, b}, a, b, b_at_a, 8, 1);
	CHECK(carry({a, b}, b, a, a_at_b, 100000, 2) == b_at_a);
	CHECK(b.add(a) == a_at_b);
	pt2p_request_t *request = nullptr;
	int value;
	REQUIRE(pt2p_irecv(a, &value, sizeof value, b_at_a, 3, PT2P_TAG_EXACT, &request) == PT2P_OK);
	CHECK(b.end() == PT2P_OK);
	CHECK(wait(a, request).status == PT2P_ERR_PEER_FINALIZED);
}

TEST_CASE("over TCP, with another secret or none")
{
	const SecretFile secret("a secret of more than sixteen bytes"), other("a secret of more than sixteen bytez");
	Context a(secret.tunables()), b(other.tunables());
	int rank = -1;
	refused(b, pt2p_peer_add(b, a.address.c_str(), &rank), PT2P_ERR_REFUSED, "same secret");
	refused(a, pt2p_peer_add(a, b.address.c_str(), &rank), PT2P_ERR_REFUSED, "same secret");
	CHECK(refusals(a) + refusals(b) >= 2);
	// Who has no secret does not listen there.
	Context c;
	refused(a, pt2p_peer_add(a, c.address.c_str(), &rank), PT2P_ERR_UNREACHABLE, "without a secret");
	CHECK(connect_tcp(c) < 0);
	CHECK(rank == -1);
}

TEST_CASE("files that keep no secret")
{
	const SecretFile open("a secret of more than sixteen bytes", 0640), brief("fifteen bytes..");
	for (const auto &[file, word] :
	     {std::pair<const SecretFile *, const char *>{&open, "chmod 600"}, {&brief, "16 bytes"}}) {
		const std::string tunable = "PT2P_OPEN_SECRET=" + file->path;
		const char *list[] = {tunable.c_str(), nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = list;
		pt2p_context_t *ctx = nullptr;
		refused(nullptr, pt2p_init_open(&options, &ctx), PT2P_ERR_TUNABLE, word);
	}
}

// Whoever listens in between gets nothing of use.
TEST_CASE("over TCP, the secrets of a context are not in what it sends")
{
	const SecretFile secret("a secret of more than sixteen bytes");
	Context a(secret.tunables()), b(secret.tunables());
	// A man in the middle, which only passes on.
	const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	sockaddr_in at{};
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	socklen_t length = sizeof at;
	REQUIRE(bind(listener, reinterpret_cast<sockaddr *>(&at), sizeof at) == 0);
	REQUIRE(listen(listener, 1) == 0);
	REQUIRE(getsockname(listener, reinterpret_cast<sockaddr *>(&at), &length) == 0);
	std::string seen;
	std::thread middle([&] {
		const int left = accept(listener, nullptr, nullptr), right = connect_tcp(b);
		pollfd both[] = {{left, POLLIN, 0}, {right, POLLIN, 0}};
		for (bool open = true; open && poll(both, 2, 20000) > 0;)
			for (int i = 0; i < 2; ++i)
				if (both[i].revents) {
					char buffer[4096];
					const ssize_t n = read(both[i].fd, buffer, sizeof buffer);
					open = open && n > 0;
					if (n > 0 && write(both[1 - i].fd, buffer, static_cast<size_t>(n)) == n)
						seen.append(buffer, static_cast<size_t>(n));
				}
		close(left);
		close(right);
	});
	const int b_at_a = a.add("127.0.0.1:" + std::to_string(ntohs(at.sin_port)));
	CHECK(carry({a, b}, a, b, b_at_a, 8, 1) == 1);
	CHECK(a.end() == PT2P_OK);
	CHECK(b.end() == PT2P_OK);
	middle.join();
	close(listener);
	CHECK(seen.size() > 300);
	// The parts of an address have names, as do the secrets.
	for (const char *word : {"self", "secret", "rule"})
		CHECK(seen.find(word) == seen.npos);
}

TEST_CASE("garbage and silence keep nobody out")
{
	const SecretFile secret("a secret of more than sixteen bytes");
	Context a({"PT2P_OPEN_SECRET=" + secret.path});
	std::vector<int> silent;
	for (int i = 0; i < 300; ++i)
		silent.push_back(i % 2 ? connect_tcp(a) : connect_local(a));
	std::string header("\x48\0\0\0\1\0\0\0", 8);
	header.append(72, 'y');
	const std::string garbage[] = {std::string(100000, 'x'), std::string(12, '\0'), "GET / HTTP/1.0\r\n\r\n", header};
	for (const std::string &bytes : garbage)
		for (const bool tcp : {false, true}) {
			const int fd = tcp ? connect_tcp(a) : connect_local(a);
			(void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
			if (bytes.size() == 12) // a head of an empty frame that is none
				CHECK(rest_of(fd).size() < 16);
			else
				CHECK(rest_of(fd).size() < 100);
			close(fd);
		}
	Context b({"PT2P_OPEN_SECRET=" + secret.path});
	CHECK(carry({a, b}, b, a, b.add(a), 8, 1) == 1);
	// In the end they are dropped.
	for (const int fd : silent) {
		CHECK(rest_of(fd).empty());
		close(fd);
	}
	CHECK(carry({a, b}, a, b, 1, 8, 1) == 1);
}

// It knows what is said (wire.hpp), but not the secret.
TEST_CASE("over TCP, who knows no secret learns none")
{
	const SecretFile secret("a secret of more than sixteen bytes");
	Context a(secret.tunables());
	const uint64_t before = refusals(a);
	const int fd = connect_tcp(a);
	struct {
		uint32_t bytes = 56, kind = 1;
		uint64_t magic = UINT64_C(0x70743270'6f70656e);
		uint32_t version = 1, proves = 1;
		uint64_t id[2] = {1, 2}, nonce[2] = {3, 4}, proof = 5;
	} hello;
	static_assert(sizeof hello == 64);
	REQUIRE(send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
	char answer[64];
	REQUIRE(recv(fd, answer, sizeof answer, MSG_WAITALL) == sizeof answer);
	const uint32_t head[2] = {300, 2};
	std::string introduction(reinterpret_cast<const char *>(head), sizeof head);
	introduction.append(300, 'i');
	REQUIRE(send(fd, introduction.data(), introduction.size(), MSG_NOSIGNAL) == 308);
	CHECK(rest_of(fd).size() == 12); // the refusal
	close(fd);
	CHECK(refusals(a) == before + 1);
	pt2p_peer_info_t info;
	REQUIRE(pt2p_peer_query(a, 1, &info) == PT2P_OK);
	CHECK(info.state == PT2P_PEER_UNKNOWN);
	int value = 0;
	refused(a, pt2p_send(a, &value, sizeof value, 1, 1), PT2P_ERR_RANK, "number");
}

// A forked process, which gets the address of a context later: it is forked while there is no other thread, because the
// allocator of AddressSanitizer does not survive a fork of several.
struct Forked {
	Forked()
	{
		REQUIRE(pipe(pipe_fds) == 0);
		pid = fork();
	}
	~Forked()
	{
		close(pipe_fds[0]);
		close(pipe_fds[1]);
	}
	bool is_child() const { return pid == 0; }
	// In the child, and in the parent.
	std::string await_address() const
	{
		char address[256] = {};
		return read(pipe_fds[0], address, sizeof address - 1) > 0 ? address : "";
	}
	void tell(const std::string &address) const
	{
		REQUIRE(write(pipe_fds[1], address.data(), address.size()) == static_cast<ssize_t>(address.size()));
	}
	pid_t pid;
	int pipe_fds[2];
};

TEST_CASE("another user's process is no peer")
{
	if (geteuid() != 0)
		return; // only root becomes somebody else
	const Forked child;
	if (child.is_child()) {
		const std::string address = child.await_address();
		if (setgid(12345) || setuid(12345))
			_exit(3);
		pt2p_context_t *ctx = nullptr;
		int rank = -1;
		if (pt2p_init_open(nullptr, &ctx) != PT2P_OK)
			_exit(4);
		const pt2p_status_t status = pt2p_peer_add(ctx, address.c_str(), &rank);
		const bool told = strstr(pt2p_last_error(ctx), "another user");
		pt2p_finalize(ctx);
		_exit(status != PT2P_ERR_REFUSED ? 5 : told ? 0 : 6);
	}
	Context a;
	child.tell(a.address);
	int status = 0;
	REQUIRE(waitpid(child.pid, &status, 0) == child.pid);
	CHECK(WIFEXITED(status));
	CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a forked child keeps no connection open")
{
	int pipe_fds[2];
	REQUIRE(pipe(pipe_fds) == 0);
	// The middle one adds a peer, forks a child that lives on, and is killed.
	const Forked middle;
	if (middle.is_child()) {
		const std::string address = middle.await_address();
		pt2p_context_t *ctx = nullptr;
		int rank = -1;
		if (pt2p_init_open(nullptr, &ctx) != PT2P_OK || pt2p_peer_add(ctx, address.c_str(), &rank) != PT2P_OK ||
		    pt2p_send(ctx, &rank, sizeof rank, rank, 1) != PT2P_OK ||
		    pt2p_recv(ctx, &rank, sizeof rank, rank, 1, PT2P_TAG_EXACT, nullptr) != PT2P_OK)
			_exit(3);
		const pid_t child = fork();
		if (child == 0) {
			char c;
			close(pipe_fds[1]);
			(void)!read(pipe_fds[0], &c, 1); // lives as long as the test
			_exit(pt2p_progress(ctx) == PT2P_ERR_FORKED ? 0 : 1);
		}
		raise(SIGKILL);
	}
	Context a;
	middle.tell(a.address);
	int value = 0;
	pt2p_result_t result{};
	CHECK(pt2p_recv(a, &value, sizeof value, PT2P_ANY_SOURCE, 1, PT2P_TAG_EXACT, &result) == PT2P_OK);
	CHECK(pt2p_send(a, &value, sizeof value, result.source, 1) == PT2P_OK);
	CHECK(pt2p_recv(a, &value, sizeof value, result.source, 2, PT2P_TAG_EXACT, nullptr) == PT2P_ERR_PEER_LOST);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	int status = 0;
	CHECK(waitpid(middle.pid, &status, 0) == middle.pid);
}
