// The costs of a device of the model, by name (profile.def).
#pragma once

#include <string>

namespace softhca::model {

struct Profile {
#define PARAMETER(name, unit, connectx3, connectib, connectx5, connectx6, source) double name;
#include "softhca/model/profile.def"
#undef PARAMETER
};

// "connectx5" or "connectx6,pcie_read=500,units=8": a profile and what is different. Throws std::runtime_error with the
// cause.
Profile read_profile(const std::string &text);
// One line for each parameter: name, value, unit, source.
std::string describe(const Profile &profile);

} // namespace softhca::model
