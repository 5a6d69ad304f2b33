#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compares the symbols that libpt2p.so exports with tests/abi/symbols. With --update: writes that list.
srcdir=${srcdir:-.}
list=$srcdir/tests/abi/symbols
library=.libs/libpt2p.so
[ -e $library ] || { echo "SKIP: no shared library was built"; exit 77; }
command -v nm >/dev/null || { echo "SKIP: nm is not installed"; exit 77; }
found=$(nm -D --defined-only $library | awk '$2 != "A" { print $NF }' | LC_ALL=C sort)
if [ "$1" = --update ]; then
	printf '%s\n' "$found" >"$list"
	exit 0
fi
wanted=$(cat "$list")
if [ "$found" != "$wanted" ]; then
	echo "FAIL: the exported symbols have changed (if that is meant: tests/abi/check.sh --update)"
	printf '%s\n' "$found" | diff "$list" -
	exit 1
fi
# The header declares exactly these symbols.
declared=$(cat "$srcdir"/include/pt2p*.h | grep -Eo '^[a-z].*\bpt2p_[a-z0-9_]+\(' | grep -Eo 'pt2p_[a-z0-9_]+\($' | tr -d '(' | LC_ALL=C sort -u)
[ "$declared" = "$found" ] && exit 0
echo "FAIL: the headers declare other functions than the library exports"
echo "declared: $declared"
exit 1
