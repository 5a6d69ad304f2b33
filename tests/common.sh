# Shell functions for the launched tests; sourced. Exit code 77 means skipped.

srcdir=${srcdir:-.}
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
# A stray pt2p.conf of the user must not change a test.
PT2P_CONF=/dev/null
export PT2P_CONF
# Leaks of other libraries are not reported. make check sets this itself.
: "${LSAN_OPTIONS=suppressions=$srcdir/tests/lsan.supp:print_suppressions=0}"
export LSAN_OPTIONS

work=${TMPDIR:-/tmp}/pt2p-test.$$
mkdir -p "$work" || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

skip() { echo "SKIP: $*"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }

# A build with sanitizers takes several times as long. Runs with the same memory accesses as others can be left out in
# it.
sanitized() { grep -q '^S\["SANITIZED_TRUE"\]=""' config.status 2>/dev/null; }

mpirun=$(command -v mpirun.openmpi || command -v mpirun) || mpirun=

need_launcher()
{
	[ -n "$mpirun" ] || skip "mpirun is not installed (Debian: openmpi-bin)"
	"$mpirun" --version 2>/dev/null | grep -Eq 'OpenRTE|Open MPI' || skip "$mpirun is not Open MPI's"
}

# When a rank is killed inside PMIx_Init, that of another rank may never return, or mpirun may not end although all ranks
# have. Open MPI 4.1.4 with PMIx 4.2.2 does so in a few of a hundred jobs, also without libpt2p. Such a job tells nothing.
# launcher_stuck FILE: whether pt2p_init has said there that PMIx_Init does not return.
launcher_stuck() { grep -aq 'has not answered PMIx_Init within' "$1"; }

# For conformance cases: the program, and a wire for softhca --fault that loses, duplicates and reorders.
cases=tests/conformance/conformance_inprocess
lossy='drop rate=0.01; duplicate rate=0.02; reorder rate=0.01'
very_lossy='drop rate=0.1; duplicate rate=0.1; reorder rate=0.1'
breaks='break rate=0.002 count=40'

# The line of the rank that failed may be far above the end of the output.
failed() { tail -n 50 "$work/out"; grep -a '^FAIL' "$work/out" | head -n 5; fail "$*"; }

# Cases: most for runs that try other settings, whole (all) for the main settings. With sanitizers there are fewer of both.
most=most whole=
case_seconds=170
if sanitized; then
	most=several whole=most
	case_seconds=400
fi

# run_cases COMMAND...: has to end in time, and to have run at least one case.
run_cases()
{
	timeout -k 5 $case_seconds "$@" >"$work/out" 2>&1 || failed "$@"
	grep -q '[1-9][0-9]* cases passed' "$work/out" || { cat "$work/out"; fail "$*: no case ran"; }
	echo "ok: $*"
}

# launch SECONDS RANKS [mpirun option ...] PROGRAM [argument ...]
launch()
{
	seconds=$1 ranks=$2
	shift 2
	timeout -k 5 "$seconds" "$mpirun" --oversubscribe --bind-to none -n "$ranks" "$@"
}

# Of tests that go on after a failure: what went wrong, with the end of the log.
checks=0
failures=0
complain()
{
	echo "FAILED: $*"
	tail -n 20 "$work/log"
	failures=$((failures + 1))
}
