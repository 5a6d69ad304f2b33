// SPDX-License-Identifier: BSD-3-Clause
// Writes JSON: objects and lists opened and closed by hand, members in the order in which they are added.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace pt2p {

class Json {
public:
	// Opens an object '{' or a list '['; `key` is null inside a list and at the top.
	void open(const char *key, char bracket)
	{
		begin(key);
		text_ += bracket;
		empty_ = true;
		++depth_;
	}
	void close(char bracket)
	{
		--depth_;
		if (!empty_)
			line();
		text_ += bracket;
		empty_ = false;
	}
	void add(const char *key, std::string_view value)
	{
		begin(key);
		quote(value);
	}
	void add(const char *key, const char *value) { add(key, std::string_view(value)); }
	void add(const char *key, bool value)
	{
		begin(key);
		text_ += value ? "true" : "false";
	}
	void number(const char *key, double value)
	{
		begin(key);
		char digits[32];
		snprintf(digits, sizeof digits, "%.9g", value);
		text_ += digits;
	}
	const std::string &text() const { return text_; }

private:
	void line()
	{
		text_ += '\n';
		text_.append(2 * depth_, ' ');
	}
	void begin(const char *key)
	{
		if (!empty_)
			text_ += ',';
		if (depth_ > 0)
			line();
		empty_ = false;
		if (key != nullptr) {
			quote(key);
			text_ += ": ";
		}
	}
	void quote(std::string_view value)
	{
		text_ += '"';
		for (char c : value) {
			auto byte = static_cast<unsigned char>(c);
			if (c == '"' || c == '\\') {
				text_ += '\\';
				text_ += c;
			} else if (byte < 0x20) {
				char code[8];
				snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(byte));
				text_ += code;
			} else {
				text_ += c;
			}
		}
		text_ += '"';
	}

	std::string text_;
	size_t depth_ = 0;
	bool empty_ = true;
};

} // namespace pt2p
