// SPDX-License-Identifier: BSD-3-Clause
// Statuses, explanations, the log and the counters.
// The program replaces operator new with malloc, to make it fail.
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include <catch2/catch.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/report/report.hpp"
#include "tests/stderr.hpp"

namespace {
// While this is set, the process has no memory.
thread_local bool no_memory = false;
} // namespace

void *operator new(size_t size)
{
	void *memory = no_memory ? nullptr : malloc(size == 0 ? 1 : size);
	if (memory == nullptr)
		throw std::bad_alloc();
	return memory;
}
void *operator new(size_t size, const std::nothrow_t &) noexcept
{
	return no_memory ? nullptr : malloc(size == 0 ? 1 : size);
}
void operator delete(void *memory, const std::nothrow_t &) noexcept { free(memory); }
void operator delete(void *memory) noexcept { free(memory); }
void operator delete(void *memory, size_t) noexcept { free(memory); }

using namespace pt2p;
using Catch::Matchers::Contains;

namespace {

std::vector<std::string> lines(const std::string &text)
{
	std::vector<std::string> out;
	std::istringstream stream(text);
	for (std::string line; std::getline(stream, line);)
		out.push_back(line);
	return out;
}

} // namespace

TEST_CASE("statuses")
{
	std::set<std::string> texts;
	std::set<int> codes;
#define PT2P_STATUS(id, number, short_text, why, what_to_do)                                                           \
	CHECK(PT2P_##id == number);                                                                                        \
	CHECK(status_info(PT2P_##id).name == std::string("PT2P_" #id));                                                    \
	CHECK(status_info(PT2P_##id).code == PT2P_##id);                                                                   \
	CHECK(pt2p_strerror(PT2P_##id) == std::string(short_text));                                                        \
	CHECK(texts.insert(short_text).second);                                                                            \
	CHECK(codes.insert(number).second);
#include "base/report/status.def"
#undef PT2P_STATUS
	CHECK(pt2p_strerror(static_cast<pt2p_status_t>(12345)) == std::string("unknown status"));
	CHECK(pt2p_strerror(static_cast<pt2p_status_t>(-1)) == std::string("unknown status"));
}

TEST_CASE("version")
{
	CHECK(pt2p_version() == format("%d.%d.%d", PT2P_VERSION_MAJOR, PT2P_VERSION_MINOR, PT2P_VERSION_PATCH));
}

TEST_CASE("formatting")
{
	CHECK(format("%s %d", "a", 7) == "a 7");
	CHECK(format("%s", "").empty());
	for (size_t n : {510, 511, 512, 513, 100000})
		CHECK(format("%s", std::string(n, 'x').c_str()) == std::string(n, 'x'));
	CHECK(errno_text(ENOENT) == "No such file or directory (ENOENT)");
	CHECK_THAT(errno_text(99999), Contains("99999"));
}

TEST_CASE("explanations")
{
	Reporter reporter;
	CHECK(last_error(&reporter) == std::string());
	CHECK(reporter.fail(PT2P_ERR_RANK, "dest is %d, the job has %d ranks", 9, 4) == PT2P_ERR_RANK);
	CHECK(last_error(&reporter) == std::string("rank out of range: dest is 9, the job has 4 ranks. Remedy: ") +
	                                   status_info(PT2P_ERR_RANK).remedy);
	const char *place = last_error(&reporter);
	reporter.fail(PT2P_ERR_LENGTH, "length is %d.", -1);
	CHECK(last_error(&reporter) == place);
	CHECK(last_error(&reporter) ==
	      std::string("impossible length: length is -1. Remedy: ") + status_info(PT2P_ERR_LENGTH).remedy);
}

namespace {

struct Failed {
	Failed() { reporter.fail(PT2P_ERR_LENGTH, "length is %d.", -1); }
	Reporter reporter;
};

} // namespace

TEST_CASE_METHOD(Failed, "explanations: each context has its own, and so have calls without a context")
{
	Reporter other;
	set_last_error(nullptr, PT2P_ERR_LAUNCHER, "no answer");
	CHECK_THAT(last_error(nullptr), Contains("launcher does not answer: no answer. Remedy: "));
	CHECK_THAT(last_error(&reporter), Contains("length is -1"));
	CHECK(last_error(&other) == std::string());
	other.fail(PT2P_ERR_INTERNAL, "x");
	CHECK_THAT(last_error(&reporter), Contains("length is -1"));
	CHECK_THAT(last_error(nullptr), Contains("no answer"));
}

TEST_CASE_METHOD(Failed, "explanations: each thread has its own")
{
	std::thread([&] {
		if (*last_error(&reporter) != '\0')
			abort();
		reporter.fail(PT2P_ERR_INTERNAL, "elsewhere");
	}).join();
	CHECK_THAT(last_error(&reporter), Contains("length is -1"));
}

TEST_CASE_METHOD(Failed, "explanations: the context that failed longest ago is forgotten first")
{
	std::vector<std::unique_ptr<Reporter>> many;
	for (int i = 0; i < 20; ++i) {
		many.push_back(std::make_unique<Reporter>());
		many.back()->fail(PT2P_ERR_ARGUMENT, "number %d", i);
		reporter.fail(PT2P_ERR_ARGUMENT, "again %d", i);
	}
	CHECK_THAT(last_error(&reporter), Contains("again 19"));
	CHECK_THAT(last_error(many[19].get()), Contains("number 19"));
	CHECK_THAT(last_error(many[13].get()), Contains("number 13"));
	CHECK(last_error(many[0].get()) == std::string());
}

TEST_CASE_METHOD(Failed, "explanations: a new context does not inherit")
{
	alignas(Reporter) char memory[sizeof(Reporter)];
	auto *first = new (memory) Reporter;
	first->fail(PT2P_ERR_INTERNAL, "old");
	first->~Reporter();
	auto *second = new (memory) Reporter;
	CHECK(last_error(second) == std::string());
	second->~Reporter();
}

TEST_CASE_METHOD(Failed, "explanations: odd explanations")
{
	reporter.fail(PT2P_ERR_RANK, "%s", "");
	CHECK_THAT(last_error(&reporter), Contains("rank out of range. Remedy: "));
	reporter.fail(PT2P_ERR_RANK, "what now?\n");
	CHECK_THAT(last_error(&reporter), Contains("what now? Remedy: "));
	set_last_error(&reporter, static_cast<pt2p_status_t>(777), "odd");
	CHECK_THAT(last_error(&reporter), Contains("unknown status: odd"));
}

TEST_CASE_METHOD(Failed, "explanations: a long explanation is cut, the remedy stays")
{
	std::string remedy = status_info(PT2P_ERR_UNFINISHED).remedy;
	for (size_t n = 700; n < 1100; ++n) {
		reporter.fail(PT2P_ERR_UNFINISHED, "%s", std::string(n, 'y').c_str());
		std::string text = last_error(&reporter);
		REQUIRE(text.size() < 1024);
		REQUIRE(text.ends_with(". Remedy: " + remedy));
		REQUIRE((text.find("(cut)") != text.npos || text.find(std::string(n, 'y')) != text.npos));
	}
	set_last_error(nullptr, PT2P_ERR_UNFINISHED, std::string(100000, 'z'));
	CHECK(std::string(last_error(nullptr)).ends_with(" ... (cut). Remedy: " + remedy));
}

TEST_CASE("failing needs no memory and keeps errno")
{
	Reporter reporter;
	errno = ENOSPC;
	no_memory = true;
	reporter.fail(PT2P_ERR_NO_MEMORY, "%d bytes for %s", 4096, "requests");
	set_last_error(nullptr, PT2P_ERR_NO_MEMORY, "a context");
	no_memory = false;
	CHECK(errno == ENOSPC);
	CHECK_THAT(last_error(&reporter), Contains("out of memory: 4096 bytes for requests. Remedy: "));
	CHECK_THAT(last_error(nullptr), Contains("out of memory: a context."));
}

TEST_CASE("the log: before identify(), only warnings and errors are shown")
{
	Reporter reporter;
	std::string text = stderr_of([&] {
		reporter.log(LogLevel::info, "hidden");
		reporter.log(LogLevel::warning, "shown %d", 1);
		reporter.log(LogLevel::error, "shown %d", 2);
	});
	auto all = lines(text);
	REQUIRE(all.size() == 2);
	CHECK(std::regex_match(all[0], std::regex("\\d\\d:\\d\\d:\\d\\d\\.\\d\\d\\d \\S+ - warning: shown 1")));
	CHECK(std::regex_match(all[1], std::regex("\\d\\d:\\d\\d:\\d\\d\\.\\d\\d\\d \\S+ - error: shown 2")));
}

TEST_CASE("the log: identity and levels")
{
	Reporter reporter;
	reporter.identify(LogLevel::debug, 42, "node7");
	CHECK(reporter.rank() == 42);
	CHECK(reporter.host() == "node7");
	errno = EXDEV;
	auto all = lines(stderr_of([&] { reporter.log(LogLevel::debug, "text\n"); }));
	CHECK(errno == EXDEV);
	REQUIRE(all.size() == 1);
	CHECK_THAT(all[0], Catch::Matchers::EndsWith(" node7 42 debug: text"));
	reporter.identify(LogLevel::error, 42, "node7");
	CHECK(!reporter.shows(LogLevel::warning));
	CHECK(stderr_of([&] { reporter.log(LogLevel::warning, "no"); }).empty());
}

TEST_CASE("the log: every line of a long text has the head")
{
	Reporter reporter;
	reporter.identify(LogLevel::info, 3, "h");
	auto all = lines(stderr_of([&] { reporter.log(LogLevel::info, "one\n\n%s\n", std::string(5000, 'x').c_str()); }));
	REQUIRE(all.size() == 3);
	CHECK_THAT(all[0], Catch::Matchers::EndsWith(" h 3 info: one"));
	CHECK_THAT(all[1], Catch::Matchers::EndsWith(" h 3 info: "));
	CHECK_THAT(all[2], Catch::Matchers::EndsWith(" h 3 info: " + std::string(5000, 'x')));
}

TEST_CASE("the log: without memory the beginning is shown")
{
	Reporter reporter;
	reporter.identify(LogLevel::info, 3, "h");
	auto all = lines(stderr_of([&] {
		no_memory = true;
		reporter.log(LogLevel::error, "short, but longer than a small string has room for");
		no_memory = false;
	}));
	REQUIRE(all.size() == 1);
	CHECK_THAT(all[0], Contains("h 3 error: short, but"));
}

TEST_CASE("the log: lines of several processes do not mix")
{
	Reporter reporter;
	constexpr int writers = 4, each = 200;
	std::string filler(300, '=');
	std::string text = stderr_of([&] {
		for (int w = 0; w < writers; ++w)
			if (fork() == 0) {
				reporter.identify(LogLevel::info, w, "host");
				for (int i = 0; i < each; ++i)
					reporter.log(LogLevel::info, "%s %d", filler.c_str(), i);
				_exit(0);
			}
		while (wait(nullptr) > 0)
			;
	});
	auto all = lines(text);
	CHECK(all.size() == writers * each);
	int next[writers] = {};
	for (const std::string &line : all) {
		int rank = -1, i = -1;
		auto at = line.find(" info: " + filler + " ");
		REQUIRE(at != line.npos);
		REQUIRE(sscanf(line.c_str(), "%*s host %d", &rank) == 1);
		REQUIRE(sscanf(line.c_str() + at + 8 + filler.size(), "%d", &i) == 1);
		REQUIRE((rank >= 0 && rank < writers));
		REQUIRE(next[rank]++ == i);
	}
}

TEST_CASE("the log: a closed standard error is no disaster")
{
	Reporter reporter;
	int before = dup(STDERR_FILENO);
	close(STDERR_FILENO);
	reporter.log(LogLevel::error, "into the void");
	dup2(before, STDERR_FILENO);
	close(before);
}

TEST_CASE("counters")
{
	Reporter reporter;
	REQUIRE(pt2p_counter_count() == static_cast<int>(Counter::count));
	std::set<std::string> seen;
	for (int i = 0; i < pt2p_counter_count(); ++i) {
		CHECK(seen.insert(pt2p_counter_name(i)).second);
		CHECK(*pt2p_counter_help(i) != '\0');
		CHECK(counter_info(static_cast<Counter>(i)).name == std::string(pt2p_counter_name(i)));
		CHECK(reporter.read(static_cast<Counter>(i)) == 0);
	}
	for (int bad : {-1, pt2p_counter_count(), INT32_MAX, INT32_MIN}) {
		CHECK(pt2p_counter_name(bad) == nullptr);
		CHECK(pt2p_counter_help(bad) == nullptr);
	}
	CHECK(pt2p_counter_name(0) == std::string("messages_sent"));
	reporter.add(Counter::bytes_sent);
	reporter.add(Counter::bytes_sent, 4);
	CHECK(reporter.read(Counter::bytes_sent) == 5);
	reporter.peak(Counter::unexpected_bytes_peak, 7);
	reporter.peak(Counter::unexpected_bytes_peak, 3);
	CHECK(reporter.read(Counter::unexpected_bytes_peak) == 7);
}
