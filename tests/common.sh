# Shell functions for the launched tests; sourced. Exit code 77 means skipped.

srcdir=${srcdir:-.}
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
# A stray pt2p.conf of the user must not change a test.
PT2P_CONF=/dev/null
export PT2P_CONF
# What other libraries never free is not counted when leaks are looked for; make check says so itself.
: "${LSAN_OPTIONS=suppressions=$srcdir/tests/lsan.supp:print_suppressions=0}"
export LSAN_OPTIONS

work=${TMPDIR:-/tmp}/pt2p-test.$$
mkdir -p "$work" || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

skip() { echo "SKIP: $*"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }

# A build with sanitizers takes several times as long: what shows no other memory accesses need not run in it.
sanitized() { grep -q '^S\["SANITIZED_TRUE"\]=""' config.status 2>/dev/null; }

mpirun=$(command -v mpirun.openmpi || command -v mpirun) || mpirun=

need_launcher()
{
	[ -n "$mpirun" ] || skip "mpirun is not installed (Debian: openmpi-bin)"
	"$mpirun" --version 2>/dev/null | grep -Eq 'OpenRTE|Open MPI' || skip "$mpirun is not Open MPI's"
}

# launch SECONDS RANKS [mpirun option ...] PROGRAM [argument ...]
launch()
{
	seconds=$1 ranks=$2
	shift 2
	timeout -k 5 "$seconds" "$mpirun" --oversubscribe --bind-to none -n "$ranks" "$@"
}
