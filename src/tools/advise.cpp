// SPDX-License-Identifier: BSD-3-Clause
#include "tools/advise.hpp"

#include <cstdio>
#include <string_view>

#include "base/config/numbers.hpp"
#include "base/report/report.hpp"
#include "pt2p.h"
#include "rpc/laws/advice.hpp"
#include "tools/json.hpp"
#include "tools/rdma_devices.hpp"

namespace pt2p {

using namespace rpc::laws;

namespace {

constexpr const char *words_text =
    "m threads (s) servers window bytes (reply) input handler shape device initiators qps_callers "
    "qps_servers message_bytes";

struct Question {
	CallLoad load;
	bool servers_given = false;
	const DeviceClass *device = nullptr;
	std::string where; // the class of the device comes from
};

std::string names_of_classes()
{
	std::string names;
	for (const DeviceClass &c : device_classes())
		names += (names.empty() ? "" : ", ") + std::string(c.name);
	return names;
}

// "" or what is wrong.
std::string read_shape(std::string_view value, CallLoad &load)
{
	if (value == "m:1" || value == "M:1")
		load.shape = Shape::many_to_one;
	else if (value == "1:m" || value == "1:M")
		load.shape = Shape::one_to_many;
	else if (value == "m:m" || value == "M:M")
		load.shape = Shape::many_to_many;
	else
		return "m:1, 1:m or m:m";
	return "";
}

std::string read_number(std::string_view name, std::string_view value, Question &question)
{
	CallLoad &load = question.load;
	const auto counted = [&](uint32_t &to) -> std::string {
		int64_t n;
		if (tunables::parse_number(value, std::span(&tunables::byte_scales[3], 1), false, n) !=
		        tunables::Number::good ||
		    n < 0 || n > UINT32_MAX)
			return "not a number";
		to = static_cast<uint32_t>(n);
		return "";
	};
	const auto bytes = [&](size_t &to) -> std::string {
		int64_t n;
		if (tunables::parse_number(value, tunables::byte_scales, false, n) != tunables::Number::good || n < 0)
			return "not a number of bytes";
		to = static_cast<size_t>(n);
		return "";
	};
	if (name == "m")
		return counted(load.nodes);
	if (name == "s" || name == "threads")
		return counted(load.threads);
	if (name == "servers") {
		question.servers_given = true;
		return counted(load.servers);
	}
	if (name == "window")
		return counted(load.window);
	if (name == "initiators")
		return counted(load.initiators);
	if (name == "qps_callers")
		return counted(load.caller_qps);
	if (name == "qps_servers")
		return counted(load.server_qps);
	if (name == "bytes" || name == "reply")
		return bytes(load.reply);
	if (name == "input")
		return bytes(load.input);
	if (name == "message_bytes")
		return bytes(load.message_bytes);
	if (name == "handler") {
		int64_t ns;
		if (tunables::parse_number(value, tunables::time_scales, true, ns) != tunables::Number::good || ns < 0)
			return "not a time, such as 500ns or 2us";
		load.handler = static_cast<double>(ns);
		return "";
	}
	return format("no such word; there are: %s", words_text);
}

// "" or what is wrong with the word.
std::string read_word(std::string_view word, Question &question)
{
	const size_t equals = word.find('=');
	if (equals == std::string_view::npos)
		return "not NAME=VALUE";
	const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
	if (name == "shape")
		return read_shape(value, question.load);
	if (name != "device")
		return read_number(name, value, question);
	question.device = device_class(value);
	question.where = "given";
	return question.device ? "" : "not known; there are " + names_of_classes();
}

// The class of the first device of this host that has one.
void find_device(Question &question)
{
	for (const RdmaDevice &device : read_rdma_devices().devices)
		if (const DeviceClass *found = class_of_part(device.part); found && !question.device) {
			question.device = found;
			question.where = "as " + device.name;
		}
}

std::string rate_text(double rate)
{
	return rate < 1e5 ? format("%.2f k/s", rate / 1e3) : format("%.2f M/s", rate / 1e6);
}

std::string load_text(const Question &question)
{
	const CallLoad &load = question.load;
	const std::string ranks = counted(load.threads, "rank");
	const std::string who =
	    load.shape == Shape::many_to_one
	        ? format("%s of each of %s ask%s one node, which has %s for them", ranks.c_str(),
	                 counted(load.nodes, "node").c_str(), load.threads == 1 && load.nodes == 1 ? "s" : "",
	                 counted(load.servers, "server").c_str())
	    : load.shape == Shape::one_to_many ? format("%s of one node ask%s %s each", ranks.c_str(),
	                                                load.threads == 1 ? "s" : "", counted(load.nodes, "node").c_str())
	                                       : format("%s of each of %u nodes ask%s all other nodes", ranks.c_str(),
	                                                load.nodes, load.threads == 1 ? "s" : "");
	return format("%s; input %zu bytes, reply %zu bytes, handler %.0f ns, %u under way of a rank to another; %s (%s)",
	              who.c_str(), load.input, load.reply, load.handler, load.window, question.device->name,
	              question.where.c_str());
}

void print(const Question &question, const std::vector<Advice> &all)
{
	puts(load_text(question).c_str());
	size_t n = 0;
	for (const Advice &one : all)
		printf("%2zu. %-20s %10s  %s\n%36s%s\n", ++n, text_of(one.way).c_str(), rate_text(one.rate).c_str(),
		       one.reason.c_str(), "",
		       one.way.get ? (settings_of(one.way, question.load) + ", by pt2p_get").c_str()
		                   : settings_of(one.way, question.load).c_str());
}

void print_json(const Question &question, const std::vector<Advice> &all)
{
	Json json;
	json.open(nullptr, '{');
	json.add("version", pt2p_version());
	json.add("load", load_text(question));
	json.add("device", question.device->name);
	json.open("advice", '[');
	for (const Advice &one : all) {
		json.open(nullptr, '{');
		json.add("way", text_of(one.way));
		json.number("rate", one.rate);
		json.add("reason", one.reason);
		json.add("settings", settings_of(one.way, question.load));
		json.close('}');
	}
	json.close(']');
	json.close('}');
	puts(json.text().c_str());
}

int refuse(const std::string &text)
{
	fprintf(stderr, "pt2p_info: --advise: %s\n", text.c_str());
	return 2;
}

} // namespace

int advise(const std::vector<std::string> &words, bool as_json)
{
	Question question;
	question.load.reply = 32;
	for (const std::string &word : words)
		if (const std::string wrong = read_word(word, question); !wrong.empty())
			return refuse(word + ": " + wrong);
	if (!question.servers_given)
		question.load.servers = question.load.threads;
	if (const char *wrong = wrong_load(question.load))
		return refuse(wrong);
	if (!question.device)
		find_device(question);
	if (!question.device)
		return refuse("this host has no device whose class is known; device= names one: " + names_of_classes());
	const std::vector<Advice> all = rpc::laws::advise(question.load, *question.device);
	as_json ? print_json(question, all) : print(question, all);
	return 0;
}

} // namespace pt2p
