#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Some ten seconds of the soak, always the same runs. mpirun, which runs below softhca here, leaks on its own.
ASAN_OPTIONS=detect_leaks=0
export ASAN_OPTIONS
run() { SOAK_RUNS=$1 sh "${srcdir:-.}/tests/soak/run" 100 "$2"; }
run 12 55 || exit
# Messages that a rank of another shape of node forwards: no longer than the forwarder's own ways take.
run 1 157
