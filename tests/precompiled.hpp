// SPDX-License-Identifier: BSD-3-Clause
// What most tests include, precompiled (see tests.am). Each test still has to include what it needs: without Catch2
// nothing is precompiled.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>
