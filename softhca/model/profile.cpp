#include "softhca/model/profile.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace softhca::model {

namespace {

struct Row {
	const char *name, *unit;
	double value[4];
	const char *source;
	double Profile::*member;
};
constexpr const char *profiles[] = {"connectx3", "connectib", "connectx5", "connectx6"};
constexpr Row rows[] = {
#define PARAMETER(name, unit, connectx3, connectib, connectx5, connectx6, source)                                      \
	{#name, unit, {connectx3, connectib, connectx5, connectx6}, source, &Profile::name},
#include "softhca/model/profile.def"
#undef PARAMETER
};

} // namespace

Profile read_profile(const std::string &text)
{
	std::istringstream in(text);
	std::string part;
	std::getline(in, part, ',');
	size_t which = 0;
	while (which < std::size(profiles) && part != profiles[which])
		++which;
	if (which == std::size(profiles))
		throw std::runtime_error("there is no profile " + part +
		                         "; there are connectx3, connectib, connectx5, connectx6");
	Profile profile;
	for (const Row &row : rows)
		profile.*row.member = row.value[which];
	while (std::getline(in, part, ',')) {
		const size_t equals = part.find('=');
		const std::string name = part.substr(0, equals);
		const Row *found = nullptr;
		for (const Row &row : rows)
			if (name == row.name)
				found = &row;
		if (!found)
			throw std::runtime_error("a profile has no parameter " + name);
		const char *value = equals == std::string::npos ? "" : part.c_str() + equals + 1;
		char *end;
		profile.*found->member = std::strtod(value, &end);
		if (end == value || *end || !(profile.*found->member >= 0))
			throw std::runtime_error("parameter " + part + ": the value is to be a number, not negative");
	}
	if (profile.units < 1 || profile.unit_overlap < 1 || profile.receive_burst < 1 || profile.unit_stay < 1 ||
	    profile.wire_rate <= 0 || profile.pcie_lane <= 0 || profile.pcie_lanes < 1 || profile.pcie_read_piece < 1 ||
	    profile.pcie_write_piece < 1)
		throw std::runtime_error("a device has at least one processing unit, lane, read in flight, receive for each "
		                         "read and packet for each stay, and rates and pieces above zero");
	return profile;
}

std::string describe(const Profile &profile)
{
	std::string text;
	for (const Row &row : rows) {
		char line[256];
		std::snprintf(line, sizeof line, "%-18s %10g %-8s %s\n", row.name, profile.*row.member, row.unit, row.source);
		text += line;
	}
	return text;
}

} // namespace softhca::model
