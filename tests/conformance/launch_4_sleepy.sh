#!/bin/sh
srcdir=${srcdir:-.} exec sh "${srcdir:-.}/tests/conformance/launch.sh" 4 PT2P_SPIN_TIME=0 PT2P_YIELD_TIME=0
