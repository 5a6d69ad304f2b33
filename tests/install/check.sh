#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks what make install has installed, as a user would use it: the README's first program is compiled with
# pkg-config, as C and as C++, shared and static, and launched. make installcheck runs this.
# Arguments: bindir libdir includedir mandir
. "${srcdir:-.}/tests/common.sh"
[ $# -eq 4 ] || fail "usage: check.sh BINDIR LIBDIR INCLUDEDIR MANDIR"
bindir=$1 libdir=$2 includedir=$3 mandir=$4
readme=$srcdir/README.md
pkgconfig=${PKG_CONFIG:-pkg-config}
PKG_CONFIG_PATH=$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH LD_LIBRARY_PATH

for file in pt2p.h pt2p.hpp pt2p_calls.h pt2p_calls.hpp pt2p_onesided.h pt2p_onesided.hpp pt2p_open.h pt2p_status.h; do
	[ -f "$includedir/$file" ] || fail "$includedir/$file is not there"
done
for page in man1/pt2p_info.1 man3/pt2p_init.3 man7/pt2p.7 man7/pt2p_tunables.7 man7/pt2p_errors.7; do
	[ -f "$mandir/$page" ] || fail "$mandir/$page is not there"
done
"$bindir/pt2p_info" --version | grep '^libpt2p [0-9]' || fail "pt2p_info does not run"
version=$($pkgconfig --modversion pt2p) || fail "pkg-config does not find pt2p"
[ "$("$bindir/pt2p_info" --version)" = "libpt2p $version" ] || fail "pt2p.pc says version $version"

sed -n '/^```c$/,/^```$/p' "$readme" | grep -v '^```' >"$work/first.c"
printf '#include <pt2p.hpp>\nint main()\n{\n\tpt2p::context c;\n\treturn c.rank() >= 0 ? 0 : 1;\n}\n' >"$work/first.cpp"

# The flags are words.
# shellcheck disable=SC2046,SC2086
{
	${CC:-cc} -std=c11 -Wall -Wextra -Werror "$work/first.c" -o "$work/first" $($pkgconfig --cflags --libs pt2p) ||
		fail "the README's program does not compile"
	${CXX:-c++} -std=c++20 -Wall -Wextra -Werror "$work/first.cpp" -o "$work/first_cpp" \
		$($pkgconfig --cflags --libs pt2p) || fail "a program with pt2p.hpp does not compile"
	programs="$work/first $work/first_cpp"
	if [ -f "$libdir/libpt2p.a" ]; then
		# The libraries that it needs stay shared: with --static, pkg-config asks for archives that hwloc's package
		# lacks.
		${CC:-cc} -std=c11 "$work/first.c" -o "$work/first_static" $($pkgconfig --cflags pt2p) "$libdir/libpt2p.a" \
			$($pkgconfig --libs $($pkgconfig --print-requires-private pt2p)) -lstdc++ -lpthread ||
			fail "linking with libpt2p.a"
		nm "$work/first_static" | grep -q ' T pt2p_init$' || fail "first_static does not hold the library"
		programs="$programs $work/first_static"
	fi
}
for program in $programs; do
	"$program" >"$work/out" || fail "$program, alone"
done
"$work/first" | grep -x 'rank 0 got 0 from rank 0' || fail "the README's program, alone"
if [ -n "$mpirun" ]; then
	for program in $programs; do
		launch 60 2 "$program" >"$work/out" || fail "$program, 2 ranks"
		[ "$program" = "$work/first_cpp" ] && continue
		[ "$(sort "$work/out")" = "rank 0 got 1 from rank 1
rank 1 got 0 from rank 0" ] || fail "$program, 2 ranks: $(cat "$work/out")"
	done
fi
echo "installed: the README's program compiles and runs"
