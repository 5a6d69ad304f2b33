// SPDX-License-Identifier: BSD-3-Clause
// The configuration: its four sources and their order, all kinds of values, and explanations of errors.
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/config/config.hpp"
#include "base/report/report.hpp"

using namespace pt2p;
using Catch::Matchers::Contains;

namespace {

// An empty folder as working directory and home, an environment without PT2P_ variables, no configuration file.
class Sandbox {
public:
	Sandbox()
	{
		char here[4096];
		REQUIRE(getcwd(here, sizeof here) != nullptr);
		before_ = here;
		char name[] = "/tmp/pt2p_test_XXXXXX";
		REQUIRE(mkdtemp(name) != nullptr);
		path_ = name;
		REQUIRE(chdir(name) == 0);
		set("HOME", path_ + "/home");
		REQUIRE(mkdir((path_ + "/home").c_str(), 0700) == 0);
		std::vector<std::string> foreign;
		for (char **entry = environ; *entry != nullptr; ++entry)
			if (std::string(*entry).rfind("PT2P_", 0) == 0)
				foreign.push_back(std::string(*entry).substr(0, std::string(*entry).find('=')));
		for (const std::string &name_of : foreign)
			drop(name_of);
		set("PT2P_CONF", "/dev/null");
	}
	~Sandbox()
	{
		for (auto entry = saved_.rbegin(); entry != saved_.rend(); ++entry) {
			if (entry->second.first)
				setenv(entry->first.c_str(), entry->second.second.c_str(), 1);
			else
				unsetenv(entry->first.c_str());
		}
		for (const char *file : {"/pt2p.conf", "/my.conf", "/home/.pt2p.conf"})
			unlink((path_ + file).c_str());
		rmdir((path_ + "/pt2p.conf").c_str());
		rmdir((path_ + "/home").c_str());
		if (chdir(before_.c_str()) == 0)
			rmdir(path_.c_str());
	}
	void set(const std::string &name, const std::string &value)
	{
		save(name);
		setenv(name.c_str(), value.c_str(), 1);
	}
	void drop(const std::string &name)
	{
		save(name);
		unsetenv(name.c_str());
	}
	void file(const std::string &name, const std::string &text) { std::ofstream(path_ + "/" + name) << text; }
	const std::string &path() const { return path_; }

private:
	void save(const std::string &name)
	{
		const char *old = std::getenv(name.c_str());
		saved_.push_back({name, {old != nullptr, old != nullptr ? old : ""}});
	}
	std::string before_, path_;
	std::vector<std::pair<std::string, std::pair<bool, std::string>>> saved_;
};

ParsedConfig with(std::initializer_list<const char *> overrides)
{
	std::vector<const char *> list(overrides);
	list.push_back(nullptr);
	return load_config(list.data());
}

// The explanation of why these overrides are refused; empty when they are not.
std::string refusal(std::initializer_list<const char *> overrides = {})
{
	try {
		with(overrides);
	} catch (const Error &error) {
		REQUIRE(error.status() == PT2P_ERR_TUNABLE);
		return error.what();
	}
	return {};
}

const TunableInfo &info(const ParsedConfig &parsed, const std::string &name)
{
	for (const TunableInfo &tunable : parsed.tunables)
		if (tunable.name == name)
			return tunable;
	throw std::out_of_range(name);
}

const char *const names[] = {
#define PT2P_TUNABLE(kind, field, name, dflt, minimum, maximum, unit, line, help) name,
#include "base/config/tunables.def"
#undef PT2P_TUNABLE
};

} // namespace

TEST_CASE("defaults")
{
	Sandbox sandbox;
	ParsedConfig parsed = load_config(nullptr);
	REQUIRE(parsed.tunables.size() == std::size(names));
	for (size_t i = 0; i < std::size(names); ++i) {
		const TunableInfo &t = parsed.tunables[i];
		CHECK(std::string(t.name) == names[i]);
		CHECK(t.value == t.standard);
		CHECK(t.origin == Origin::built_in);
		CHECK(t.place.empty());
		CHECK(!t.range.empty());
		CHECK(*t.line != '\0');
		CHECK(*t.help != '\0');
	}
	CHECK(parsed.config.eager_max == 16384);
	CHECK(info(parsed, "PT2P_EAGER_MAX").value == "16k");
	CHECK(info(parsed, "PT2P_EAGER_MAX").range == "0 to 1m");
	CHECK(info(parsed, "PT2P_SPIN_TIME").value == "20us");
	CHECK(info(parsed, "PT2P_SHM_BACKING").value == "memfd");
	CHECK(info(parsed, "PT2P_SHM_BACKING").range == "memfd, devshm");
	CHECK(info(parsed, "PT2P_SLEEP").value == "yes");
	CHECK(standard_tunables().size() == std::size(names));
}

TEST_CASE("every printed default parses back to the default")
{
	Sandbox sandbox;
	const Config standard;
	for (const TunableInfo &t : standard_tunables()) {
		std::string text = std::string(t.name) + "=" + t.standard;
		INFO(text);
		ParsedConfig parsed = with({text.c_str()});
		CHECK(info(parsed, t.name).value == t.standard);
		CHECK(info(parsed, t.name).origin == Origin::argument);
#define PT2P_TUNABLE(kind, field, name, dflt, minimum, maximum, unit, line, help)                                      \
	CHECK(parsed.config.field == standard.field);
#include "base/config/tunables.def"
#undef PT2P_TUNABLE
	}
}

TEST_CASE("the limits of every range are allowed, and values beyond are not")
{
	Sandbox sandbox;
	for (const TunableInfo &t : standard_tunables()) {
		std::string kind = t.kind;
		if (kind == "boolean" || kind == "choice" || kind == "text")
			continue;
		auto to = t.range.find(" to ");
		REQUIRE(to != std::string::npos);
		std::string low = t.range.substr(0, to), high = t.range.substr(to + 4), name = t.name;
		INFO(name << " " << t.range);
		for (const std::string &limit : {low, high}) {
			std::string text = name + "=" + limit;
			CHECK(info(with({text.c_str(), "PT2P_TUNE=off"}), t.name).value == limit); // off: no band to contradict
		}
		std::string unit;
		while (!high.empty() && (high.back() < '0' || high.back() > '9')) {
			unit.insert(unit.begin(), high.back());
			high.pop_back();
		}
		std::string above = name + "=" + std::to_string(std::stoll(high) + 1) + unit;
		CHECK_THAT(refusal({above.c_str()}), Contains("too large") && Contains(t.range) && Contains(t.name));
		std::string below = name + "=-1";
		CHECK_THAT(refusal({below.c_str()}), Contains("too small") && Contains(t.range));
	}
}

TEST_CASE("order of the sources")
{
	Sandbox sandbox;
	sandbox.file("my.conf", "PT2P_EAGER_MAX = 1k\nPT2P_SLEEP = no\nPT2P_SPIN_TIME=3us\n");
	sandbox.set("PT2P_CONF", "my.conf");
	sandbox.set("PT2P_EAGER_MAX", "2k");
	sandbox.set("PT2P_SPIN_TIME", "4us");
	ParsedConfig parsed = with({"PT2P_EAGER_MAX=3k", "PT2P_EAGER_MAX=4k"});
	CHECK(parsed.config.eager_max == 4096);
	CHECK(info(parsed, "PT2P_EAGER_MAX").origin == Origin::argument);
	CHECK(parsed.config.spin_time == 4000);
	CHECK(info(parsed, "PT2P_SPIN_TIME").origin == Origin::environment);
	CHECK(!parsed.config.sleep);
	CHECK(info(parsed, "PT2P_SLEEP").origin == Origin::file);
	CHECK(info(parsed, "PT2P_SLEEP").place == "my.conf:2");
	CHECK(info(parsed, "PT2P_NUMA").origin == Origin::built_in);
}

TEST_CASE("numbers")
{
	Sandbox sandbox;
	CHECK(with({"PT2P_EAGER_MAX=0"}).config.eager_max == 0);
	CHECK(with({"PT2P_EAGER_MAX=64K"}).config.eager_max == 65536);
	CHECK(with({"PT2P_EAGER_MAX= 1 m "}).config.eager_max == 1048576);
	CHECK(with({"PT2P_EAGER_MAX=+7"}).config.eager_max == 7);
	CHECK(with({"PT2P_UNEXPECTED_MAX=1g"}).config.unexpected_max == uint64_t{1} << 30);
	CHECK(with({"PT2P_SHM_RING_SLOTS=0032"}).config.shm_ring_slots == 32);
	CHECK(with({"PT2P_SPIN_TIME=1"}).config.spin_time == 1000000000);
	CHECK(with({"PT2P_SPIN_TIME=1.5ms"}).config.spin_time == 1500000);
	CHECK(with({"PT2P_SPIN_TIME=0.25"}).config.spin_time == 250000000);
	CHECK(with({"PT2P_SPIN_TIME=17NS"}).config.spin_time == 17);
	CHECK(with({"PT2P_SPIN_TIME=1.0ns"}).config.spin_time == 1);
	for (const char *bad :
	     {"PT2P_EAGER_MAX=",     "PT2P_EAGER_MAX=  ",      "PT2P_EAGER_MAX=12q",      "PT2P_EAGER_MAX=k",
	      "PT2P_EAGER_MAX=1.5k", "PT2P_EAGER_MAX=0x10",    "PT2P_EAGER_MAX=1e3",      "PT2P_EAGER_MAX=1 2",
	      "PT2P_EAGER_MAX=12kk", "PT2P_EAGER_MAX=-",       "PT2P_EAGER_MAX=--1",      "PT2P_EAGER_MAX=nan",
	      "PT2P_EAGER_MAX=1ms",  "PT2P_SHM_RING_SLOTS=1k", "PT2P_SHM_RING_SLOTS=1.0", "PT2P_SPIN_TIME=1.",
	      "PT2P_SPIN_TIME=.5s",  "PT2P_SPIN_TIME=1.5ns",   "PT2P_SPIN_TIME=1h",       "PT2P_SPIN_TIME=1k",
	      "PT2P_SPIN_TIME=1ms2"}) {
		INFO(bad);
		CHECK_THAT(refusal({bad}), Contains("allowed: ") && !Contains("too "));
	}
	for (const char *bad : {"PT2P_EAGER_MAX=9223372036854775807", "PT2P_EAGER_MAX=9223372036854775808",
	                        "PT2P_EAGER_MAX=99999999999999999999999999999", "PT2P_EAGER_MAX=9007199254740993k",
	                        "PT2P_EAGER_MAX=18446744073709551616", "PT2P_SPIN_TIME=9223372037",
	                        "PT2P_SPIN_TIME=9223372036.9", "PT2P_SHM_RING_SLOTS=18446744073709551680"}) {
		INFO(bad);
		CHECK_THAT(refusal({bad}), Contains("too large"));
	}
	CHECK_THAT(refusal({"PT2P_EAGER_MAX=-99999999999999999999"}), Contains("too small"));
	CHECK_THAT(refusal({"PT2P_SHM_RING_SLOTS=7"}), Contains("too small") && Contains("8 to 4096 slots"));
	CHECK_THAT(refusal({"PT2P_EAGER_MAX=12q"}), Contains("0 to 1m bytes") && Contains("the options of the call"));
	CHECK_THAT(refusal({"PT2P_SPIN_TIME=soon"}), Contains("0 to 10s") && Contains("ns, us, ms or s"));
}

TEST_CASE("words")
{
	Sandbox sandbox;
	for (const char *yes : {"1", "yes", "on", "true", "YES", "True"})
		CHECK(with({("PT2P_SUMMARY=" + std::string(yes)).c_str()}).config.summary);
	for (const char *no : {"0", "no", "off", "false", "Off"})
		CHECK(!with({("PT2P_SLEEP=" + std::string(no)).c_str()}).config.sleep);
	CHECK_THAT(refusal({"PT2P_SLEEP=2"}), Contains("neither yes nor no") && Contains("0, 1, no, yes"));
	CHECK_THAT(refusal({"PT2P_SLEEP="}), Contains("no value"));
	CHECK(with({"PT2P_LOG_LEVEL=debug"}).config.log_level == choice::log_level::debug);
	CHECK(with({"PT2P_LOG_LEVEL=Error"}).config.log_level == choice::log_level::error);
	CHECK_THAT(refusal({"PT2P_LOG_LEVEL=verbose"}), Contains("error, warning, info, debug"));
	CHECK_THAT(refusal({"PT2P_LOG_LEVEL=error|warning"}), Contains("not one of"));
	CHECK(with({"PT2P_TRANSPORTS= self, shm "}).config.transports == "self, shm");
	CHECK(with({"PT2P_TRANSPORTS=a=b"}).config.transports == "a=b");
}

TEST_CASE("unknown names")
{
	Sandbox sandbox;
	CHECK_THAT(refusal({"PT2P_EGER_MAX=1"}), Contains("did you mean PT2P_EAGER_MAX?"));
	CHECK_THAT(refusal({"pt2p_eager_max=1"}), Contains("did you mean PT2P_EAGER_MAX?"));
	CHECK_THAT(refusal({"=1"}), Contains("did you mean"));
	CHECK_THAT(refusal({"PT2P_CONF=x"}), Contains("environment only"));
	CHECK_THAT(refusal({"PT2P_EAGER_MAX"}), Contains("PT2P_NAME=value"));
	CHECK_THAT(refusal({""}), Contains("PT2P_NAME=value"));
	CHECK(std::string(nearest_tunable("PT2P_SHM_SINGEL_COPY")) == "PT2P_SHM_SINGLE_COPY");
	CHECK(std::string(nearest_tunable("PT2P_LOGLEVEL")) == "PT2P_LOG_LEVEL");
	CHECK(std::string(nearest_tunable("PT2P_STALLTIME")) == "PT2P_STALL_TIME");
	CHECK(nearest_tunable(std::string(100000, 'x')) != nullptr);
	CHECK(nearest_tunable("") != nullptr);
	for (const char *name : names)
		CHECK(std::string(nearest_tunable(name)) == name);

	sandbox.set("PT2P_SPIN_TIEM", "1us");
	CHECK_THAT(refusal(), Contains("did you mean PT2P_SPIN_TIME?") && Contains("environment"));
	sandbox.drop("PT2P_SPIN_TIEM");
	sandbox.set("PT2P_", "1");
	CHECK_THAT(refusal(), Contains("did you mean"));
	sandbox.drop("PT2P_");
	sandbox.set("PT2PX", "1");
	CHECK(refusal().empty());
	sandbox.drop("PT2PX");
	sandbox.set("PT2P_\x1b[31m", "1");
	CHECK_THAT(refusal(), Contains("\\x1b") && !Contains("\x1b"));
	sandbox.drop("PT2P_\x1b[31m");
}

TEST_CASE("values that contradict each other")
{
	Sandbox sandbox;
	CHECK_THAT(refusal({"PT2P_TUNE=on", "PT2P_TUNE_RAISE_BELOW=300"}),
	           Contains("PT2P_TUNE_CUT_ABOVE = 250 in the built-in default") &&
	               Contains("PT2P_TUNE_RAISE_BELOW = 300 in the options of the call") &&
	               Contains("PT2P_TUNE_CUT_ABOVE=300 would do"));
	CHECK_THAT(refusal({"PT2P_TUNE=paper", "PT2P_TUNE_CUT_ABOVE=179"}), Contains("= 179 in") && Contains("= 180 in"));
	CHECK(refusal({"PT2P_TUNE=paper", "PT2P_TUNE_RAISE_BELOW=300", "PT2P_TUNE_CUT_ABOVE=300"}).empty());
	CHECK(refusal({"PT2P_TUNE=off", "PT2P_TUNE_RAISE_BELOW=300"}).empty()); // nothing is tuned

	CHECK_THAT(refusal({"PT2P_NET_RING_SLOT_BYTES=8192", "PT2P_NET_MESSAGE_BYTES=320"}),
	           Contains("PT2P_NET_RING_SLOT_BYTES = 8k in") && Contains("PT2P_NET_MESSAGE_BYTES = 320 in") &&
	               Contains("PT2P_NET_RING_SLOT_BYTES=320 would do"));
	CHECK_THAT(refusal({"PT2P_NET_RING_SLOT_BYTES=384", "PT2P_NET_MESSAGE_BYTES=320"}), Contains("=320 would do"));
	CHECK(refusal({"PT2P_NET_RING_SLOT_BYTES=320", "PT2P_NET_MESSAGE_BYTES=320"}).empty());
	CHECK(refusal({"PT2P_NET_MESSAGE_BYTES=256"}).empty()); // the smallest with the default slot
}

TEST_CASE("rules for numbers besides their range")
{
	Sandbox sandbox;
	for (const TunableInfo &t : standard_tunables()) {
		const std::string kind = t.kind, name = t.name;
		CHECK((*t.rule != '\0') == (kind == "power" || kind == "bytes64"));
	}
	// The limits keep to the rule. The next number inside of the range does not.
	for (const char *good : {"4", "8", "64", "2048", "4096"})
		CHECK(refusal({("PT2P_NET_RING_SLOTS=" + std::string(good)).c_str()}).empty());
	for (const char *bad : {"5", "63", "65", "4095"})
		CHECK_THAT(refusal({("PT2P_NET_RING_SLOTS=" + std::string(bad)).c_str()}),
		           Contains("not a power of two") && Contains("4 to 4096 slots, a power of two"));
	CHECK_THAT(refusal({"PT2P_NET_RING_SLOTS=63"}),
	           Contains("PT2P_NET_RING_SLOTS = \"63\"") && Contains("for instance 32 is"));
	for (const char *good : {"64", "128", "192", "8128", "8k"})
		CHECK(refusal({("PT2P_NET_RING_SLOT_BYTES=" + std::string(good)).c_str()}).empty());
	for (const char *bad : {"65", "100", "127", "8191"})
		CHECK_THAT(refusal({("PT2P_NET_RING_SLOT_BYTES=" + std::string(bad)).c_str()}),
		           Contains("not a multiple of 64") && Contains("64 to 8k bytes"));
	CHECK_THAT(refusal({"PT2P_NET_RING_SLOT_BYTES=100"}), Contains("for instance 64 is"));
}

TEST_CASE("bad values in the environment")
{
	Sandbox sandbox;
	sandbox.set("PT2P_EAGER_MAX", "lots");
	CHECK_THAT(refusal(), Contains("PT2P_EAGER_MAX = \"lots\" in the environment"));
	CHECK_THAT(refusal({"PT2P_EAGER_MAX=1"}), Contains("lots")); // overridden, but still an error
	sandbox.set("PT2P_EAGER_MAX", std::string(100000, '9'));
	CHECK_THAT(refusal(), Contains("too large") && Contains("...\""));
	CHECK(refusal().size() < 300);
	sandbox.set("PT2P_EAGER_MAX", "");
	CHECK_THAT(refusal(), Contains("no value"));
}

TEST_CASE("the syntax of the file")
{
	Sandbox sandbox;
	sandbox.set("PT2P_CONF", "my.conf");
	sandbox.file("my.conf", "# a comment\n"
	                        "\n"
	                        "   \t \r\n"
	                        "PT2P_EAGER_MAX = 1k # with a reason\r\n"
	                        "\tPT2P_TRANSPORTS=self#shm\n"
	                        "  # indented\n"
	                        "PT2P_SPIN_TIME=5us"); // no end of line
	ParsedConfig parsed = load_config(nullptr);
	CHECK(parsed.config.eager_max == 1024);
	CHECK(parsed.config.transports == "self#shm");
	CHECK(parsed.config.spin_time == 5000);
	CHECK(info(parsed, "PT2P_SPIN_TIME").place == "my.conf:7");

	sandbox.file("my.conf", "");
	CHECK(refusal().empty());
	sandbox.file("my.conf", "\n\nPT2P_EAGER_MAX 1k\n");
	CHECK_THAT(refusal(), Contains("my.conf:3") && Contains("PT2P_NAME = value"));
	sandbox.file("my.conf", "PT2P_SLEEP = maybe\n");
	CHECK_THAT(refusal(), Contains("PT2P_SLEEP = \"maybe\" in my.conf:1"));
	sandbox.file("my.conf", "PT2P_SLEEP = # nothing\n");
	CHECK_THAT(refusal(), Contains("my.conf:1") && Contains("no value"));
	sandbox.file("my.conf", "\nPT2P_SLEPP = no\n");
	CHECK_THAT(refusal(), Contains("my.conf:2") && Contains("did you mean PT2P_SLEEP?"));
	sandbox.file("my.conf", "PATH = /bin\n");
	CHECK_THAT(refusal(), Contains("my.conf:1") && Contains("not the name of a tunable"));
	sandbox.file("my.conf", "PT2P_CONF = other.conf\n");
	CHECK_THAT(refusal(), Contains("my.conf:1") && Contains("environment only"));
	sandbox.file("my.conf", "PT2P_SLEEP = no\n\nPT2P_SLEEP = no\n");
	CHECK_THAT(refusal(), Contains("my.conf:3") && Contains("line 1"));
	sandbox.file("my.conf", std::string("PT2P_TRANSPORTS = a\0b\n", 22));
	CHECK_THAT(refusal(), Contains("my.conf:1"));
	sandbox.file("my.conf", std::string(2000000, 'x'));
	CHECK_THAT(refusal(), Contains("longer than 1 MiB"));
}

TEST_CASE("which file is read")
{
	Sandbox sandbox;
	sandbox.set("PT2P_CONF", sandbox.path() + "/missing");
	CHECK_THAT(refusal(), Contains("missing") && Contains("ENOENT") && Contains("PT2P_CONF"));
	sandbox.set("PT2P_CONF", sandbox.path());
	CHECK_THAT(refusal(), Contains("EISDIR"));
	sandbox.set("PT2P_CONF", "");
	CHECK_THAT(refusal(), Contains("PT2P_CONF is empty"));

	sandbox.drop("PT2P_CONF");
	sandbox.file("home/.pt2p.conf", "PT2P_EAGER_MAX = 1k\n");
	CHECK(load_config(nullptr).config.eager_max == 1024);
	CHECK_THAT(info(load_config(nullptr), "PT2P_EAGER_MAX").place, Contains("home/.pt2p.conf:1"));
	sandbox.file("pt2p.conf", "PT2P_SLEEP = no\n");
	CHECK(load_config(nullptr).config.eager_max == 16384); // the first file only
	CHECK(!load_config(nullptr).config.sleep);
	sandbox.file("my.conf", "PT2P_EAGER_MAX = 3\n");
	sandbox.set("PT2P_CONF", "my.conf");
	CHECK(load_config(nullptr).config.eager_max == 3);
	CHECK(load_config(nullptr).config.sleep);

	sandbox.drop("PT2P_CONF");
	REQUIRE(unlink("pt2p.conf") == 0);
	REQUIRE(mkdir("pt2p.conf", 0700) == 0);
	CHECK_THAT(refusal(), Contains("not a regular file"));
	REQUIRE(rmdir("pt2p.conf") == 0);
	sandbox.drop("HOME");
	if (access("/etc/pt2p.conf", F_OK) != 0)
		CHECK(load_config(nullptr).config.eager_max == 16384);
}

TEST_CASE("an unreadable file is an error")
{
	Sandbox sandbox;
	sandbox.file("my.conf", "PT2P_SLEEP = no\n");
	REQUIRE(chmod("my.conf", 0) == 0);
	sandbox.set("PT2P_CONF", "my.conf");
	if (access("my.conf", R_OK) != 0) // root may read everything
		CHECK_THAT(refusal(), Contains("EACCES"));
}

TEST_CASE("random text is read or refused, and does no harm")
{
	Sandbox sandbox;
	sandbox.set("PT2P_CONF", "my.conf");
	const std::string pieces[] = {"PT2P_",
	                              "EAGER_MAX",
	                              "SPIN_TIME",
	                              "=",
	                              " ",
	                              "\n",
	                              "#",
	                              "-",
	                              ".",
	                              "9",
	                              "1",
	                              "k",
	                              "us",
	                              std::string(1, '\0'),
	                              "\xff",
	                              "\r",
	                              "PT2P_EAGER_MAX=1",
	                              "99999999999999999999"};
	uint32_t state = 12345;
	for (int round = 0; round < 1000; ++round) {
		std::string text;
		for (int i = 0; i < 12; ++i) {
			state = state * 1664525 + 1013904223;
			text += pieces[(state >> 16) % std::size(pieces)];
		}
		sandbox.file("my.conf", text);
		std::string why = refusal();
		CHECK(why.find('\n') == std::string::npos);
	}
}

TEST_CASE("the manual pages name every tunable and every status")
{
	auto page = [](const char *path) {
		std::ifstream file(path);
		INFO(path << " is made by the build; run this test in the build directory");
		REQUIRE(file.good());
		std::ostringstream text;
		text << file.rdbuf();
		return text.str();
	};
	std::string tunables = page("man/man7/pt2p_tunables.7");
	for (const TunableInfo &t : standard_tunables()) {
		CHECK_THAT(tunables, Contains(".It Ev " + std::string(t.name) + "\n"));
		CHECK_THAT(tunables, Contains("Default: " + t.standard + "."));
	}
	std::string errors = page("man/man7/pt2p_errors.7");
#define PT2P_STATUS(name, code, text, cause, remedy)                                                                   \
	CHECK_THAT(errors, Contains(".It Dv PT2P_" #name " Pq " #code "\n"));
#include "base/report/status.def"
#undef PT2P_STATUS
}
