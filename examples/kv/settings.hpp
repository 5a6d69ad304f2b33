// SPDX-License-Identifier: BSD-3-Clause
//
// The words of a command, of which some are name=value, and what is wrong with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kv {

// What the user has to correct.
class Mistake : public std::runtime_error {
	using std::runtime_error::runtime_error;
};

// A number, perhaps with a unit behind it: k, m, g (kilo, its square, its cube), % or s.
inline double number(const std::string &name, const std::string &text, double least, double most, double kilo = 1000)
{
	char *end = nullptr;
	double value = std::strtod(text.c_str(), &end);
	const std::string unit = end;
	value *= unit == "k" ? kilo : unit == "m" ? kilo * kilo : unit == "g" ? kilo * kilo * kilo : 1;
	if (end == text.c_str() || unit.size() > 1 || unit.find_first_not_of("kmg%s") != std::string::npos)
		throw Mistake(name + ": \"" + text + "\" is not a number");
	if (!(value >= least && value <= most)) {
		char range[80];
		std::snprintf(range, sizeof range, "%.15g ... %.15g", least, most);
		throw Mistake(name + ": " + text + " is not in " + range);
	}
	return value;
}

class Settings {
public:
	explicit Settings(std::string_view words)
	{
		while (!words.empty()) {
			const std::string_view word = words.substr(0, words.find(' '));
			words.remove_prefix(std::min(words.size(), word.size() + 1));
			if (word.empty())
				continue;
			const size_t sign = word.find('=');
			if (sign == std::string_view::npos)
				throw Mistake("\"" + std::string(word) + "\" is not name=value");
			given_[std::string(word.substr(0, sign))] = word.substr(sign + 1);
		}
	}

	// Each takes one out. The value is left as it is when there is none with that name.
	template <class T>
	void take(const std::string &name, T &value, double least, double most, double kilo = 1000)
	{
		known_ += " " + name;
		if (const std::string text = extract(name); !text.empty())
			value = static_cast<T>(number(name, text, least, most, kilo));
	}
	void take(const std::string &name, bool &value, const std::string &yes = "yes", const std::string &no = "no")
	{
		known_ += " " + name;
		const std::string text = extract(name);
		if (!text.empty() && text != yes && text != no)
			throw Mistake(name + ": \"" + text + "\" is neither " + yes + " nor " + no);
		if (!text.empty())
			value = text == yes;
	}
	// Takes name=word, if that is what was given.
	bool take_word(const std::string &name, const std::string &word)
	{
		return given_.contains(name) && given_[name] == word && given_.erase(name);
	}
	// Nothing may be left.
	void finish() const
	{
		if (!given_.empty())
			throw Mistake("there is no setting \"" + given_.begin()->first + "\". There are:" + known_);
	}

private:
	std::string extract(const std::string &name)
	{
		const auto found = given_.find(name);
		if (found == given_.end())
			return {};
		const std::string text = found->second;
		given_.erase(found);
		if (text.empty())
			throw Mistake(name + " has no value");
		return text;
	}
	std::map<std::string, std::string> given_;
	std::string known_;
};

} // namespace kv
