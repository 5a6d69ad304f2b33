// SPDX-License-Identifier: BSD-3-Clause
//
// What heat3d.cpp needs besides messages: n x n x n points shared out over a 3-D grid of ranks, and a picture.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

struct Grid {
	int ranks[3]; // along each axis: three factors of their number, as equal as possible

	explicit Grid(int n) : ranks{n, 1, 1}
	{
		for (int a = 1; a * a * a <= n; ++a)
			for (int b = a; n % a == 0 && a * b * b <= n; ++b)
				if (n / a % b == 0 && a + b + n / a / b < ranks[0] + ranks[1] + ranks[2])
					ranks[0] = n / a / b, ranks[1] = b, ranks[2] = a;
	}
};

struct Block { // the points first[a] ... first[a] + count[a] - 1 along each axis belong to one rank
	int first[3], count[3];
	int neighbour[6]; // ranks below and above along each axis; -1: the wall

	Block(const Grid &grid, int rank, int n)
	{
		const int *p = grid.ranks;
		const int at[3] = {rank / (p[1] * p[2]), rank / p[2] % p[1], rank % p[2]}, step[3] = {p[1] * p[2], p[2], 1};
		for (int a = 0; a < 3; ++a) {
			first[a] = n * at[a] / p[a];
			count[a] = n * (at[a] + 1) / p[a] - first[a];
			neighbour[2 * a] = at[a] > 0 ? rank - step[a] : -1;
			neighbour[2 * a + 1] = at[a] + 1 < p[a] ? rank + step[a] : -1;
		}
	}
};

template <class F>
inline void loop(int x0, int x1, int y0, int y1, int z0, int z1, F &&f) // both ends included
{
	for (int x = x0; x <= x1; ++x)
		for (int y = y0; y <= y1; ++y)
			for (int z = z0; z <= z1; ++z)
				f(x, y, z);
}

inline double seconds()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Writes rows of `width` values as a grey picture (PGM), the largest of them white.
inline bool write_pgm(const std::string &path, const std::vector<double> &values, int width)
{
	const double white = std::max(*std::max_element(values.begin(), values.end()), 1e-300);
	std::FILE *file = std::fopen(path.c_str(), "wb");
	if (!file)
		return false;
	std::fprintf(file, "P5\n%d %d\n255\n", width, static_cast<int>(values.size() / width));
	for (double value : values)
		std::fputc(static_cast<int>(std::lround(255 * std::clamp(value / white, 0.0, 1.0))), file);
	const bool failed = std::ferror(file) != 0;
	return std::fclose(file) == 0 && !failed;
}
