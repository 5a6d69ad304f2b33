#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# UCX on softhca, by itself and below Open MPI: the RC, DC and UD transports that are written for mlx5 devices. UCX
# polls and never yields, so a round takes long on few processors; hence few rounds. Run in the build tree. Exits with
# 77 where UCX's tools are not installed.
. "${srcdir:-.}/tests/common.sh"
. "${srcdir:-.}/tests/softhca/tools/sides.sh"
for tool in ucx_info ucx_perftest; do
	command -v $tool >/dev/null || skip "$tool is not installed (Debian: ucx-utils)"
done
UCX_NET_DEVICES=mlx5_0:1 UCX_LOG_LEVEL=info UCX_WARN_UNUSED_ENV_VARS=n
export UCX_NET_DEVICES UCX_LOG_LEVEL UCX_WARN_UNUSED_ENV_VARS
# At its end UCX frees the receive buffers of a UD queue pair before it destroys the queue pair. UCX's cache keeps the
# buffers registered, so the device writes late datagrams there, and AddressSanitizer reports an error. Without the
# cache, UCX deregisters the buffers first.
if sanitized; then
	UCX_IB_REG_METHODS=direct
	export UCX_IB_REG_METHODS
fi

# ok PATTERN OPTION...: ucx_perftest ends on both sides, and the client says something like the pattern.
ok()
{
	pattern=$1
	shift
	serve ucx_perftest "$@"
	client ucx_perftest localhost "$@"
	if [ $code -ne 0 ] || [ $server_code -ne 0 ] || ! grep -q '^Final:' "$work/client" ||
		! grep -Eq "$pattern" "$work/client" || grep -q 'UCX  *\(ERROR\|FATAL\|WARN\)' "$work/client" "$work/server"; then
		show
		fail "ucx_perftest $*: exit codes $server_code (server) and $code (client), or no line like $pattern"
	fi
	echo "ok: ${here:+two hosts: }ucx_perftest $*${UCX_TLS:+ with $UCX_TLS}"
}

timeout -k 5 60 $softhca ucx_info -d >"$work/client" 2>&1 || { cat "$work/client"; fail "ucx_info -d"; }
for transport in rc_verbs rc_mlx5 dc_mlx5 ud_verbs ud_mlx5; do
	grep -A 1 "Transport: $transport\$" "$work/client" | grep -q 'Device: mlx5_0:1' ||
		{ cat "$work/client"; fail "ucx_info -d does not list $transport"; }
done
echo "ok: ucx_info -d"

# The transports alone.
unset UCX_TLS
for transport in rc_mlx5 dc_mlx5; do
	on="-d mlx5_0:1 -x $transport"
	for test in put_lat put_bw am_lat am_bw add_mr fadd cswap; do
		ok . $on -t $test -n 100 -w 10 -s 8
	done
	ok . $on -t get -D bcopy -n 100 -w 10 -s 1000
	ok . $on -t get -D zcopy -n 50 -w 5 -s 100000
	ok . $on -t put_bw -D zcopy -n 50 -w 5 -s 100000
	ok . $on -t am_bw -D bcopy -n 100 -w 10 -s 2000
	ok . $on -t am_bw -D zcopy -n 100 -w 10 -s 2000
done
ok . -d mlx5_0:1 -x ud_mlx5 -t am_lat -n 100 -w 10 -s 8
ok . -d mlx5_0:1 -x ud_mlx5 -t am_bw -D bcopy -n 100 -w 10 -s 1000
ok . -d mlx5_0:1 -x rc_verbs -t put_lat -n 100 -w 10 -s 8

# The protocols above them. UCX says which transport it has taken.
protocols()
{
	UCX_TLS=$1 transport=$2
	export UCX_TLS
	for test in tag_lat tag_bw tag_sync_lat stream_bw ucp_am_lat ucp_put_lat ucp_get ucp_fadd; do
		ok "ep_cfg.*$transport/mlx5_0:1" -t $test -n 50 -w 5 -s 8
	done
	for bytes in 4000 100000 2000000; do
		ok "ep_cfg.*$transport/mlx5_0:1" -t tag_bw -n 10 -w 2 -s $bytes
	done
	ok "ep_cfg.*$transport/mlx5_0:1" -t ucp_get -n 10 -w 2 -s 1000000
}
protocols rc_x rc_mlx5
protocols dc_x dc_mlx5
protocols ud_x ud_mlx5

if unshare --uts true 2>/dev/null; then
	cat >"$work/on" <<-'END'
		hostname "$1" && shift && exec "$@"
	END
	here="unshare --uts sh $work/on here" there="unshare --uts sh $work/on there"
	for both in rc_x:rc_mlx5 dc_x:dc_mlx5; do
		UCX_TLS=${both%:*}
		ok "ep_cfg.*${both#*:}/mlx5_0:1" -t tag_lat -n 50 -w 5 -s 8
		ok "ep_cfg.*${both#*:}/mlx5_0:1" -t tag_bw -n 10 -w 2 -s 500000
	done
else
	echo "skipped: two hosts: unshare --uts is not allowed"
fi
unset UCX_TLS

# UCX's own example, which can also sleep until events come.
examples=/usr/share/doc/libucx-dev/examples
if [ -e $examples/ucp_hello_world.c ] && command -v cc >/dev/null &&
	cc -w -I$examples -o "$work/hello" $examples/ucp_hello_world.c -lucp -lucs 2>"$work/out"; then
	for UCX_TLS in rc_x dc_x ud_x; do
		export UCX_TLS
		for mode in -b -w -f; do
			serve "$work/hello" $mode -s 5000
			client "$work/hello" $mode -s 5000 -n localhost
			if [ $code -ne 0 ] || [ $server_code -ne 0 ] || ! grep -q 'UCP TEST SUCCESS' "$work/client"; then
				show
				fail "ucp_hello_world $mode with $UCX_TLS: exit codes $server_code (server) and $code (client)"
			fi
			echo "ok: ucp_hello_world $mode with $UCX_TLS"
		done
	done
	unset UCX_TLS
else
	echo "skipped: ucp_hello_world: no compiler or no example (Debian: libucx-dev)"
fi

# Open MPI above UCX.
cat >"$work/ring.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "wrong data: %s\n", what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

int main(int argc, char **argv)
{
	int rank, size;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	const int to = (rank + 1) % size, from = (rank + size - 1) % size;
	for (int n = 1; n <= 1 << 18; n *= 8) {
		int *out = malloc(n * sizeof *out), *in = malloc(n * sizeof *in);
		for (int i = 0; i < n; ++i) {
			out[i] = rank * 1000003 + i;
			in[i] = -1;
		}
		MPI_Sendrecv(out, n, MPI_INT, to, n, in, n, MPI_INT, from, n, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < n; ++i)
			check(in[i] == from * 1000003 + i, "ring");
		MPI_Allreduce(out, in, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < n; ++i)
			check(in[i] == size * (size - 1) / 2 * 1000003 + size * i, "allreduce");
		free(out);
		free(in);
	}
	/* Everybody to everybody, all at once. */
	enum { most = 16, words = 5000 };
	static int out[most][words], in[most][words];
	MPI_Request requests[2 * most];
	check(size <= most, "too many ranks");
	for (int i = 0; i < size; ++i) {
		for (int j = 0; j < words; ++j)
			out[i][j] = rank * 100 + i + j;
		MPI_Irecv(in[i], words, MPI_INT, i, 1, MPI_COMM_WORLD, &requests[2 * i]);
		MPI_Isend(out[i], words, MPI_INT, i, 1, MPI_COMM_WORLD, &requests[2 * i + 1]);
	}
	MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < size; ++i)
		for (int j = 0; j < words; ++j)
			check(in[i][j] == i * 100 + rank + j, "exchange");
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("verified on %d ranks\n", size);
	MPI_Finalize();
	return 0;
}
END
mpicc=$(command -v mpicc.openmpi || command -v mpicc) || mpicc=
if [ -z "$mpicc" ] || [ -z "$mpirun" ] || ! "$mpirun" --version 2>/dev/null | grep -Eq 'OpenRTE|Open MPI'; then
	echo "skipped: Open MPI: not installed"
elif ! ompi_info 2>/dev/null | grep -q 'MCA pml: ucx'; then
	echo "skipped: Open MPI: built without UCX"
else
	"$mpicc" -std=gnu99 -O -o "$work/ring" "$work/ring.c" || fail "mpicc"
	for both in dc_x:dc_mlx5 rc_x:rc_mlx5 ud_x:ud_mlx5; do
		for ranks in 2 4 8; do
			code=0
			timeout -k 5 90 $softhca "$mpirun" --oversubscribe --bind-to none -n $ranks --mca pml ucx \
				-x UCX_TLS="${both%:*},self" -x UCX_NET_DEVICES -x UCX_LOG_LEVEL "$work/ring" >"$work/out" 2>&1 || code=$?
			if [ $code -ne 0 ] || ! grep -q "verified on $ranks ranks" "$work/out" ||
				! grep -q "ep_cfg.*tag(.*${both#*:}/mlx5_0:1" "$work/out"; then
				cat "$work/out"
				fail "Open MPI with ${both%:*} on $ranks ranks: exit code $code"
			fi
			echo "ok: Open MPI with ${both%:*} on $ranks ranks"
		done
	done
fi
echo "ucx: all passed"
