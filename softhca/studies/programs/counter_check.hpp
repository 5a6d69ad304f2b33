// A complete check of what clients have seen of a counter that gives out 0, 1, 2, ...: whether each draw can have taken
// place at one moment between its begin and its end. n draws take n log n steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace study {

struct Draw {
	uint64_t number;
	double began, ended; // by one clock
};

// Empty, or what is wrong with the history. Draws that touch each other in time may have overlapped.
inline std::string wrong_draw(std::vector<Draw> history)
{
	std::sort(history.begin(), history.end(), [](const Draw &a, const Draw &b) { return a.number < b.number; });
	// Numbers tell the order of the draws, so the earliest moment for each is the last begin so far.
	double moment = 0;
	for (size_t i = 0; i < history.size(); ++i) {
		const Draw &draw = history[i];
		if (draw.number != i)
			return (draw.number > i ? "nobody has drawn " + std::to_string(i)
			                        : std::to_string(draw.number) + " was drawn twice");
		moment = i ? std::max(moment, draw.began) : draw.began;
		if (draw.ended < moment)
			return std::to_string(i) + " was drawn before a smaller number was asked for";
	}
	return {};
}

} // namespace study
