#include "base/config/config_file.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config/config.hpp"
#include "base/config/text.hpp"
#include "base/report/report.hpp"

namespace pt2p::tunables {

namespace {

// A configuration file above this is a mistake, such as a device or a core dump.
constexpr size_t file_limit = size_t{1} << 20;

[[noreturn]] void refuse_file(const std::string &path, bool named, const std::string &why)
{
	throw Error(PT2P_ERR_TUNABLE, format("configuration file %s%s: %s", quoted(path).c_str(),
	                                     named ? ", named by PT2P_CONF" : "", why.c_str()));
}

// False when there is no such file and nobody asked for it by name.
bool read_file(const std::string &path, bool named, File &file)
{
	struct stat status;
	if (stat(path.c_str(), &status) != 0) {
		if (named)
			refuse_file(path, named, "cannot be read, " + errno_text(errno));
		return false;
	}
	// A pipe could block for ever; one that was asked for by name is the user's own wish.
	if (!named && !S_ISREG(status.st_mode))
		refuse_file(path, named, "not a regular file");
	int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		refuse_file(path, named, "cannot be read, " + errno_text(errno));
	file.path = path;
	file.text.clear();
	std::array<char, 4096> piece;
	ssize_t n = 0;
	int error = 0;
	for (;;) {
		n = read(fd, piece.data(), piece.size());
		if (n < 0 && errno == EINTR)
			continue;
		error = n < 0 ? errno : 0;
		if (n <= 0 || file.text.size() > file_limit)
			break;
		file.text.append(piece.data(), static_cast<size_t>(n));
	}
	close(fd);
	if (error != 0)
		refuse_file(path, named, "cannot be read, " + errno_text(error));
	if (file.text.size() > file_limit)
		refuse_file(path, named, "longer than 1 MiB");
	return true;
}

} // namespace

bool find_file(File &file)
{
	if (const char *named = environment(file_variable)) {
		if (*named == '\0')
			throw Error(PT2P_ERR_TUNABLE, "PT2P_CONF is empty; it names the configuration file, /dev/null for none");
		return read_file(named, true, file);
	}
	if (read_file("./pt2p.conf", false, file))
		return true;
	const char *home = environment("HOME");
	if (home != nullptr && *home != '\0' && read_file(std::string(home) + "/.pt2p.conf", false, file))
		return true;
	return read_file("/etc/pt2p.conf", false, file);
}

} // namespace pt2p::tunables
