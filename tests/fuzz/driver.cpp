// SPDX-License-Identifier: BSD-3-Clause
// Feeds a libFuzzer target where there is no libFuzzer.
//
//   [--seconds N] [--seed N] [FILE ...]    without files: random inputs
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
// When something breaks, the seed of the input is printed: --seed S --seconds 0 repeats it.
extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace {

uint64_t current_seed;

void tell_seed()
{
	fprintf(stderr, "the input was that of --seed %llu --seconds 0\n", static_cast<unsigned long long>(current_seed));
}

void on_signal(int number)
{
	tell_seed();
	raise(number);
}

} // namespace

int main(int argc, char **argv)
{
	double seconds = 5;
	uint64_t seed = 1;
	bool files = false;
	for (int i = 1; i < argc; ++i) {
		if (!std::strcmp(argv[i], "--seconds") && i + 1 < argc) {
			seconds = std::strtod(argv[++i], nullptr);
		} else if (!std::strcmp(argv[i], "--seed") && i + 1 < argc) {
			seed = std::strtoull(argv[++i], nullptr, 0);
		} else {
			std::ifstream file(argv[i], std::ios::binary);
			const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
			LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
			files = true;
		}
	}
	if (files)
		return 0;
	const auto start = std::chrono::steady_clock::now();
	for (int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) {
		struct sigaction action {};
		action.sa_handler = on_signal;
		action.sa_flags = static_cast<int>(SA_RESETHAND);
		sigaction(signal, &action, nullptr);
	}
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(tell_seed);
	uint64_t n = 0;
	for (;; ++n) {
		std::mt19937_64 random(seed + n);
		std::vector<uint8_t> bytes(16 + random() % 2500);
		for (uint8_t &b : bytes)
			b = static_cast<uint8_t>(random());
		current_seed = seed + n;
		LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
		if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >= seconds)
			break;
	}
	printf("%llu inputs, last seed %llu\n", static_cast<unsigned long long>(n + 1),
	       static_cast<unsigned long long>(seed + n));
	return 0;
}
