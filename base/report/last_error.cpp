// SPDX-License-Identifier: BSD-3-Clause
// The latest explanation of each thread. Memory is reserved beforehand, so that running out of memory can be explained,
// too.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/report/report.hpp"

namespace pt2p {

namespace {

// A thread remembers the failures of so many contexts, and forgets first the one that failed longest ago.
// Small on purpose: thread-local memory comes out of the stacks of the program's threads.
constexpr size_t remembered_contexts = 8;

template <size_t size>
struct Explanation {
	const void *context = nullptr;
	uint64_t turn = 0; // 0: free
	char text[size] = {};
};

struct Memory {
	Explanation<2048> without_context; // longer: pt2p_finalize lists what is unfinished
	Explanation<1024> contexts[remembered_contexts];
	uint64_t turn = 0;
};

thread_local Memory memory;

// Cuts the explanation where it is too long; the remedy always fits.
template <size_t size>
void explain(char (&out)[size], pt2p_status_t status, std::string_view explanation)
{
	const StatusInfo &info = status_info(status);
	while (explanation.ends_with('\n') || explanation.ends_with(' '))
		explanation.remove_suffix(1);
	const char *between = explanation.empty() ? "" : ": ";
	bool ended = explanation.ends_with('.') || explanation.ends_with('?') || explanation.ends_with('!');
	const char *dot = ended ? "" : ".";
	size_t rest = strlen(info.text) + strlen(info.remedy) + sizeof ": . Remedy: ";
	size_t room = size > rest ? size - rest : 0;
	if (explanation.size() > room) {
		constexpr std::string_view cut = " ... (cut)";
		dot = ".";
		explanation = explanation.substr(0, room > cut.size() ? room - cut.size() : 0);
		snprintf(out, size, "%s%s%.*s%s%s Remedy: %s", info.text, between, static_cast<int>(explanation.size()),
		         explanation.data(), cut.data(), dot, info.remedy);
		return;
	}
	snprintf(out, size, "%s%s%.*s%s Remedy: %s", info.text, between, static_cast<int>(explanation.size()),
	         explanation.data(), dot, info.remedy);
}

} // namespace

void set_last_error(const void *context, pt2p_status_t status, std::string_view explanation)
{
	if (context == nullptr) {
		memory.without_context.turn = ++memory.turn;
		explain(memory.without_context.text, status, explanation);
		return;
	}
	auto slot = std::find_if(std::begin(memory.contexts), std::end(memory.contexts),
	                         [&](const auto &s) { return s.turn != 0 && s.context == context; });
	if (slot == std::end(memory.contexts))
		slot = std::min_element(std::begin(memory.contexts), std::end(memory.contexts),
		                        [](const auto &a, const auto &b) { return a.turn < b.turn; });
	slot->context = context;
	slot->turn = ++memory.turn;
	explain(slot->text, status, explanation);
}

const char *last_error(const void *context)
{
	if (context == nullptr)
		return memory.without_context.text;
	for (const auto &slot : memory.contexts)
		if (slot.turn != 0 && slot.context == context)
			return slot.text;
	return "";
}

void forget_last_error(const void *context)
{
	for (auto &slot : memory.contexts)
		if (slot.turn != 0 && slot.context == context)
			slot.turn = 0;
}

} // namespace pt2p
