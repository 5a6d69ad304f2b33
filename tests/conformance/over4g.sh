#!/bin/sh
# A message beyond 4 GiB, whole and truncated. Needs 12 GiB of free memory.
. "${srcdir:-.}/tests/common.sh"
need_launcher
available=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
[ "${available:-0}" -ge 12 ] || skip "$available GiB of memory are available, 12 are needed"
for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
	[ -r $limit ] || continue
	case $(cat $limit) in
	max) ;;
	*) [ "$(($(cat $limit) / 1073741824))" -ge 12 ] || skip "the control group allows less than 12 GiB" ;;
	esac
done
! grep -q '^SANITIZE = .*-fsanitize' Makefile 2>/dev/null || skip "built with a sanitizer"
launch 120 2 ./tests/conformance/over4g || fail "whole message"
launch 120 2 ./tests/conformance/over4g truncated || fail "truncated message"
