#!/bin/sh
srcdir=${srcdir:-.} exec sh "${srcdir:-.}/tests/conformance/launch.sh" 2 PT2P_SHM_SINGLE_COPY=0
