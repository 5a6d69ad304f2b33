#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# rdma-core's own tests on softhca, from Debian's package of rdma-core. Below are the tests that must pass, and the
# reasons why others are skipped. Run in the build tree. Exits with 77 where the tests or pyverbs are not installed.
. "${srcdir:-.}/tests/common.sh"
# Python and its modules leave a lot of memory allocated. Sanitizers are not to report that.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS
python=/usr/bin/python3 # Debian's: pyverbs belongs to it
theirs=/usr/share/doc/rdma-core/tests
$python -c 'import pyverbs.device' 2>/dev/null || skip "pyverbs is not installed (Debian: python3-pyverbs)"
[ -e $theirs/run_tests.py ] || skip "no $theirs (Debian: rdma-core, with its documentation)"
softhca=$(pwd)/softhca/softhca

# Module and tests that have to pass wherever they exist.
cat >"$work/wanted" <<'END'
addr: create_ah destroy_ah
atomic: atomic_cmp_and_swap atomic_fetch_and_add atomic_invalid_lkey atomic_invalid_mr_access atomic_invalid_qp_access
atomic: atomic_invalid_rkey atomic_non_aligned_addr
cq: create_cq create_cq_bad_flow create_cq_with_comp_channel resize_cq
cq_events: cq_events_rc cq_events_ud
cqex: create_cq_ex create_cq_ex_bad_flow rc_traffic_cq_ex ud_traffic_cq_ex
device: create_dm create_dm_bad_flow destroy_dm destroy_dm_bad_flow dev_list dm_read dm_write dm_write_bad_flow
device: multi_process_alloc_dm open_dev phys_port_cnt_ex query_device query_device_ex query_gid query_gid_ex
device: query_gid_table query_gid_table_bad_flow query_pkey query_port query_port_bad_flow
fork: is_fork_initialized
mlx5_cq: dv_cq_cqe_size_128 dv_cq_cqe_size_64 dv_cq_cqe_size_environment_var dv_cq_cqe_size_with_bad_size
mlx5_cq: dv_cq_traffic scatter_to_cqe_control_by_qp
mlx5_dc: dc_rdma_write dc_send
mlx5_huge_page: obj_on_huge prefer_obj_on_huge
mlx5_raw_wqe: mixed_raw_wqe_traffic
mlx5_timestamp: timestamp_free_running_rc_traffic timestamp_real_time_rc_traffic
mlx5_uar: alloc_uar
mr: create_dm_mr dm_bad_access dm_bad_registration dm_remote_traffic dm_traffic mr_rereg_access
mr: mr_rereg_access_bad_flow mr_rereg_addr mr_rereg_pd reg_mr_bad_flags
parent_domain: default_allocators_rc_traffic mem_align_rc_traffic mem_align_srq_excq_rc_traffic mem_align_ud_traffic
parent_domain: without_allocators_rc_traffic
pd: alloc_pd dealloc_pd destroy_pd_twice multiple_pd_creation
qp: create_raw_qp_ex_with_illegal_caps_max_recv_sge create_raw_qp_ex_with_illegal_caps_max_recv_wr
qp: create_raw_qp_ex_with_illegal_caps_max_send_sge create_raw_qp_ex_with_illegal_caps_max_send_wr
qp: create_rc_qp_ex_no_attr create_rc_qp_ex_with_attr create_rc_qp_no_attr create_rc_qp_with_attr
qp: create_ud_qp_ex_no_attr create_ud_qp_ex_with_attr create_ud_qp_no_attr create_ud_qp_with_attr modify_ud_qp
qp: query_data_in_order query_rc_qp query_ud_qp
qpex: full_rq_bad_flow post_receive_qp_state_bad_flow post_send_qp_state_bad_flow qp_ex_rc_atomic_cmp_swp
qpex: qp_ex_rc_atomic_fetch_add qp_ex_rc_rdma_read qp_ex_rc_rdma_read_zero_size qp_ex_rc_rdma_write
qpex: qp_ex_rc_rdma_write_imm qp_ex_rc_rdma_write_zero_length qp_ex_rc_send qp_ex_rc_send_imm qp_ex_ud_send
qpex: qp_ex_ud_send_imm qp_ex_ud_zero_size rq_with_larger_sgl_bad_flow
relaxed_ordering: ro_rc_traffic ro_ud_traffic
END

# Why a test is skipped: a pattern for its reason, and a word about it.
cat >"$work/reasons" <<'END'
Ethernet|RoCE|net interface|No supported port	Ethernet, RoCE and the connection manager: the port is InfiniBand
EFA	another vendor's device
UD QP	flags that the test draws by lot: a UD queue pair with another's number
UC QP	unreliable connections: not offered
XRCD	XRC: not offered
Extended QP is not	atomic writes: not on ConnectX-5
ODP|access flags 64	on-demand paging: not offered
MW access|memory window|access flags 18	memory windows: not offered
Mkey|Mlx5DV QP	keys made by work requests, signatures, DMA: not offered
Tag matching	tag matching: not offered
CQE 128B	compressed or padded completions: not offered
DCI caps|Mapping AH	DC streams, address handles given to firmware: not on ConnectX-5
[Dd]ev[Xx]|VAR |schedule|LAG|reserved QP number|query_port|Crypto|PCI device	the firmware's interface: not offered
real time	reading the clock without a completion: memory cannot show a clock that runs
[Ii]mport	an open device given to others: libibverbs then writes commands instead of calling ioctl
dmabuf|cuda|scapy|huge pages	not on this machine
gid indices populated	the test wants an empty GID index; there is one index
END

cp -R $theirs "$work/tests" && gunzip -f "$work"/tests/*.gz || fail "cannot copy $theirs"
cat >"$work/runner.py" <<'END'
# As run_tests.py does it, but with one line for each test in a file: "module.test outcome reason".
import sys, unittest
sys.path[:0] = ['.', 'tests']
from args_parser import parser
parser.parse_args()
import tests

class Result(unittest.TestResult):
	def note(self, test, outcome, reason=''):
		module, _, name = test.id().split('.')[-3:]
		out.write(f'{module}.{name} {outcome} {" ".join(reason.split())}\n')
		out.flush()

	def addSuccess(self, test):
		self.note(test, 'passed')

	def addSkip(self, test, reason):
		self.note(test, 'skipped', reason)

	def addError(self, test, error):
		self.note(test, 'failed')
		sys.stderr.write(f'{test.id()}\n{self._exc_info_to_string(error, test)}\n')

	addFailure = addError

out = open('results', 'w')
unittest.TestLoader().loadTestsFromModule(tests).run(Result())
END
cd "$work" || exit 99
code=0
timeout -k 5 300 "$softhca" $python runner.py >out 2>&1 || code=$?
[ $code -eq 0 ] && [ -s results ] || { cat out; fail "the tests ended with $code, after: $(tail -n 1 results)"; }

while read -r module tests; do
	for test in $tests; do
		echo "test_${module%:}.test_$test"
	done
done <wanted | sort >wanted.names
cut -f 1 reasons | tr '\n' '|' | sed 's/|$//' >pattern
# A name can occur twice in a module: once is enough.
awk '$2 == "passed" { print $1 }' results | sort -u >passed
awk '$2 == "failed" { print $1 }' results | sort -u >failed
awk '$2 == "skipped"' results >skipped
cut -d ' ' -f 1 results | sort -u | comm -12 - wanted.names | comm -23 - passed >lost
# It chooses its flags at random.
grep -E '^test_qp\.[a-z_]*_ud_qp[a-z_]* ' skipped | grep 'UD QP' | cut -d ' ' -f 1 | sort -u >lot
comm -23 lost lot >lost.really
grep -Ev "^[^ ]* skipped .*($(cat pattern))" skipped >unexplained || :
echo "passed: $(grep -c ' passed ' results), failed: $(grep -c ' failed ' results), skipped: $(wc -l <skipped)"
while IFS='	' read -r reason why; do
	n=$(grep -Ec "skipped .*($reason)" skipped) || :
	[ "$n" -eq 0 ] || echo "skipped: $n: $why"
done <reasons
if [ -s failed ] || [ -s lost.really ] || [ -s unexplained ]; then
	cat out
	sed 's/^/failed: /' failed
	grep -Ff lost.really results | sed 's/^/passed before: /'
	sed 's/^/a reason that is not known: /' unexplained
	fail "rdma-core's tests"
fi
echo "pyverbs: all passed"
