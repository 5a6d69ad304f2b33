#!/bin/sh
srcdir=${srcdir:-.} exec sh "${srcdir:-.}/tests/conformance/launch.sh" 4 PT2P_SHM_RING_SLOTS=8 PT2P_SHM_RING_BYTES=4096 PT2P_SHM_SINGLE_COPY=0
