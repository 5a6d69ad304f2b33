// SPDX-License-Identifier: BSD-3-Clause
// Writes the manual pages that are made from tables: man_tables tunables | errors > PAGE.
#include <cstdio>
#include <string>
#include <string_view>

#include "base/config/config.hpp"
#include "base/report/report.hpp"
#include "tools/rdma_environment.hpp"

namespace {

constexpr const char *page_date = "November 21, 2026";

const pt2p_status_t codes[] = {
#define PT2P_STATUS(name, code, text, cause, remedy) PT2P_##name,
#include "base/report/status.def"
#undef PT2P_STATUS
};

// Running text: one sentence a line and no line beyond 78 columns, as mandoc wants it.
std::string prose(std::string_view text)
{
	std::string out, line;
	auto flush = [&] {
		if (line.empty())
			return;
		if (line.front() == '.' || line.front() == '\'')
			out += "\\&";
		out += line + "\n";
		line.clear();
	};
	while (!text.empty()) {
		auto blank = text.find(' ');
		std::string_view plain = text.substr(0, blank);
		text.remove_prefix(blank == text.npos ? text.size() : blank + 1);
		if (plain.empty())
			continue;
		std::string word;
		for (char c : plain) {
			if (c == '\\')
				word += "\\e";
			else if (c == '-' && plain.starts_with("--"))
				word += "\\-";
			else if (c == '(' && !word.empty())
				word += "\\&("; // not the mark-up of a function
			else
				word += c;
		}
		if (!line.empty() && line.size() + 1 + word.size() > 78)
			flush();
		line += (line.empty() ? "" : " ") + word;
		if (plain.back() == '.')
			flush();
	}
	flush();
	return out;
}

// A one-line help or a text of a status, as a sentence.
std::string sentence(std::string_view text)
{
	std::string out(text);
	if (!out.empty() && out.front() >= 'a' && out.front() <= 'z' && !out.starts_with("pt2p_"))
		out.front() = static_cast<char>(out.front() - 'a' + 'A');
	if (!out.ends_with('.'))
		out += '.';
	return out;
}

std::string how_written(const pt2p::TunableInfo &tunable)
{
	std::string_view kind = tunable.kind, unit = tunable.unit;
	const std::string rule = std::string(*tunable.rule ? ", " : "") + tunable.rule;
	if (kind == "boolean")
		return "1, yes, on, true, or 0, no, off, false";
	if (kind.starts_with("bytes"))
		return tunable.range + ", bytes" + rule;
	if (kind == "duration")
		return tunable.range + ", a time";
	if (kind == "integer" || kind == "power")
		return tunable.range + ", " + tunable.unit + rule;
	if (kind != "text")
		return tunable.range;
	if (unit == "list")
		return "names, split by commas";
	std::string out;
	for (char c : unit)
		out += c == '|' ? std::string(", ") : std::string(1, c);
	return out;
}

// pt2p_tunables(7), but for its tables.
constexpr const char *tunables_begin = R"(
.Dt PT2P_TUNABLES 7
.Os
.Sh NAME
.Nm pt2p_tunables
.Nd everything that can be set in libpt2p
.Sh DESCRIPTION
A tunable is set, from the strongest to the weakest, by
.Bl -enum
.It
the
.Va tunables
list in the options of
.Fn pt2p_init ,
.It
an environment variable,
.It
a line of the configuration file,
.It
its built-in default.
.El
.Pp
The configuration file is the one that
.Ev PT2P_CONF
names; without it, the first that exists of
.Pa ./pt2p.conf ,
.Pa ~/.pt2p.conf
and
.Pa /etc/pt2p.conf .
Only one file is read.
Each of its lines is empty or has the form
.Pp
.Dl PT2P_NAME = value
.Pp
A
.Sq #
at the start of a line or after a blank begins a comment.
.Pp
An unknown name that begins with
.Ev PT2P_ ,
and a value that is malformed or out of its range, are errors wherever they
stand:
.Fn pt2p_init
returns
.Dv PT2P_ERR_TUNABLE
and
.Fn pt2p_last_error
tells the place, the nearest valid name or the range.
A name may stand only once in the file.
.Pp
.Ic pt2p_info \-\-config
shows the value of each tunable and where it came from.
.Ss How values are written
Numbers are decimal.
Numbers of bytes may end in
.Sy k ,
.Sy m
or
.Sy g ,
powers of 1024.
Times end in
.Sy ns ,
.Sy us ,
.Sy ms
or
.Sy s ,
may have a fraction, and are seconds when no unit is given.
Words may be written in upper or lower case.
.Ss The tunables
.Bl -tag -width Ds
)";

constexpr const char *tunables_below = R"(.El
.Ss Below libpt2p
These are not libpt2p's: libmlx5 reads them in every process that opens a device
of it, and they change what is measured.
.Ic pt2p_info \-\-devices
tells of those that are set.
.Bl -tag -width Ds
)";

constexpr const char *tunables_end = R"(.El
.Sh ENVIRONMENT
.Bl -tag -width Ds
.It Ev PT2P_CONF
Path of the configuration file;
.Pa /dev/null
for none.
It is an error when the file cannot be read.
.It Ev HOME
Where
.Pa .pt2p.conf
is looked for.
.El
.Sh FILES
.Bl -tag -width Ds -compact
.It Pa ./pt2p.conf
.It Pa ~/.pt2p.conf
.It Pa /etc/pt2p.conf
The configuration file, see above.
.El
.Sh EXAMPLES
For one run, with Open MPI's launcher:
.Pp
.Dl $ mpirun \-x PT2P_EAGER_MAX=16k \-x PT2P_SUMMARY=yes \-n 4 ./program
.Pp
For every run of a user, in
.Pa ~/.pt2p.conf :
.Bd -literal -offset indent
# This machine is shared: leave the cores to others soon.
PT2P_SPIN_TIME = 5us
PT2P_YIELD_TIME = 50us
.Ed
.Sh SEE ALSO
.Xr pt2p_info 1 ,
.Xr pt2p_init 3 ,
.Xr pt2p 7 ,
.Xr pt2p_errors 7
)";

void print_tunables()
{
	std::string out = ".Dd ";
	out += page_date;
	out += tunables_begin;
	for (const pt2p::TunableInfo &tunable : pt2p::standard_tunables()) {
		out += std::string(".It Ev ") + tunable.name + "\n";
		out += prose(sentence(tunable.line));
		out += prose(tunable.help);
		out += ".br\n" + prose("Allowed: " + how_written(tunable) + ".");
		out += prose("Default: " + tunable.standard + ".");
	}
	out += tunables_below;
	for (const pt2p::RdmaVariable &variable : pt2p::rdma_variables) {
		out += std::string(".It Ev ") + variable.name + "\n";
		out += prose(variable.effect);
		out += ".br\n" + prose(std::string("Default: ") + variable.standard + ".");
	}
	out += tunables_end;
	fputs(out.c_str(), stdout);
}

void print_errors()
{
	std::string out = ".Dd ";
	out += page_date;
	out += R"(
.Dt PT2P_ERRORS 7
.Os
.Sh NAME
.Nm pt2p_errors
.Nd status codes of libpt2p, their causes and remedies
.Sh DESCRIPTION
A function of libpt2p that can fail returns a
.Vt pt2p_status_t .
.Dv PT2P_OK
is zero, everything else is a failure.
The numbers never change.
.Pp
.Fn pt2p_strerror
gives the short text of a status.
.Fn pt2p_last_error
explains the calling thread's latest failure in full, in the form
.Pp
.Dl text: explanation. Remedy: remedy
.Pp
where the explanation names what the table below cannot know: the peer, the
operation, the bytes, the tunable, the system's own error.
.Ss The status codes
.Bl -tag -width Ds
)";
	for (pt2p_status_t code : codes) {
		const pt2p::StatusInfo &info = pt2p::status_info(code);
		out += ".It Dv " + std::string(info.name) + " Pq " + std::to_string(static_cast<int>(code)) + "\n";
		out += prose(sentence(info.text));
		out += prose(info.cause);
		if (code != PT2P_OK)
			out += ".br\n" + prose(std::string("Remedy: ") + info.remedy);
	}
	out += R"(.El
.Sh SEE ALSO
.Xr pt2p_info 1 ,
.Xr pt2p_strerror 3 ,
.Xr pt2p 7 ,
.Xr pt2p_tunables 7
)";
	fputs(out.c_str(), stdout);
}

} // namespace

int main(int count, char **arguments)
{
	std::string_view page = count == 2 ? arguments[1] : "";
	if (page == "tunables") {
		print_tunables();
	} else if (page == "errors") {
		print_errors();
	} else {
		fputs("usage: man_tables tunables | errors\n", stderr);
		return 2;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
