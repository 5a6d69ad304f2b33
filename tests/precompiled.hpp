// SPDX-License-Identifier: BSD-3-Clause
// What most tests include, precompiled (see tests.am). Each test still has to include what it needs: without Catch2
// nothing is precompiled.
#include <catch2/catch.hpp>
#include <numeric>

#include "base/precompiled.hpp"
