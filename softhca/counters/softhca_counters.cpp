// Prints what the processes of a fabric have counted, while they run or afterwards.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "softhca/counters/accounts.hpp"
#include "softhca/kernel/qp_states.hpp"
#include "softhca/wire/faults.hpp"

using namespace softhca;

namespace {

struct Description {
	const char *name, *text;
};
constexpr Description descriptions[] = {
#define COUNTER(name, description) {#name, description},
#include "softhca/counters/counters.def"
#undef COUNTER
};

constexpr const char *kinds[] = {"rc", "ud", "dci", "dct"};

const char *kind_name(uint8_t kind) { return kind < std::size(kinds) ? kinds[kind] : "?"; }

// Mapped for good: this program is short.
std::vector<const Account *> read_accounts(const std::string &directory)
{
	std::vector<const Account *> accounts;
	std::error_code error;
	for (const auto &file : std::filesystem::directory_iterator(directory, error)) {
		if (!file.path().filename().string().starts_with("counters."))
			continue;
		const int fd = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
		struct stat status;
		if (fd < 0 || fstat(fd, &status) != 0 || status.st_size != sizeof(Account))
			continue;
		void *memory = mmap(nullptr, sizeof(Account), PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
		if (memory == MAP_FAILED)
			continue;
		const auto *account = static_cast<const Account *>(memory);
		if (__atomic_load_n(&account->magic, __ATOMIC_ACQUIRE) == Account::expected_magic)
			accounts.push_back(account);
	}
	if (error) {
		std::fprintf(stderr, "softhca_counters: %s: %s\n", directory.c_str(), error.message().c_str());
		std::exit(1);
	}
	std::sort(accounts.begin(), accounts.end(), [](auto *a, auto *b) { return a->pid < b->pid; });
	return accounts;
}

bool any(const Counters &counters)
{
	return std::any_of(std::begin(counters.value), std::end(counters.value), [](uint64_t v) { return v != 0; });
}

// A table: counters that are not all zero, a column for each of `columns`, and their sum.
void print_table(const std::vector<std::pair<std::string, Counters>> &columns)
{
	const bool sum = columns.size() > 1;
	std::printf("%-22s", "");
	for (const auto &[name, counters] : columns)
		std::printf(" %16s", name.c_str());
	std::printf(sum ? " %16s\n" : "\n", "sum");
	for (size_t i = 0; i < counter_count; ++i) {
		uint64_t total = 0;
		for (const auto &[name, counters] : columns)
			total += counters.value[i];
		if (!total)
			continue;
		std::printf("%-22s", descriptions[i].name);
		for (const auto &[name, counters] : columns)
			std::printf(" %16llu", static_cast<unsigned long long>(counters.value[i]));
		if (sum)
			std::printf(" %16llu", static_cast<unsigned long long>(total));
		std::printf("\n");
	}
}

std::string device_name(unsigned host, unsigned device)
{
	return "host" + std::to_string(host) + "/mlx5_" + std::to_string(device);
}

void print_text(const std::vector<const Account *> &accounts, bool details)
{
	std::map<std::pair<unsigned, unsigned>, Counters> devices;
	for (const Account *a : accounts)
		for (unsigned device = 0; device < std::min(a->devices, max_devices); ++device)
			for (size_t i = 0; i < counter_count; ++i)
				devices[{a->host, device}].value[i] += a->device[device].value[i];
	std::vector<std::pair<std::string, Counters>> columns;
	for (const auto &[key, counters] : devices)
		if (any(counters))
			columns.emplace_back(device_name(key.first, key.second), counters);
	if (columns.empty())
		std::printf("nothing was counted\n");
	else
		print_table(columns);
	for (const Account *a : accounts) {
		if (!details)
			break;
		for (unsigned i = 0; i < std::min(a->queue_pairs, max_virtual_queue_pairs); ++i) {
			const QpAccount &qp = a->queue_pair[i];
			if (!qp.number || !any(qp.counters))
				continue;
			std::printf("\n%s of %.*s (process %u) on %s\n", kind_name(qp.kind), static_cast<int>(sizeof a->program),
			            a->program, a->pid, device_name(a->host, qp.device).c_str());
			char name[32];
			std::snprintf(name, sizeof name, "qp 0x%06x%s", qp.number, qp.live ? "" : " (gone)");
			print_table({{name, qp.counters}});
		}
	}
}

void print_json_counters(const Counters &counters)
{
	const char *comma = "";
	std::printf("{");
	for (size_t i = 0; i < counter_count; ++i, comma = ", ")
		std::printf("%s\"%s\": %llu", comma, descriptions[i].name, static_cast<unsigned long long>(counters.value[i]));
	std::printf("}");
}

// The program's name, without characters that need an escape.
std::string plain(const char (&text)[32])
{
	std::string result(text, strnlen(text, sizeof text));
	std::replace_if(
	    result.begin(), result.end(), [](unsigned char c) { return c < ' ' || c == '"' || c == '\\' || c > '~'; }, '?');
	return result;
}

void print_json(const std::vector<const Account *> &accounts)
{
	std::printf("{\"processes\": [");
	const char *comma = "\n";
	for (const Account *a : accounts) {
		std::printf("%s {\"pid\": %u, \"program\": \"%s\", \"host\": %u,\n  \"devices\": [", comma, a->pid,
		            plain(a->program).c_str(), a->host);
		comma = ",\n";
		for (unsigned device = 0; device < std::min(a->devices, max_devices); ++device) {
			std::printf("%s\n   {\"device\": \"mlx5_%u\", \"counters\": ", device ? "," : "", device);
			print_json_counters(a->device[device]);
			std::printf("}");
		}
		std::printf("],\n  \"queue_pairs\": [");
		const char *qp_comma = "";
		for (unsigned i = 0; i < std::min(a->queue_pairs, max_virtual_queue_pairs); ++i) {
			const QpAccount &qp = a->queue_pair[i];
			if (!qp.number)
				continue;
			std::printf(
			    "%s\n   {\"qp_num\": %u, \"kind\": \"%s\", \"device\": \"mlx5_%u\", \"live\": %s, \"counters\": ",
			    qp_comma, qp.number, kind_name(qp.kind), qp.device, qp.live ? "true" : "false");
			print_json_counters(qp.counters);
			std::printf("}");
			qp_comma = ",";
		}
		std::printf("]}");
	}
	std::printf("\n]}\n");
}

// Counters that are zero where nothing is lost and nobody makes a mistake. Drops and retransmissions for want of a
// receive are allowed.
int tell_losses(const std::vector<const Account *> &accounts)
{
	std::string text;
	for (const Account *a : accounts)
		for (unsigned device = 0; device < std::min(a->devices, max_devices); ++device) {
			const Counters &c = a->device[device];
			const auto tell = [&](Counter counter, uint64_t expected = 0) {
				if (c.get(counter) != expected)
					text += "  " + device_name(a->host, device) + ": " +
					        descriptions[static_cast<size_t>(counter)].name + " " +
					        std::to_string(c.get(counter) - expected) + "\n";
			};
			tell(Counter::timeouts);
			tell(Counter::naks_sent);
			tell(Counter::packets_dropped, c.get(Counter::rnr_dropped));
			tell(Counter::retransmissions, c.get(Counter::rnr_resent));
		}
	if (!text.empty())
		std::fprintf(stderr, "softhca: packets were lost, or came too late, though no fault was asked for:\n%s",
		             text.c_str());
	return text.empty() ? 0 : 1;
}

constexpr char usage[] =
    "usage: softhca_counters [--json | --queue-pairs | --lossless] [DIRECTORY]\n"
    "       softhca_counters --list | --check-faults RULES | --help\n"
    "Prints what the processes of a softhca fabric have counted; DIRECTORY is the fabric's (default:\n"
    "SOFTHCA_FABRIC, which is set below softhca).\n"
    "  --json         all there is, as JSON\n"
    "  --queue-pairs  each queue pair as well\n"
    "  --lossless     say what was lost; nothing, and 0 is returned, when nothing was\n"
    "  --list         the counters and what they mean\n"
    "  --check-faults RULES  whether fault rules can be understood\n"
    "  --help         this text\n";

} // namespace

int main(int argc, char **argv)
{
	bool json = false, details = false, losses = false;
	const char *directory = std::getenv("SOFTHCA_FABRIC");
	for (int i = 1; i < argc; ++i) {
		const std::string_view argument = argv[i];
		if (argument == "--help") {
			std::printf("%s", usage);
			return 0;
		}
		if (argument == "--list") {
			for (const Description &d : descriptions)
				std::printf("%-22s %s\n", d.name, d.text);
			return 0;
		}
		if (argument == "--check-faults" && i + 1 < argc) {
			const std::string error = Faults().add(argv[i + 1]);
			if (!error.empty())
				std::fprintf(stderr, "softhca: fault %s\n", error.c_str());
			return error.empty() ? 0 : 2;
		}
		if (argument == "--json") {
			json = true;
		} else if (argument == "--lossless") {
			losses = true;
		} else if (argument == "--queue-pairs") {
			details = true;
		} else if (argument.starts_with("-")) {
			std::fprintf(stderr, "softhca_counters: unknown option %s\n%s", argv[i], usage);
			return 2;
		} else {
			directory = argv[i];
		}
	}
	if (!directory) {
		std::fprintf(stderr, "softhca_counters: no directory is given and SOFTHCA_FABRIC is not set\n%s", usage);
		return 2;
	}
	const auto accounts = read_accounts(directory);
	if (losses)
		return tell_losses(accounts);
	if (json)
		print_json(accounts);
	else
		print_text(accounts, details);
	return std::fflush(stdout) == 0 ? 0 : 1;
}
