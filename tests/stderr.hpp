// What is written to standard error.
#pragma once

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <unistd.h>

// What `work` writes there.
template <class Work>
std::string stderr_of(const Work &work)
{
	char name[] = "/tmp/pt2p_test_XXXXXX";
	const int file = mkstemp(name);
	REQUIRE(file >= 0);
	unlink(name);
	const int before = dup(STDERR_FILENO);
	// Several processes share the offset: append.
	fcntl(file, F_SETFL, O_APPEND);
	dup2(file, STDERR_FILENO);
	work();
	dup2(before, STDERR_FILENO);
	close(before);
	std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
	const ssize_t n = pread(file, text.data(), text.size(), 0);
	close(file);
	REQUIRE(n == static_cast<ssize_t>(text.size()));
	return text;
}
