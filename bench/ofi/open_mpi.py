# SPDX-License-Identifier: BSD-3-Clause
"""Programs of Open MPI over libpt2p's provider, and over Open MPI's own shared memory."""
import os
import shutil
import subprocess

SOURCE = os.path.dirname(os.path.abspath(__file__))
OFI = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include"]
PROVIDER, OB1 = OFI + ["pt2p"], ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
ANYWHERE = ["--oversubscribe", "--bind-to", "none"]


def compile(source, build):
    """The path of the program of a source beside this file; None: there is no compiler."""
    compiler = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
    if not compiler:
        return None
    name = os.path.splitext(os.path.basename(source))[0]
    program = os.path.join(build, "bench", name + ".openmpi")
    os.makedirs(os.path.dirname(program), exist_ok=True)
    subprocess.run([compiler, "-O2", "-w", os.path.join(SOURCE, source), "-o", program], check=True)
    return program


def run(build, ranks, options, command, placement=ANYWHERE, **variables):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PT2P_CONF="/dev/null",
                       FI_PROVIDER_PATH=os.path.join(os.path.abspath(build), ".libs"), **variables)
    mpirun = shutil.which("mpirun.openmpi") or "mpirun"
    return subprocess.run([mpirun, "-n", str(ranks)] + placement + options + command, capture_output=True, text=True,
                          timeout=300, env=environment)
