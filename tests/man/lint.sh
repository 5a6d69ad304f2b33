#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks the manual pages: mandoc finds nothing at level warning or above, every function of pt2p.h has a page, the
# synopses agree with the header, every PT2P_ name exists, references lead somewhere, and the examples compile.
# Run from the build tree, where the generated header and pages are.
top=${srcdir:-$(dirname "$0")/../..}
build=${top_builddir:-.}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
failures=0
checks=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

if ! command -v mandoc >/dev/null 2>&1; then
	echo "SKIP: mandoc is not installed (Debian package mandoc)"
	exit 77
fi

# Pages as they are installed, so that references among them resolve.
mkdir "$work/man1" "$work/man3" "$work/man7"
for n in 1 3 7; do
	cp "$top/man/man$n"/*."$n" "$work/man$n/" || exit 99
	for page in "$build/man/man$n"/*."$n"; do
		[ -f "$page" ] && cp -f "$page" "$work/man$n/"
	done
done
cd "$work" || exit 99
header=$OLDPWD/$top/include/pt2p.h
case $top in /*) header=$top/include/pt2p.h ;; esac
include=${header%/pt2p.h}
tables=${include%/include}/base
case $build in /*) ;; *) build=$OLDPWD/$build ;; esac
[ -f "$header" ] || { echo "ERROR: no $header"; exit 99; }
link_pages=$(grep -l '^\.so ' man?/*)
pages=$(grep -L '^\.so ' man?/*)

for page in $pages; do
	checks=$((checks + 1))
	mandoc -T lint -W warning "$page" >out 2>&1 || { cat out; fail "$page: mandoc"; }
	name=$(basename "$page")
	[ "$(sed -n 's/^\.Dt //p' "$page")" = "$(echo "${name%.*} ${name##*.}" | tr '[:lower:]' '[:upper:]')" ] ||
		fail "$page: .Dt does not agree with the file name"
done

for page in $link_pages; do
	checks=$((checks + 1))
	target=$(sed -n 's/^\.so //p' "$page")
	name=$(basename "$page" .3)
	grep -q "^\.Nm $name\( ,\)\{0,1\}\$" "$target" 2>/dev/null || fail "$page: $target does not describe $name"
done

# The headers without their comments.
awk '
	{ text = text $0 "\n" }
	END {
		while ((start = index(text, "/*")) > 0) {
			printf "%s", substr(text, 1, start - 1)
			text = substr(text, start + 2)
			text = substr(text, index(text, "*/") + 2)
		}
		printf "%s", text
	}' "$header" "$include/pt2p_onesided.h" "$include/pt2p_calls.h" "$include/pt2p_open.h" >header

# Functions are declared with their type and name at the start of a line.
functions=$(sed -n 's/^[a-z].*[ *]\(pt2p_[a-z0-9_]*\)(.*/\1/p' header | sort -u)
[ "$(echo "$functions" | wc -l)" -ge 30 ] || fail "too few functions found in pt2p.h: $functions"
for function in $functions; do
	checks=$((checks + 1))
	[ -f "man3/$function.3" ] || fail "$function has no page man3/$function.3"
done
for function in $(sed -n 's/^\.F[on] \(pt2p_[a-z0-9_]*\).*/\1/p' man3/*.3 | sort -u); do
	echo "$functions" | grep -qx "$function" || fail "$function has a page but is not in pt2p.h"
done

# Names of constants, tunables and statuses that pages use.
{
	sed -n 's/^PT2P_TUNABLE([^"]*"\(PT2P_[A-Z_]*\)".*/\1/p' "$tables/config/tunables.def"
	sed -n 's/^PT2P_STATUS(\([A-Z_]*\),.*/PT2P_\1/p' "$tables/report/status.def"
	grep -ho 'PT2P_[A-Z_]*[A-Z]' "$header" "$include/pt2p_onesided.h" "$include/pt2p_calls.h" \
		"$include/pt2p_open.h"
	echo PT2P_CONF
	echo PT2P_NAME
} | sort -u >known
for page in $pages; do
	checks=$((checks + 1))
	for name in $(grep -v '^\.Dt ' "$page" | sed 's/FI_PT2P_[A-Z]*//g' | grep -o 'PT2P_[A-Z_]*[A-Z]' | sort -u); do
		grep -qx "$name" known || fail "$page: there is no $name"
	done
done

# Numbers: where a page or the header gives a default, as in "(16 KiB unless it is set", it is that of the tunable named
# before.
awk -F', *' '/^PT2P_TUNABLE\((integer|power|bytes|bytes64|duration),/ { gsub(/"/, "", $3); print $3, $4 }' \
	"$tables/config/tunables.def" >defaults
[ "$(wc -l <defaults)" -ge 30 ] || fail "too few defaults found in tunables.def"
for page in $pages; do
	checks=$((checks + 1))
	sed 's/^\.[A-Z][a-z] //' "$page" | tr '\n' ' ' | awk '
		BEGIN {
			while ((getline line <"defaults") > 0) { split(line, words, " "); standard[words[1]] = words[2] }
			scale["KiB"] = 1024; scale["MiB"] = 1048576; scale["seconds"] = 1e9; scale["ms"] = 1e6; scale["us"] = 1e3
		}
		{
			while (match($0, /\([0-9]+ ?[A-Za-z]* unless it is set/)) {
				before = substr($0, 1, RSTART - 1)
				split(substr($0, RSTART + 1, RLENGTH - 1), told, " ")
				$0 = substr($0, RSTART + RLENGTH)
				name = before
				if (!sub(/.*PT2P_/, "PT2P_", name)) { print "a figure without a tunable: " told[1]; continue }
				sub(/[^A-Z0-9_].*/, "", name)
				value = told[1] * (told[2] in scale ? scale[told[2]] : 1)
				if (value != standard[name]) print name " is not " told[1] " " told[2] " but " standard[name]
			}
		}' >wrong
	[ ! -s wrong ] || fail "$page: $(cat wrong)"
done

# References among our pages. The generated pages exist in a build tree only.
for page in $pages; do
	checks=$((checks + 1))
	grep -h '^\.Xr pt2p' "$page" | sort -u | while read -r _ name section _; do
		[ -f "man$section/$name.$section" ] && continue
		[ "$name$section" = pt2p_tunables7 ] || [ "$name$section" = pt2p_errors7 ] || echo "$name($section)"
	done >missing
	[ -s missing ] && fail "$page refers to pages that are not there: $(tr '\n' ' ' <missing)"
done

# Structures that pages show are those of the header.
tr -s '[:space:]' ' ' <header >header-text
for page in $pages; do
	awk '
		/^typedef struct/ { text = ""; inside = 1 }
		inside { text = text $0 " " }
		/^}/ { if (inside) print text; inside = 0 }' "$page" | tr -s '[:blank:]' ' ' | sed 's/ $//' >structures
	while read -r structure; do
		checks=$((checks + 1))
		grep -qF -- "$structure" header-text || fail "$page: not so in pt2p.h: $structure"
	done <structures
done

# The options in a tool's help and those in its page are the same.
for tool in pt2p_info pt2p_perf softhca softhca_counters; do
	program=$build/$tool
	[ -f "$program" ] || program=$build/softhca/$tool
	[ -x "$program" ] && "$program" --help >help 2>&1 </dev/null || continue
	checks=$((checks + 1))
	sed -n 's/^\.It Fl Fl \([a-z-]*\).*/--\1/p' "man1/$tool.1" | sort -u >page-options
	sed -n 's/^ *\(--[a-z-]*\).*/\1/p' help | sort -u >help-options
	diff help-options page-options >out || { cat out; fail "$tool: options of --help (<) and of the page (>) differ"; }
done

# Synopses and examples are compiled. Each synopsis repeats prototypes of the header, so a difference is a conflict.
# Every literal block with an #include is an example.
compiler=${CC:-cc}
if ! command -v "${compiler%% *}" >/dev/null 2>&1; then
	echo "no C compiler: synopses and examples were not compiled"
elif [ ! -f "$build/include/pt2p_status.h" ] && [ ! -f "$include/pt2p_status.h" ]; then
	fail "no pt2p_status.h in $build/include: run this from the build tree, after make"
else
	compile() {
		checks=$((checks + 1))
		if grep -q 'pt2p\.hpp' "$1"; then
			${CXX:-c++} -std=c++20 -x c++ -Wall -Wextra -Werror -fsyntax-only -I"$build/include" -I"$include" "$1" >out 2>&1 ||
				{ cat out; fail "$2"; }
			return
		fi
		$compiler -std=c11 -Wall -Wextra -Werror -fsyntax-only -I"$build/include" -I"$include" "$1" >out 2>&1 ||
			{ cat out; fail "$2"; }
	}
	for page in $pages; do
		awk '
			/^\.Sh / { synopsis = ($2 == "SYNOPSIS") }
			!synopsis { next }
			/^\.In / { print "#include <" $2 ">" }
			/^\.Ft / { sub(/^\.Ft /, ""); type = $0 }
			/^\.Fn / { print type " " $2 "(" $3 ");" }
			/^\.Fo / { line = type " " $2 "("; comma = "" }
			/^\.Fa / { sub(/^\.Fa "/, ""); sub(/"$/, ""); line = line comma $0; comma = ", " }
			/^\.Fc/ { print line ");" }' "$page" >synopsis.c
		grep -q '^#include' synopsis.c && compile synopsis.c "$page: the synopsis disagrees with pt2p.h"
		rm -f example-*.c
		awk '
			/^\.Bd -literal/ { inside = 1; text = ""; next }
			/^\.Ed/ {
				if (inside && text ~ /#include/) {
					printf "%s", text > ("example-" ++count ".c")
					close("example-" count ".c")
				}
				inside = 0
			}
			inside {
				gsub(/\\e/, "\\")
				gsub(/\\&/, "")
				gsub(/\\-/, "-")
				gsub(/\\\(aq/, "\047")
				text = text $0 "\n"
			}' "$page"
		for example in example-*.c; do
			[ -f "$example" ] && compile "$example" "$page: $example does not compile"
		done
	done
fi

echo "$checks checks, $failures failed"
[ "$failures" -eq 0 ]
