// Statuses, error explanations, the log and counters of one context.
#pragma once

#include <array>
#include <cstdarg>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "pt2p.h"

namespace pt2p {

// The one exception: thrown by set-up code, turned into a status at the C boundary.
class Error : public std::runtime_error {
public:
	Error(pt2p_status_t status, const std::string &explanation) : std::runtime_error(explanation), status_(status) {}
	pt2p_status_t status() const { return status_; }

private:
	pt2p_status_t status_;
};

// printf into a std::string, for explanations.
std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

// "1 message", "2 messages".
std::string counted(uint64_t n, const char *noun);
// Copies as much as there is room for, with a zero behind it; capacity in bytes, may be 0.
void copy_text(char *to, size_t capacity, std::string_view text);

// What an errno means, as "text (NAME)".
std::string errno_text(int error);

struct StatusInfo {
	const char *name; // "PT2P_ERR_RANK"
	pt2p_status_t code;
	const char *text, *cause, *remedy;
};
const StatusInfo &status_info(pt2p_status_t status);
bool is_status(uint64_t number); // whether it is one of them

// Writes in one call, so that lines of different ranks do not mix; in several only when the system takes a part. Drops
// what cannot be written.
void write_to_stderr(std::string_view text);

enum class LogLevel { error, warning, info, debug };

enum class Counter {
#define PT2P_COUNTER(name, help) name,
#include "base/report/counters.def"
#undef PT2P_COUNTER
	count
};

struct CounterInfo {
	const char *name, *help;
};
const CounterInfo &counter_info(Counter counter);

// Cannot be moved: its address is the key of the explanations.
class Reporter {
public:
	Reporter() = default;
	~Reporter();
	Reporter(const Reporter &) = delete;
	Reporter &operator=(const Reporter &) = delete;

	// Level and identity of the log lines; before that, warnings and errors are shown with "-" for the rank.
	void identify(LogLevel level, int rank, std::string host);

	// One line on standard error, in one write: "HH:MM:SS.mmm host rank level: text". Each line of a longer text gets
	// this head. errno is kept.
	void log(LogLevel level, const char *pattern, ...) __attribute__((format(printf, 3, 4)));
	bool shows(LogLevel level) const { return level <= level_; }

	// Remembers the explanation as this thread's latest failure on this context and returns `status`. The text is
	// "<status text>: <explanation>. Remedy: <remedy>", the explanation being at most about 900 characters. Allocates
	// nothing and keeps errno. Out of line on purpose: errors stay away from the short path.
	pt2p_status_t fail(pt2p_status_t status, const char *pattern, ...) __attribute__((format(printf, 3, 4), cold));

	// While set, fail() remembers nothing: this thread works for another one.
	void mute(bool muted) { muted_ = muted; }

	void add(Counter counter, uint64_t n = 1) { counters_[static_cast<size_t>(counter)] += n; }
	void peak(Counter counter, uint64_t value)
	{
		auto &c = counters_[static_cast<size_t>(counter)];
		if (value > c)
			c = value;
	}
	uint64_t read(Counter counter) const
	{
		// Derived, so that the short path has one counter less.
		if (counter == Counter::messages_sent)
			return read(Counter::eager_sent) + read(Counter::rendezvous_sent);
		return counters_[static_cast<size_t>(counter)];
	}

	int rank() const { return rank_; }
	const std::string &host() const { return host_; }

private:
	LogLevel level_ = LogLevel::warning;
	int rank_ = -1;
	bool muted_ = false;
	std::string host_;
	std::array<uint64_t, static_cast<size_t>(Counter::count)> counters_{};
};

// Latest failure of the calling thread on `context` (null: without a context), see pt2p_last_error. The context is only
// a key: the address of its Reporter. A thread remembers the 8 contexts that failed last. `explanation` must not be a
// text that last_error has returned for the same context.
void set_last_error(const void *context, pt2p_status_t status, std::string_view explanation);
const char *last_error(const void *context);
void forget_last_error(const void *context);

} // namespace pt2p
