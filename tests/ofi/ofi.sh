#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree. Endpoints in one process.
. "${srcdir:-.}/tests/common.sh"
FI_PROVIDER_PATH=$PWD/.libs
export FI_PROVIDER_PATH
timeout -k 5 300 tests/ofi/ofi_tests "$@" || fail "ofi_tests"
