#include "route/groups/host_names.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "base/report/report.hpp"

namespace pt2p {

namespace {

constexpr const char *blanks = " \t\r";
constexpr const char *digits = "0123456789";

} // namespace

std::string trimmed(const std::string &text)
{
	const size_t begin = text.find_first_not_of(blanks);
	return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

bool read_number(const std::string &text, int &number)
{
	const char *const end = text.data() + text.size();
	const auto [stop, error] = std::from_chars(text.data(), end, number);
	return !text.empty() && text[0] != '-' && stop == end && error == std::errc();
}

bool read_range(const std::string &text, int &first, int &last)
{
	const size_t dash = text.find('-');
	if (!read_number(trimmed(text.substr(0, dash)), first))
		return false;
	last = first;
	return dash == std::string::npos || read_number(trimmed(text.substr(dash + 1)), last);
}

void each_item(const std::string &list, const std::function<void(const std::string &)> &see)
{
	int depth = 0;
	std::string item;
	for (const char c : list + ',') {
		depth += c == '[' ? 1 : c == ']' ? -1 : 0;
		const bool blank = c == ' ' || c == '\t' || c == '\r';
		if (depth > 0 || (c != ',' && !blank))
			item += c;
		else if (!item.empty())
			see(std::exchange(item, ""));
	}
	if (!item.empty())
		see(item);
}

bool each_name(const std::string &name, const std::function<void(const std::string &)> &see)
{
	const size_t open = name.find('['), close = name.find(']');
	if (open == std::string::npos && close == std::string::npos) {
		see(name);
		return true;
	}
	if (open == std::string::npos || close == std::string::npos || close < open)
		return false;
	const std::string before = name.substr(0, open), after = name.substr(close + 1);
	for (size_t begin = open + 1; begin <= close;) {
		const size_t end = std::min(name.find(',', begin), close);
		const std::string range = name.substr(begin, end - begin);
		int first, last;
		if (!read_range(range, first, last) || last < first)
			return false;
		// As many digits as the first number is written with.
		const int width = static_cast<int>(std::min<size_t>(range.find_first_not_of(digits), range.size()));
		for (int64_t i = first; i <= last; i++)
			if (!each_name(before + format("%0*d", width, static_cast<int>(i)) + after, see))
				return false;
		begin = end + 1;
	}
	return true;
}

} // namespace pt2p
