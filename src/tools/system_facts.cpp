// SPDX-License-Identifier: BSD-3-Clause
#include "tools/system_facts.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/report/report.hpp"

namespace pt2p {

namespace {

std::string first_line(const std::string &path)
{
	std::string out;
	if (FILE *file = fopen(path.c_str(), "re")) {
		char line[256];
		if (fgets(line, sizeof line, file) != nullptr)
			out.assign(line, strcspn(line, "\n"));
		fclose(file);
	}
	return out;
}

// What a child finds when it reads and writes this process's memory, as one rank would another's: 0 or the errno.
int try_process_vm()
{
	static volatile uint64_t word;
	word = 0x70743270;
	pid_t parent = getpid();
	pid_t child = fork();
	if (child < 0)
		return errno;
	if (child == 0) {
		uint64_t copy = 0;
		iovec local{&copy, sizeof copy};
		iovec remote{const_cast<uint64_t *>(&word), sizeof copy};
		errno = EIO;
		if (process_vm_readv(parent, &local, 1, &remote, 1, 0) != sizeof copy || copy != 0x70743270)
			_exit(errno);
		errno = EIO;
		if (process_vm_writev(parent, &local, 1, &remote, 1, 0) != sizeof copy)
			_exit(errno);
		_exit(0);
	}
	int status = 0;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

std::string process_vm_text()
{
	int error = try_process_vm();
	std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
	std::string yama = scope.empty() ? "no yama restrictions" : "yama ptrace_scope is " + scope;
	if (error == 0)
		return "allowed (" + yama + ")";
	std::string why = "refused: " + errno_text(error) + ", " + yama;
	if (error == ENOSYS)
		why += "; the kernel or a seccomp filter lacks process_vm_readv";
	else if (error == EPERM && (scope.empty() || scope == "0"))
		why += "; most likely a seccomp filter of the container, which needs CAP_SYS_PTRACE";
	else if (error == EPERM)
		why += "; 0 would allow it";
	return why + ". Large messages are pipelined through shared memory";
}

std::string dev_shm_text()
{
	struct statvfs fs;
	if (statvfs("/dev/shm", &fs) != 0)
		return "not there: " + errno_text(errno);
	uint64_t size = static_cast<uint64_t>(fs.f_blocks) * fs.f_frsize;
	uint64_t left = static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
	return bytes_text(left) + " free of " + bytes_text(size);
}

std::string memlock_text()
{
	rlimit limit{};
	if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
		return "unknown: " + errno_text(errno);
	return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : bytes_text(limit.rlim_cur);
}

} // namespace

std::string bytes_text(uint64_t bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double value = static_cast<double>(bytes);
	size_t unit = 0;
	while (value >= 1024 && unit + 1 < std::size(units)) {
		value /= 1024;
		++unit;
	}
	return unit == 0 ? format("%.0f bytes", value) : format("%.1f %s", value, units[unit]);
}

void print_facts(const char *title, const std::vector<Fact> &facts)
{
	printf("%s\n", title);
	for (const Fact &fact : facts)
		printf("  %-26s %s\n", fact.label.c_str(), fact.value.c_str());
}

void print_text(std::string_view text)
{
	std::string line = "   ";
	while (!text.empty()) {
		auto blank = text.find(' ');
		std::string_view word = text.substr(0, blank);
		text.remove_prefix(blank == text.npos ? text.size() : blank + 1);
		if (line.size() + word.size() > 78) {
			puts(line.c_str());
			line = "   ";
		}
		(line += ' ') += word;
	}
	puts(line.c_str());
}

void add_facts(Json &json, const std::vector<Fact> &facts)
{
	for (const Fact &fact : facts)
		json.add(fact.key.c_str(), fact.value);
}

void write_facts(Json &json, const char *key, const std::vector<Fact> &facts)
{
	json.open(key, '{');
	add_facts(json, facts);
	json.close('}');
}

std::vector<Fact> system_facts()
{
	return {{"process_vm", "single copy (process_vm)", process_vm_text()},
	        {"dev_shm", "/dev/shm", dev_shm_text()},
	        {"memlock", "locked memory limit", memlock_text()}};
}

} // namespace pt2p
