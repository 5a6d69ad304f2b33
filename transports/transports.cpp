// The transports of this build. A new one is a folder, its sources in Makefile.am, and a line here.
#include <config.h> // HAVE_VERBS

#include "transports/transport.hpp"

#include <cstring>

#include "base/report/report.hpp"

namespace pt2p {

namespace shm {
extern const TransportTable shm_table;
}
namespace rc {
extern const TransportTable rc_table;
}
namespace dct {
extern const TransportTable dct_table;
}
namespace ud {
extern const TransportTable ud_table;
}
extern const TransportTable self_table;

const TransportTable *const transport_tables[] = {
    &self_table,   &shm::shm_table,
#ifdef HAVE_VERBS
    &rc::rc_table, &dct::dct_table, &ud::ud_table,
#endif
    nullptr,
};

void check_table(const TransportTable &table)
{
	const bool fits = (table.capabilities & cap_send) == (table.send ? cap_send : 0u) &&
	                  (table.capabilities & cap_get) == (table.get ? cap_get : 0u) &&
	                  (table.capabilities & cap_put) == (table.put ? cap_put : 0u) &&
	                  (table.capabilities & cap_atomic) == (table.atomic ? cap_atomic : 0u) && table.open;
	if (!fits)
		throw Error(PT2P_ERR_INTERNAL, format("transport %s: capabilities and operations disagree", table.name));
}

// A rank's blob is a sequence of parts: name, zero, length (4 bytes, this host's order), bytes.
void add_address_part(std::string &blob, const char *name, const std::string &part)
{
	const auto length = static_cast<uint32_t>(part.size());
	blob.append(name, std::strlen(name) + 1);
	blob.append(reinterpret_cast<const char *>(&length), sizeof length);
	blob += part;
}

std::string address_part(std::string_view blob, std::string_view name)
{
	while (!blob.empty()) {
		const size_t end = blob.find('\0');
		if (end == blob.npos || blob.size() - end - 1 < sizeof(uint32_t))
			break;
		uint32_t length;
		std::memcpy(&length, blob.data() + end + 1, sizeof length);
		const std::string_view rest = blob.substr(end + 1 + sizeof length);
		if (length > rest.size())
			break;
		if (blob.substr(0, end) == name)
			return std::string(rest.substr(0, length));
		blob = rest.substr(length);
	}
	return {};
}

namespace {

constexpr const char *secret_part = "secret";

} // namespace

void add_secret(std::string &blob, const Secret &secret)
{
	add_address_part(blob, secret_part, {reinterpret_cast<const char *>(&secret), sizeof secret});
}

Secret secret_in(std::string_view blob)
{
	const std::string part = address_part(blob, secret_part);
	Secret secret;
	if (part.size() != sizeof secret)
		throw Error(PT2P_ERR_UNREACHABLE, "its address is of another version of libpt2p");
	std::memcpy(&secret, part.data(), sizeof secret);
	return secret;
}

} // namespace pt2p
