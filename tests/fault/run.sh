#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [CASE ...]: ranks that are killed, too little memory, kernels that refuse. Without arguments, all cases. Exits
# with 77 when none could be run. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
fault=./tests/fault/fault
deny=./tests/fault/deny_process_vm
wanted=$*
in_front=
ran=0 failed=0

is_wanted()
{
	[ -n "$wanted" ] || return 0
	for w in $wanted; do
		[ "$w" != "$1" ] || return 0
	done
	return 1
}

# Other programs of the machine use /dev/shm, too. Where it is permitted, the jobs get their own, so that what they
# leave can be counted to the byte. Otherwise known names of others are left out.
listing() { find /dev/shm -mindepth 1 2>/dev/null | grep -Ev '/(vader_segment|sm_segment|ucx_shm|mpich|psm|sem)' | sort; }
# shellcheck disable=SC2016 # expanded by the inner shell
private='mount -t tmpfs -o "size=$0" pt2p /dev/shm || exit 77
"$@"
status=$?
find /dev/shm -mindepth 1 | sed "s/^/left: /"
df -k /dev/shm | awk "NR == 2 && \$3 != 0 { print \"left: \" \$3 \" KiB\" }"
exit $status'
if unshare -m sh -c "$private" 1m true >/dev/null 2>&1; then
	namespace=yes
else
	namespace=no
fi

complain()
{
	echo "FAILED: $name: $*"
	tail -n 30 "$work/out" "$work/err"
	failed=$((failed + 1))
}

# Whether a line of the output matches.
says() { cat "$work/out" "$work/err" | grep -Eq -e "$1"; }

# killed CASE RANKS [PT2P_NAME=value ...]: all ranks but the victim survive, and nothing is left.
killed()
{
	name=$* case=$1 ranks=$2
	is_wanted "$case" || return 0
	shift 2
	listing >"$work/before"
	set -- "$mpirun" --oversubscribe --bind-to none --enable-recovery -n "$ranks" env "$@" $in_front $fault "$case"
	[ $namespace = no ] || set -- unshare -m sh -c "$private" 1g "$@"
	for _ in 1 2; do
		timeout -k 5 60 "$@" >"$work/out" 2>"$work/err"
		status=$?
		launcher_stuck "$work/err" || { [ $status -ge 124 ] && says 'PMIX ERROR: UNREACHABLE'; } || break
	done
	ran=$((ran + 1))
	before=$failed
	[ $status -ne 124 ] && [ $status -ne 137 ] || complain "did not end in time"
	survivors=$(grep -c '^survivor ' "$work/out")
	[ "$survivors" -eq $((ranks - 1)) ] || complain "$survivors survivors of $ranks ranks, status $status"
	! says '^FAIL|terminate called|Segmentation' || complain "a survivor is not content"
	! says '^left: ' || complain "something stays in /dev/shm"
	listing >"$work/after"
	[ $namespace = yes ] || cmp -s "$work/before" "$work/after" || complain "left in /dev/shm: $(comm -13 "$work/before" "$work/after" | tr '\n' ' ')"
	for pid in $(sed -n 's/^pid //p' "$work/out"); do
		! kill -0 "$pid" 2>/dev/null || complain "process $pid is left"
	done
	[ $failed -ne $before ] || echo "ok: $name: $(grep -m 1 '^survivor ' "$work/out")"
}

# expect CASE NAME PATTERN COMMAND...: the command ends with 0 within a minute, and a line of its output matches.
expect()
{
	case=$1 name=$2 pattern=$3
	is_wanted "$case" || return 0
	shift 3
	timeout -k 5 60 "$@" >"$work/out" 2>"$work/err"
	status=$?
	if [ $status -eq 77 ]; then
		echo "skipped: $name: $(tail -n 1 "$work/err")"
		return
	fi
	ran=$((ran + 1))
	if [ $status -ne 0 ]; then
		complain "status $status"
	elif ! says "$pattern"; then
		complain "no line like \"$pattern\""
	else
		echo "ok: $name: $(cat "$work/out" "$work/err" | grep -Em 1 -e "$pattern")"
	fi
}

# orphaned NAME RANKS COMMAND...: the launcher is killed, each rank leaves a file, and no process stays.
orphaned()
{
	is_wanted orphaned || return 0
	name=$1 ranks=$2
	shift 2
	ran=$((ran + 1))
	before=$failed
	rm -f "$work"/orphan.*
	timeout -k 5 60 "$@" >"$work/out" 2>"$work/err"
	tries=0
	while [ "$(find "$work" -name 'orphan.?' | wc -l)" -lt "$ranks" ] && [ $((tries += 1)) -lt 300 ]; do sleep 0.1; done
	[ $tries -lt 300 ] || complain "not all ranks have come to their end"
	for pid in $(sed -n 's/^pid //p' "$work/out"); do
		tries=0
		while kill -0 "$pid" 2>/dev/null && [ $((tries += 1)) -lt 50 ]; do sleep 0.1; done
		! kill -9 "$pid" 2>/dev/null || complain "process $pid is left"
	done
	[ $failed -ne $before ] || echo "ok: $name"
}

# All four ranks got the same explanation. It names a rank, and that rank said what it lacks.
all_lack()
{
	is_wanted small_file_system || return 0
	[ "$(grep -c '^end of ' "$work/out")" -eq 4 ] || complain "not all ranks came to their end"
	[ "$(grep -c '^barrier of .: 15 ' "$work/out")" -eq 4 ] || complain "not all ranks were told"
	for rank in $(sed -n 's/^barrier of .*: rank \(.\) cannot arrive.*/\1/p' "$work/out" | sort -u); do
		grep -Eq "^barrier of $rank: .*rank $rank cannot arrive: it cannot send to rank .: .*[0-9]+ bytes needed" "$work/out" ||
			complain "rank $rank is blamed and does not say what it lacks"
	done
}

openmpi=no
if [ -n "$mpirun" ] && "$mpirun" --version 2>/dev/null | grep -Eq 'OpenRTE|Open MPI'; then
	openmpi=yes
else
	echo "Open MPI's mpirun is not installed: nothing launched"
fi

if [ $openmpi = yes ]; then
	killed eager 3
	killed eager 3 PT2P_SHM_BACKING=devshm
	killed eager 3 PT2P_PROGRESS_THREAD=1
	killed large_sender 3
	killed large_sender 3 PT2P_SHM_SINGLE_COPY=0
	killed large_receiver 3
	killed large_receiver 3 PT2P_SHM_SINGLE_COPY=0 PT2P_SHM_BACKING=devshm
	killed callbacks 3
	killed callbacks 3 PT2P_SHM_SINGLE_COPY=0
	killed announced 3
	killed overtaken 3
	killed overtaken_any 3
	killed ignored 3
	killed ignored_synchronous 3
	killed taken 3
	killed taken 3 PT2P_SHM_SINGLE_COPY=0
	killed calls 3
	killed calls_kept 3
	killed calls 3 PT2P_CALL_WINDOW=1
	killed barrier 4
	killed barrier_before 4
	for call in barrier send recv delivery flush; do
		killed starting_$call 4
	done
	killed starting_barrier_early 4
	killed starting_send_early 4
	killed any_source 3
	killed any_source_probed 3
	killed finalize_dead 3
	killed finalize_dead_synchronous 3
	killed finalized 4
	for way in auto transport owner; do
		killed one_sided 3 PT2P_ONE_SIDED=$way
		killed one_sided_stopped 3 PT2P_ONE_SIDED=$way
	done

	# Over the network, a rank that was killed is noticed only by its silence.
	if [ -x softhca/softhca ]; then
		in_front="softhca/softhca --fabric $work/fabric"
		transports='rc dct'
		! sanitized || transports=dct # see common.sh
		for transport in $transports; do
			for case in eager large_sender large_receiver callbacks overtaken overtaken_any ignored ignored_synchronous taken \
				barrier any_source finalize_dead one_sided calls calls_kept; do
				killed $case 3 PT2P_TRANSPORTS=self,$transport PT2P_NET_RECONNECT_TIME=500ms
			done
			killed finalized 4 PT2P_TRANSPORTS=self,$transport
			for case in barrier barrier_early send recv; do
				killed starting_$case 4 PT2P_TRANSPORTS=self,$transport PT2P_NET_RECONNECT_TIME=500ms
			done
		done
		for case in calls calls_kept; do
			for way in PT2P_CALL_INPUT_BY=datagram PT2P_CALL_REPLY_BY=datagram; do
				killed $case 3 PT2P_TRANSPORTS=self,rc,ud $way PT2P_NET_RECONNECT_TIME=500ms
			done
		done
		# The victim forwards messages between ranks 0 and 3, for instance.
		for case in eager large_sender overtaken ignored_synchronous taken barrier any_source finalize_dead finalized; do
			killed $case 4 PT2P_TRANSPORTS=self,rc,dct PT2P_RANKS_PER_NODE=1 'PT2P_GROUPS=0,2;1,3' PT2P_ROUTE=forward \
				PT2P_NET_RECONNECT_TIME=500ms
		done
		in_front=
	fi

	# Children of ranks, and a launcher that fails.
	run_three="$mpirun --oversubscribe --bind-to none -n 3"
	# shellcheck disable=SC2086
	# Below softhca, leaks of mpirun would be reported, too, and it has some.
	for way in "env PT2P_TRANSPORTS=self,shm" "env PT2P_PROGRESS_THREAD=1" \
		"env ASAN_OPTIONS=detect_leaks=0 PT2P_TRANSPORTS=self,rc softhca/softhca --fabric $work/fabric" \
		"env ASAN_OPTIONS=detect_leaks=0 PT2P_TRANSPORTS=self,dct softhca/softhca --fabric $work/fabric"; do
		case $way in *softhca*) [ -x softhca/softhca ] || continue ;; esac
		expect forked "children of ranks, $way" '^parent 2 has finalized' $way $run_three $fault forked
		! is_wanted forked || [ "$(grep -c '^parent' "$work/out")" -eq 3 ] || complain "not all parents came to their end"
	done
	# The launcher reports an improper end.
	# shellcheck disable=SC2016,SC2086 # expanded by the inner shell; several words
	expect finalize_stuck "PMIx_Finalize does not come back" '^finalize of 2: 0$' \
		sh -c '"$@"; [ $? -le 1 ]' sh $run_three --enable-recovery $fault finalize_stuck
	! is_wanted finalize_stuck || says 'PMIx_Finalize has not come back within' || complain "nobody is told of it"
	run_four="$mpirun --oversubscribe --bind-to none -n 4"
	orphaned "the launcher is killed" 3 $run_three $fault orphaned "$work/orphan"
	for call in barrier probe recv_any; do
		orphaned "the launcher is killed early, $call" 4 $run_four $fault orphaned_early "$work/orphan" $call
		[ -x softhca/softhca ] || continue
		for transport in rc dct; do
			orphaned "the launcher is killed early, $call, $transport" 4 env PT2P_NET_RECONNECT_TIME=500ms \
				PT2P_TRANSPORTS=self,$transport $run_four softhca/softhca --fabric "$work/fabric" $fault orphaned_early \
				"$work/orphan" $call
		done
	done
	run_two="$mpirun --oversubscribe --bind-to none -n 2"
	# shellcheck disable=SC2086 # several words
	expect process_vm "the kernel refuses process_vm_readv" '^rank [01] to [01]: pipelined' $run_two $deny $fault exchange
	! is_wanted process_vm || [ ! -s "$work/out" ] || ! says ': single-copy' || complain "single copy in spite of all"
	# UndefinedBehaviorSanitizer itself needs descriptors.
	for transport in rc dct; do
		[ -x softhca/softhca ] && ! sanitized || continue
		# shellcheck disable=SC2086
		expect descriptors "no descriptor to sleep with, $transport" '^descriptors: came through' \
			env PT2P_TRANSPORTS=self,$transport $run_two softhca/softhca --fabric "$work/fabric" $fault descriptors_sleeping
	done
	if ! sanitized; then
		for side in connecting accepting; do
			# shellcheck disable=SC2086
			expect descriptors "no descriptor is left on the $side side" '^descriptors: came through' \
				$run_two $fault descriptors_$side
		done
	fi
fi

# What the file system or the memory limit has left.
if is_wanted small_file_system; then
	if [ $namespace = yes ]; then
		small="PT2P_SHM_BACKING=devshm"
		expect small_file_system "no room for a segment" \
			'^pt2p_init_inprocess: 15 .*[0-9]+ bytes needed, [0-9]+ bytes available' \
			unshare -m sh -c "$private" 4096 env $small $fault inprocess 4
		expect small_file_system "no room for a ring" \
			'^first send: 15 .*ring.*[0-9]+ bytes needed, [0-9]+ bytes available' \
			unshare -m sh -c "$private" 16384 env $small $fault inprocess 2
		if [ $openmpi = yes ]; then
			# shellcheck disable=SC2086
			expect small_file_system "no room for a ring, launched" \
				'^first send: 15 .*ring.*[0-9]+ bytes needed, [0-9]+ bytes available' \
				unshare -m sh -c "$private" 16384 env $small $run_two $fault first_send
			# Four ranks need eight rings of some 28 KiB in a barrier.
			for room in 40k 80k 160k 200k; do
				# shellcheck disable=SC2086
				expect small_file_system "no room for the rings of a barrier in $room" '^end of ' \
					unshare -m sh -c "$private" $room env $small $run_four $fault barrier_lacks
				all_lack
			done
			# shellcheck disable=SC2016 # expanded by the inner shell
			ballast='head -c 1100000 /dev/zero >/dev/shm/ballast && exec "$@"'
			for late in 0 2; do
				# shellcheck disable=SC2086
				expect small_file_system "no room for the rings of a barrier at first, rank 0 is $late s late" '^end of ' \
					unshare -m sh -c "$private" 1240k sh -c "$ballast" sh env $small $run_four $fault barrier_lacks \
					/dev/shm/ballast $late
				all_lack
			done
		fi
		expect small_file_system "no room for a ring, and then there is" '^no space: 7 came through' \
			unshare -m sh -c "$private" 4m env $small PT2P_SHM_SINGLE_COPY=0 $fault no_space
	else
		echo "skipped: small /dev/shm: unshare -m is not permitted"
	fi
fi
# A sanitizer reserves far more address space than any such limit: the program then cannot even start.
if sh -c 'ulimit -v 1000000 && exec "$@"' sh $fault usage 2>&1 | grep -aq Sanitizer; then
	echo "skipped: limit on address space: built with a sanitizer"
else
	expect memory_limit "limit on address space" \
		'^pt2p_init_inprocess: 15 .*[0-9]+ bytes of address space needed, [0-9]+ bytes available' \
		sh -c 'ulimit -v 1000000 && exec "$@"' sh env PT2P_SHM_RING_BYTES=16m $fault inprocess 16
fi

expect unfinished "finalize with unfinished requests" '^unfinished: .*: 2 receives have not completed; 1 completed request was not waited for; first: receive of up' \
	$fault unfinished
expect tunable "misspelt tunable" '^pt2p_init: 11 .*PT2P_EAGER_MX.*PT2P_EAGER_MAX' env PT2P_EAGER_MX=1 $fault init
expect tunable "tunable out of range" '^pt2p_init: 11 .*PT2P_SHM_RING_SLOTS' env PT2P_SHM_RING_SLOTS=3 $fault init
expect launcher "launcher variables but no server" '^pt2p_init: 12 ' \
	env PMIX_NAMESPACE=none PMIX_RANK=0 'PMIX_SERVER_URI41=none.0;tcp4://127.0.0.1:1' $fault init
expect launcher "mpirun's variables but no PMIx" '^pt2p_init: 12 ' \
	env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 $fault init
expect launcher "Slurm without PMIx: both advices are the same" \
	'^pt2p_init: 12 .*start the program with srun --mpi=pmix.*Remedy: .*srun --mpi=pmix' \
	env SLURM_PROCID=0 SLURM_NTASKS=2 $fault init

echo "$ran cases, $failed complaints"
[ $ran -gt 0 ] || exit 77
[ $failed -eq 0 ]
