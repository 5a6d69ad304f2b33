#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# examples/kv as users run it: commands, errors that name cause and remedy, values that belong to their keys, and
# histories of hot keys that are linearizable over each transport, and are not when the store loses puts. Run in the
# build tree.
. "${srcdir:-.}/tests/common.sh"
kv=./examples/kv/kv
# judge STATUS PATTERN NAME: the command before has ended with this status, and a line of its output matches.
judge()
{
	got=$?
	checks=$((checks + 1))
	if [ $got -ne "$1" ] || ! grep -Eq -e "$2" "$work/log"; then
		complain "$3: status $got, wanted $1 and a line like \"$2\""
	fi
}

# alone STATUS PATTERN [argument ...]: a job of one rank, without a launcher.
alone()
{
	wanted=$1 pattern=$2
	shift 2
	timeout -k 5 60 $kv "$@" >"$work/log" 2>&1
	judge "$wanted" "$pattern" "kv $*"
}

# expect RANKS STATUS PATTERN [mpirun option ...] PROGRAM [argument ...]
expect()
{
	ranks=$1 wanted=$2 pattern=$3
	shift 3
	launch 60 "$ranks" "$@" >"$work/log" 2>&1
	judge "$wanted" "$pattern" "$*, $ranks ranks"
}

printf 'alice\t1 Main Street\nbob=a=b\n\nempty=\n' >"$work/items"
printf 'one=1\nno sign\n' >"$work/bad_items"
printf '# a comment\nload %s\nget alice bob\n' "$work/items" >"$work/script"
i=0
while [ $((i += 1)) -le 3000 ]; do echo "key$i=a value of key $i"; done >"$work/many"
long=$(head -c 1600 /dev/zero | tr '\0' v)

# Commands.
alone 0 '^usage: mpirun' --help
alone 0 '^3 items loaded' -e "load $work/items" -e 'get alice'
alone 0 '^a=b$' -e "load $work/items" get bob
alone 0 '^empty	$' --script "$work/script" get alice empty
alone 0 '^bob	a=b$' --script "$work/script"
alone 0 '^two words$' -e 'put k two words' -e 'get k'
alone 1 'there is no key "k"$' -e 'put k v' -e 'delete k' -e 'get k'
alone 1 'there is no key "x", "y"$' get x y
alone 0 '^3000 items loaded' --threads 3 -e "load $work/many" -e "get key1 key2 key3 key3000"

# Errors name the cause, and what helps.
alone 2 'there is no option --mem' --mem 1g
alone 2 '--memory: 1k is not in 65536' --memory 1k
alone 2 '--memory: each of the 4 partitions of a rank needs 64k' --memory 128k --threads 4
alone 2 '--servers 2: there are 1 ranks' --servers 2
alone 2 '--threads needs a value' --threads
alone 1 'there is no command "gett"' gett k
alone 1 'there is no setting "gets". There are: get keys' bench gets=5
alone 1 'get: 101 is not in 0 ... 100' bench get=101
alone 1 'distribution: "zipff" is neither zipf nor uniform' bench distribution=zipff
alone 1 'put needs a key and a value' put k
alone 1 'a key has 1 to 255 bytes, and this one has 300' put "$(head -c 300 /dev/zero | tr '\0' k)" v
alone 1 'value has 1600 bytes, and a partition of this size takes up to [0-9]+. Give more by --memory' --memory 64k put k "$long"
alone 0 "^$long\$" -e "put k $long" -e 'get k'
alone 1 'load cannot read "none"' load none
alone 1 'cannot read "none"' --script none
alone 1 ':2: there is neither a tab nor "="' load "$work/bad_items"
alone 1 ':[0-9]+: memory is full: the [0-9]+ items of partition 0, .* have [0-9]+ of [0-9]+ bytes. Give more by --memory.*--cache' \
	--memory 64k load "$work/many"
alone 0 '^3000 items loaded' --memory 64k --cache -e "load $work/many" -e 'get key3000'
alone 1 'there is no key "key1"$' --memory 64k --cache -e "load $work/many" -e 'get key1'
alone 1 '[0-9]+ puts were refused, as memory is full' --memory 64k bench count=100

if [ -n "$mpirun" ]; then
	need_launcher
	printf 'put a 1\nput b 2\nput c 3\nget a b c d\nquit\nstats\n' >"$work/commands"
	launch 60 3 $kv <"$work/commands" >"$work/log" 2>&1
	judge 1 '^c	3$' "commands on the standard input"
	grep -q 'there is no key "d"' "$work/log" || complain "a get of several keys, of which one is not there"
	! grep -q '^partition' "$work/log" || complain "commands after quit are carried out"
	expect 4 0 '^bob	a=b$' $kv --servers 2 --threads 2 -e "load $work/items" get alice bob
	expect 3 1 'memory is full: .* of partition [0-2], .* have [0-9]+ of [0-9]+ bytes' $kv --memory 64k load "$work/many"
	expect 3 2 'there is no option -z' $kv -z
	expect 2 1 'no transport reaches the peer' -x PT2P_TRANSPORTS=self $kv bench

	# A rank is killed: the others end, and say why.
	launch 60 3 --enable-recovery $kv -e stats -e 'bench time=30 keys=100' >"$work/log" 2>&1 &
	launched=$!
	tries=0
	while ! grep -q '^partition' "$work/log" && [ $((tries += 1)) -lt 200 ]; do sleep 0.1; done
	sleep 0.5
	victim=$(ps -A -o pid= -o ppid= -o comm= | awk -v top=$launched '{ parent[$1] = $2; name[$1] = $3 }
		END {
			for (p in parent)
				if (name[p] ~ /kv$/) {
					for (a = p; a in parent && a != top;)
						a = parent[a]
					if (a == top)
						last = p
				}
			print last
		}')
	kill -9 "$victim"
	wait $launched
	checks=$((checks + 1))
	[ "$(grep -c '^kv: rank [0-2] ends: .*Remedy: ' "$work/log")" -eq 2 ] || complain "survivors of a rank that was killed"

	# Hot keys are linearizable and values belong to their keys, whoever serves.
	bench='verify=yes count=3000 keys=1000'
	checked='^linearizable: [0-9]+ operations of [23] clients on 4 keys$'
	# shellcheck disable=SC2086 # several words
	for options in '' '--threads 2' '--servers 1' '--servers 1 --threads 2 --cache --memory 256k'; do
		expect 3 0 "$checked" $kv $options -e check -e "bench $bench value=mix get=50" \
			-e "bench $bench distribution=uniform value=1024 load=no"
		[ "$(grep -c 'gets found a value, and each was checked$' "$work/log")" -eq 2 ] || complain "benchmarks with $options"
	done
	expect 4 0 '^linearizable: ' -x PT2P_CALL_WINDOW=1 $kv check depth=4 count=500
	expect 3 1 '^NOT linearizable: the last of these operations on check-' $kv check lose=20
	grep -q 'us  get' "$work/log" || complain "the operations that cannot be explained are not shown"

	if [ -x softhca/softhca ]; then
		for transport in rc dct; do
			softhca/softhca ./pt2p_info --transports | grep -q "^  $transport  *usable" || continue
			# softhca would bring AddressSanitizer into mpirun, too, which has leaks.
			ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 PT2P_TRANSPORTS=self,$transport timeout -k 5 60 softhca/softhca \
				"$mpirun" --oversubscribe --bind-to none -n 3 $kv -e 'check count=300' -e "bench $bench value=mix" >"$work/log" 2>&1
			judge 0 '^linearizable: 900 operations' "kv over $transport"
			grep -q 'gets found a value, and each was checked$' "$work/log" || complain "benchmark over $transport"
		done

		# As HERD works: calls by RDMA write, replies by datagram. Also where the network loses, repeats and reorders packets.
		if softhca/softhca ./pt2p_info --transports | grep -q '^  rc  *usable'; then
			for fault in '' "$lossy" "$very_lossy"; do
				ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 PT2P_TRANSPORTS=self,rc,ud PT2P_NET_DELIVERY=write PT2P_CALL_REPLY_BY=datagram \
					PT2P_NET_TIMEOUT=8 PT2P_SUMMARY=yes timeout -k 5 60 softhca/softhca --fault "$fault" \
					"$mpirun" --oversubscribe --bind-to none -n 3 $kv -e 'check count=300' -e "bench $bench value=mix get=50" >"$work/log" 2>&1
				judge 0 '^linearizable: 900 operations' "kv as HERD works, faults \"$fault\""
				grep -q 'gets found a value, and each was checked$' "$work/log" || complain "benchmark as HERD works, faults \"$fault\""
				for way in net_deposits ud_messages; do
					[ "$(grep -c "^  $way " "$work/log")" -eq 3 ] || complain "not all ranks have $way, faults \"$fault\""
				done
			done
		fi
	fi
fi

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
