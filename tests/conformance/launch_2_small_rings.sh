#!/bin/sh
srcdir=${srcdir:-.} exec sh "${srcdir:-.}/tests/conformance/launch.sh" 2 PT2P_SHM_RING_SLOTS=8 PT2P_SHM_RING_BYTES=4096
