#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree. Endpoints in one process.
. "${srcdir:-.}/tests/common.sh"
FI_PROVIDER_PATH=$PWD/.libs
# An endpoint that is closed drives what is under way for so long; its peer in this process cannot help meanwhile.
PT2P_FINALIZE_TIME=300ms
export FI_PROVIDER_PATH PT2P_FINALIZE_TIME
timeout -k 5 300 tests/ofi/ofi_tests "$@" || fail "ofi_tests"
