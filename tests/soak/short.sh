#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Some ten seconds of the soak, always the same runs.
SOAK_RUNS=12
export SOAK_RUNS
exec sh "${srcdir:-.}/tests/soak/run" 100 55
