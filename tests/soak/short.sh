#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Some ten seconds of the soak, always the same runs. mpirun runs below softhca here, and has leaks.
ASAN_OPTIONS=detect_leaks=0
export ASAN_OPTIONS
run() { SOAK_RUNS=$1 sh "${srcdir:-.}/tests/soak/run" 100 "$2"; }
run 12 55 || exit
# A forwarder whose node has another shape: messages must not be longer than its own channels take.
run 1 157
