// Which configuration file counts, and its text.
#pragma once

#include <string>

namespace pt2p::tunables {

inline constexpr const char *file_variable = "PT2P_CONF";

struct File {
	std::string path;
	std::string text;
};

// Reads the file that PT2P_CONF names, else the first that exists of the usual ones; false: there is none. Throws
// Error(PT2P_ERR_TUNABLE).
bool find_file(File &file);

} // namespace pt2p::tunables
