// SPDX-License-Identifier: BSD-3-Clause
#include "base/report/report.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iterator>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace pt2p {

namespace {

const StatusInfo statuses[] = {
#define PT2P_STATUS(name, code, text, cause, remedy) {"PT2P_" #name, PT2P_##name, text, cause, remedy},
#include "base/report/status.def"
#undef PT2P_STATUS
};

const StatusInfo unknown_status = {"unknown", PT2P_ERR_INTERNAL, "unknown status",
                                   "The number is not a status code of this version of libpt2p.",
                                   "Pass only what a function of libpt2p has returned."};

const CounterInfo counters[] = {
#define PT2P_COUNTER(name, help) {#name, help},
#include "base/report/counters.def"
#undef PT2P_COUNTER
};

constexpr size_t counter_count = static_cast<size_t>(Counter::count);
static_assert(std::size(counters) == counter_count);

const char *const level_names[] = {"error", "warning", "info", "debug"};

// The wall clock. Only the log reads it.
void write_time(char *text, size_t size)
{
	timespec now{};
	clock_gettime(CLOCK_REALTIME, &now);
	tm local{};
	localtime_r(&now.tv_sec, &local);
	snprintf(text, size, "%02d:%02d:%02d.%03d", local.tm_hour, local.tm_min, local.tm_sec,
	         static_cast<int>(now.tv_nsec / 1000000));
}

class KeepErrno {
public:
	KeepErrno() : kept_(errno) {}
	~KeepErrno() { errno = kept_; }
	KeepErrno(const KeepErrno &) = delete;
	KeepErrno &operator=(const KeepErrno &) = delete;

private:
	int kept_;
};

} // namespace

std::string format(const char *pattern, ...)
{
	char small[512];
	va_list arguments;
	va_start(arguments, pattern);
	int n = vsnprintf(small, sizeof small, pattern, arguments);
	va_end(arguments);
	if (n < 0)
		return pattern;
	if (static_cast<size_t>(n) < sizeof small)
		return std::string(small, static_cast<size_t>(n));
	std::string large(static_cast<size_t>(n), '\0');
	va_start(arguments, pattern);
	vsnprintf(large.data(), large.size() + 1, pattern, arguments);
	va_end(arguments);
	return large;
}

std::string counted(uint64_t n, const char *noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

std::string errno_text(int error)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 32)
	const char *name = strerrorname_np(error);
	const char *text = strerrordesc_np(error);
	if (name != nullptr && text != nullptr)
		return std::string(text) + " (" + name + ")";
#endif
	return "error number " + std::to_string(error);
}

void copy_text(char *to, size_t capacity, std::string_view text)
{
	if (capacity)
		to[text.copy(to, capacity - 1)] = 0;
}

const StatusInfo &status_info(pt2p_status_t status)
{
	for (const StatusInfo &info : statuses)
		if (static_cast<int>(info.code) == static_cast<int>(status))
			return info;
	return unknown_status;
}

bool is_status(uint64_t number)
{
	return std::any_of(std::begin(statuses), std::end(statuses),
	                   [=](const StatusInfo &info) { return static_cast<uint64_t>(info.code) == number; });
}

const CounterInfo &counter_info(Counter counter) { return counters[static_cast<size_t>(counter)]; }

Reporter::~Reporter() { forget_last_error(this); }

void Reporter::identify(LogLevel level, int rank, std::string host)
{
	level_ = level;
	rank_ = rank;
	host_ = std::move(host);
}

namespace {

// After the launcher has died nobody reads the pipe. That must not end this process as well.
class WithoutSigpipe {
public:
	WithoutSigpipe()
	{
		sigemptyset(&pipe_);
		sigaddset(&pipe_, SIGPIPE);
		sigset_t pending;
		sigpending(&pending);
		was_pending_ = sigismember(&pending, SIGPIPE);
		pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
	}
	~WithoutSigpipe()
	{
		const timespec none{};
		if (!was_pending_)
			sigtimedwait(&pipe_, nullptr, &none);
		pthread_sigmask(SIG_SETMASK, &before_, nullptr);
	}
	WithoutSigpipe(const WithoutSigpipe &) = delete;
	WithoutSigpipe &operator=(const WithoutSigpipe &) = delete;

private:
	sigset_t pipe_, before_;
	bool was_pending_;
};

} // namespace

void write_to_stderr(std::string_view text)
{
	const WithoutSigpipe no_signal;
	int patience = 10;
	while (!text.empty()) {
		const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
		if (n >= 0) {
			text.remove_prefix(static_cast<size_t>(n));
		} else if (errno == EAGAIN && patience-- > 0) {
			pollfd full{STDERR_FILENO, POLLOUT, 0};
			poll(&full, 1, 10);
		} else if (errno != EINTR) {
			return;
		}
	}
}

void Reporter::log(LogLevel level, const char *pattern, ...)
{
	if (!shows(level))
		return;
	KeepErrno keep;

	char when[32];
	write_time(when, sizeof when);
	char host[256] = "";
	if (host_.empty() && gethostname(host, sizeof host - 1) != 0)
		host[0] = '\0';
	char rank[16] = "-";
	if (rank_ >= 0)
		snprintf(rank, sizeof rank, "%d", rank_);
	char head[384];
	snprintf(head, sizeof head, "%s %.255s %s %s: ", when, host_.empty() ? host : host_.c_str(), rank,
	         level_names[static_cast<size_t>(level)]);

	char small[2048];
	va_list arguments;
	va_start(arguments, pattern);
	int n = vsnprintf(small, sizeof small, pattern, arguments);
	va_end(arguments);
	if (n < 0)
		return;
	try {
		std::string large;
		std::string_view rest(small, std::min(static_cast<size_t>(n), sizeof small - 1));
		if (static_cast<size_t>(n) >= sizeof small) {
			large.resize(static_cast<size_t>(n));
			va_start(arguments, pattern);
			vsnprintf(large.data(), large.size() + 1, pattern, arguments);
			va_end(arguments);
			rest = large;
		}
		while (rest.ends_with('\n'))
			rest.remove_suffix(1);
		// Every line of a longer text gets the same head, so that a log can be sorted and searched by rank.
		std::string out;
		for (;;) {
			auto end = rest.find('\n');
			out.append(head).append(rest.substr(0, end)).append(1, '\n');
			if (end == rest.npos)
				break;
			rest.remove_prefix(end + 1);
		}
		write_to_stderr(out);
	} catch (...) {
		// Out of memory: show the beginning.
		char line[sizeof head + sizeof small];
		int length = snprintf(line, sizeof line, "%s%s\n", head, small);
		write_to_stderr({line, static_cast<size_t>(length)});
	}
}

pt2p_status_t Reporter::fail(pt2p_status_t status, const char *pattern, ...)
{
	if (muted_)
		return status;
	KeepErrno keep;
	char text[1024];
	va_list arguments;
	va_start(arguments, pattern);
	int n = vsnprintf(text, sizeof text, pattern, arguments);
	va_end(arguments);
	if (n < 0)
		set_last_error(this, status, pattern);
	else
		set_last_error(this, status, std::string_view(text, std::min(static_cast<size_t>(n), sizeof text - 1)));
	return status;
}

} // namespace pt2p

#define PT2P_TEXT_(x) #x
#define PT2P_TEXT(x) PT2P_TEXT_(x)

extern "C" {

const char *pt2p_version(void)
{
	return PT2P_TEXT(PT2P_VERSION_MAJOR) "." PT2P_TEXT(PT2P_VERSION_MINOR) "." PT2P_TEXT(PT2P_VERSION_PATCH);
}

const char *pt2p_strerror(pt2p_status_t status) { return pt2p::status_info(status).text; }

int pt2p_counter_count(void) { return static_cast<int>(pt2p::counter_count); }

const char *pt2p_counter_name(int counter)
{
	return counter < 0 || counter >= pt2p_counter_count() ? nullptr : pt2p::counters[counter].name;
}

const char *pt2p_counter_help(int counter)
{
	return counter < 0 || counter >= pt2p_counter_count() ? nullptr : pt2p::counters[counter].help;
}

} // extern "C"
