#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Includes go downwards: src stands on transports, both stand on base, softhca knows nothing of the library, and ofi only its public
# interface. Within a floor, a
# folder includes only itself and the folders that come before it in the list.
srcdir=${srcdir:-.}
cd "$srcdir" || exit 99

# From the bottom to the top. Folders on one line are side by side and do not include each other.
floors='
base/assert
base/report
base/clock
base/config
base/memory
base/job
transports/inspection
transports/transport
transports/verbs/tuning
transports/device_transport transports/channel_facts
transports/self transports/shm transports/verbs
transports/rc transports/dct transports/ud
transports/transports
src/channel
src/route/groups
src/route/forward
src/route
src/progress
src/message/wire src/message/layers src/message/extension src/message/matching
src/message/peers
src/message/request
src/message/rendezvous
src/message
src/rpc/laws
src/onesided
src/rpc
src/inspect
src/api
src/tools
'

if grep -rnE '^# *include "(base|transports|src)/' softhca; then
	echo "softhca includes the library"
	exit 1
fi
# The libfabric provider is a program like others.
if grep -rnE '^# *include "(base|transports|src|api|message)/' ofi; then
	echo "ofi includes what is inside of the library"
	exit 1
fi
# The device works in live mode or in the model; nothing else in it knows which.
if grep -rnE '^# *include "softhca/(live|model)/' softhca --include='*.?pp' | grep -vE '^softhca/(live/|model/|process\.cpp:)'; then
	echo "only softhca/process.cpp chooses between live mode and the model"
	exit 1
fi
find base transports src -name '*.?pp' -o -name '*.h' -o -name '*.c' | LC_ALL=C sort |
	while read -r file; do
		sed -n 's/^# *include "\([^"]*\)".*/\1/p' "$file" | while read -r header; do
			echo "$file $header"
		done
	done |
	awk -v floors="$floors" '
		BEGIN {
			levels = split(floors, lines, "\n")
			for (i = 1; i <= levels; ++i)
				for (n = split(lines[i], names, " "); n; --n)
					level[names[n]] = i
		}
		# The longest entry of the list that the path begins with.
		function place(path) {
			sub(/\.[a-z]+$/, "", path)
			while (!(path in level) && sub(/\/[^\/]*$/, "", path))
				;
			return path
		}
		{
			header = $2
			if (header ~ /^(pt2p|pt2p_calls|pt2p_open|pt2p_status)\.h(pp)?$/)
				next
			if (header !~ /^(base|transports)\//)
				header = "src/" header
			from = place($1)
			to = place(header)
			++includes
			if (!(from in level) || !(to in level)) {
				print "no floor for " (from in level ? header : $1) ": add its folder to the list in this test"
				bad = 1
			} else if (from != to && level[to] >= level[from]) {
				print $1 " includes " $2 ": " to " is not below " from
				bad = 1
			}
		}
		END {
			if (includes < 300) {
				print "only " includes + 0 " includes were found"
				bad = 1
			}
			exit bad
		}' || exit 1
echo "includes go downwards"
