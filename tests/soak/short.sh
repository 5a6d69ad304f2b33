#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A few seconds of the soak, always the same ones.
exec sh "${srcdir:-.}/tests/soak/run" 10 1
