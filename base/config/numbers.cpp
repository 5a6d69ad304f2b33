#include "base/config/numbers.hpp"

#include <algorithm>
#include <limits>

#include "base/config/text.hpp"

namespace pt2p::tunables {

std::string scaled(int64_t value, std::span<const Scale> scales)
{
	for (const Scale &scale : scales)
		if (value != 0 && value % scale.factor == 0)
			return std::to_string(value / scale.factor) + std::string(scale.suffix);
	return "0";
}

Number parse_number(std::string_view text, std::span<const Scale> scales, bool fractions, int64_t &value)
{
	bool negative = !text.empty() && text.front() == '-';
	if (!text.empty() && (text.front() == '-' || text.front() == '+'))
		text.remove_prefix(1);
	auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
	auto whole_end = std::find_if_not(text.begin(), text.end(), is_digit);
	std::string_view whole = text.substr(0, static_cast<size_t>(whole_end - text.begin()));
	text.remove_prefix(whole.size());
	std::string_view fraction;
	if (!text.empty() && text.front() == '.') {
		if (!fractions)
			return Number::malformed;
		text.remove_prefix(1);
		auto end = std::find_if_not(text.begin(), text.end(), is_digit);
		fraction = text.substr(0, static_cast<size_t>(end - text.begin()));
		if (fraction.empty())
			return Number::malformed;
		text.remove_prefix(fraction.size());
	}
	if (whole.empty())
		return Number::malformed;
	std::string suffix = lowered(trimmed(text));
	auto scale = std::find_if(std::begin(scales), std::end(scales), [&](const Scale &s) { return s.suffix == suffix; });
	if (scale == std::end(scales))
		return Number::malformed;

	constexpr int64_t largest = std::numeric_limits<int64_t>::max();
	int64_t total = 0;
	for (char c : whole) {
		int64_t digit = c - '0';
		if (total > (largest - digit) / 10)
			return Number::too_large;
		total = total * 10 + digit;
	}
	if (total > largest / scale->factor)
		return Number::too_large;
	total *= scale->factor;
	int64_t place = scale->factor;
	for (char c : fraction) {
		if (c != '0' && place % 10 != 0)
			return Number::malformed;
		place /= 10;
		int64_t part = place * (c - '0');
		if (total > largest - part)
			return Number::too_large;
		total += part;
	}
	value = negative ? -total : total;
	return Number::good;
}

} // namespace pt2p::tunables
