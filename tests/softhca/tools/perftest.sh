#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# perftest on softhca: every operation over RC, DC and UD, polled and with events, several queue pairs, all sizes. Few
# rounds each: the runs have to end, not to be fast. Run in the build tree. Exits with 77 where perftest is missing.
. "${srcdir:-.}/tests/common.sh"
. "${srcdir:-.}/tests/softhca/tools/sides.sh"
for tool in ib_write_lat ib_write_bw ib_read_lat ib_read_bw ib_atomic_lat ib_atomic_bw ib_send_lat ib_send_bw; do
	command -v $tool >/dev/null || skip "$tool is not installed (Debian: perftest)"
done

# ok LINES COMMAND...: both ends finish, and the client reports that many results.
ok()
{
	lines=$1
	shift
	# With sanitizers most latency tests are left out. The bandwidth tests post the same work requests and do not wait.
	if sanitized; then
		case "$*" in *' -I '*) ;; ib_*_lat*) return 0 ;; esac
	fi
	serve "$@" -F
	client "$@" -F localhost
	# perftest itself never destroys the receive queue's CQ of some DC runs, and then complains that its channel is in
	# use.
	case "$*" in *'-c DC'*-e*)
		[ $code -ne 1 ] || ! grep -q 'Failed to close event channel' "$work/client" || code=0
		[ $server_code -ne 1 ] || ! grep -q 'Failed to close event channel' "$work/server" || server_code=0
	esac
	# A latency is "inf" where the machine is so busy that perftest cannot measure the processor's frequency.
	results=$(grep -Ec '^ *[0-9]+ +[0-9]+ +([0-9.]+|inf)' "$work/client") || :
	if [ $code -ne 0 ] || [ $server_code -ne 0 ] || [ "$results" -ne "$lines" ]; then
		show
		fail "$*: exit codes $server_code (server) and $code (client), $results results instead of $lines"
	fi
	echo "ok: ${here:+two hosts: }$*"
}

# A latency test takes nearly a second, in which perftest measures the processor's frequency; with -a, once for each
# size. So -a is for bandwidth only.
sizes=23 # of -a: 2 bytes to 8 MiB
for connection in RC DC; do
	for operation in write read send; do
		ok 1 ib_${operation}_lat -c $connection -n 100 -s 8
		ok 1 ib_${operation}_bw -c $connection -n 200 -s 4096
		ok 1 ib_${operation}_bw -c $connection -n 100 -s 1000 -q 4
		ok 1 ib_${operation}_bw -c $connection -n 100 -s 1000 -b
	done
	ok $sizes ib_send_bw -c $connection -n 5 -a
	ok 1 ib_write_lat -c $connection -n 5 -s 4194304
	ok 1 ib_atomic_lat -c $connection -n 100
	ok 1 ib_atomic_bw -c $connection -n 100 -A CMP_AND_SWAP -q 4
	ok 1 ib_atomic_bw -c $connection -n 100 -b
	# Inline, and several work requests in one call.
	ok 1 ib_write_lat -c $connection -n 100 -s 1 -I 64
	ok 1 ib_send_lat -c $connection -n 100 -s 200 -I 200
	ok 1 ib_write_bw -c $connection -n 200 -s 32 -I 32 -l 8
done
ok $sizes ib_write_bw -n 5 -a
ok $sizes ib_read_bw -n 5 -a
for operation in write read send; do
	ok 1 ib_${operation}_bw -n 100 -s 5000 -m 256
done
ok 1 ib_write_lat -n 100 -s 8 --use_old_post_send
ok 1 ib_send_bw -n 100 -s 8 --use_old_post_send

# Sleeping until completions come.
for connection in RC DC; do
	for tool in ib_read_lat ib_read_bw ib_send_lat ib_send_bw; do
		ok 1 $tool -c $connection -n 100 -s 8 -e
		ok 1 $tool -c $connection -n 20 -s 100000 -e
	done
	ok 1 ib_atomic_lat -c $connection -n 100 -e
	ok 1 ib_atomic_bw -c $connection -n 100 -e
	ok 1 ib_send_bw -c $connection -n 100 -s 64 -e -b
	ok 1 ib_send_bw -c $connection -n 100 -s 64 -e -q 4
done

# Shared receive queues.
for tool in ib_send_lat ib_send_bw; do
	ok 1 $tool -n 200 -s 64 --use-srq
	ok 1 $tool -n 20 -s 100000 --use-srq
done
ok 1 ib_send_bw -n 100 -s 64 --use-srq -q 4
ok 1 ib_send_bw -n 100 -s 64 --use-srq -q 4 -e

# Datagrams.
ok 1 ib_send_lat -c UD -n 100 -s 8
ok 1 ib_send_lat -c UD -n 100 -s 8 -e
ok 12 ib_send_bw -c UD -n 5 -a
ok 1 ib_send_bw -c UD -n 100 -s 4096
ok 1 ib_send_bw -c UD -n 100 -s 1024 -b

if unshare --uts true 2>/dev/null; then
	cat >"$work/on" <<-'END'
		hostname "$1" && shift && exec "$@"
	END
	here="unshare --uts sh $work/on here" there="unshare --uts sh $work/on there"
	for connection in RC DC; do
		ok 1 ib_write_lat -c $connection -n 100 -s 8
		ok 1 ib_read_bw -c $connection -n 20 -s 100000
		ok 1 ib_send_bw -c $connection -n 100 -s 4096 -e
		ok 1 ib_atomic_lat -c $connection -n 100
	done
	ok 1 ib_send_lat -c UD -n 100 -s 100
else
	echo "skipped: two hosts: unshare --uts is not allowed"
fi
echo "perftest: all passed"
