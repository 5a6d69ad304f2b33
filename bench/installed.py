# SPDX-License-Identifier: BSD-3-Clause
"""The other libraries of the benches: those that bench/peers has installed in BENCH_PEERS, or the system's."""
import os
import shutil


def prefix(peer):
    """Where bench/peers has installed it, or None."""
    peers = os.environ.get("BENCH_PEERS")
    path = os.path.join(peers, peer) if peers else None
    return path if path and os.path.isdir(path) else None


def program(peer, name, system):
    """A program by its name in that library's own installation, else by the system's name for it; None: neither."""
    path = os.path.join(prefix(peer) or "", "bin", name)
    return path if prefix(peer) and os.path.exists(path) else shutil.which(system)


def ucx_prefix():
    """Of the UCX that programs are compiled with; None: the system's."""
    return os.environ.get("BENCH_UCX") or prefix("ucx")


def ucx_library():
    """Compiler flags for a program that uses UCX, and the environment that it runs in."""
    where = ucx_prefix()
    if not where:
        return [], {}
    path = ["%s/lib" % where, "%s/lib/ucx" % where, os.environ.get("LD_LIBRARY_PATH")]
    return ["-I%s/include" % where, "-L%s/lib" % where], {"LD_LIBRARY_PATH": ":".join(filter(None, path))}


def ucx_configuration(text):
    """From what ucx_info -v prints: whether checks are in what is measured."""
    checks = [what for what in ("assertions", "params-check", "logging", "debug") if "--disable-" + what not in text]
    return ("configured without --disable-%s: that is in its figures" % ", --disable-".join(checks) if checks else
            "configured for release")
