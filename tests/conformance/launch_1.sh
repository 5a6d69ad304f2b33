#!/bin/sh
srcdir=${srcdir:-.} exec sh "${srcdir:-.}/tests/conformance/launch.sh" 1
