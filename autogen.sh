#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes configure from configure.ac.
cd "$(dirname "$0")" && mkdir -p m4 && exec autoreconf --install --force
