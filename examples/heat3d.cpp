// SPDX-License-Identifier: BSD-3-Clause
//
// The heat equation u_t = u_xx + u_yy + u_zz in a unit cube with cold walls: n x n x n points, shared out over a 3-D
// grid of ranks. Each step exchanges six faces with the neighbours while the inside is computed. The result is checked
// against the analytic solution sin(pi x) sin(pi y) sin(pi z) exp(-3 pi^2 t).
//
//     mpirun -n 8 ./heat3d [-n points] [-s steps] [-o slice.pgm]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

#include <pt2p.hpp>
#include "grid3d.hpp"

enum : uint64_t { FIGURES = 6, SLICE = 7 }; // tags; 0 ... 5 are the directions in which faces travel

struct Figures { double error = 0, talking = 0, total = 0; }; // largest error, seconds in communication, seconds

static int run(pt2p::context &ctx, int n, int steps, const std::string &picture)
{
	const Grid grid(ctx.size());
	const Block my(grid, ctx.rank(), n);
	const int *c = my.count, sy = c[2] + 2, sx = (c[1] + 2) * sy; // one layer of halo all round, zero at the walls
	const auto at = [&](int x, int y, int z) { return size_t(x) * sx + size_t(y) * sy + z; };
	const double pi = std::acos(-1.0), h = 1.0 / (n + 1), ratio = 0.125, time = steps * ratio * h * h;
	const auto sine = [&](int axis, int i) { return std::sin(pi * h * (my.first[axis] + i)); }; // own points start at 1
	const auto initial = [&](int x, int y, int z) { return sine(0, x) * sine(1, y) * sine(2, z); };
	std::vector<double> u(size_t(c[0] + 2) * sx), next(u.size()), out[6], in[6];
	loop(1, c[0], 1, c[1], 1, c[2], [&](int x, int y, int z) { u[at(x, y, z)] = initial(x, y, z); });
	for (int d = 0; d < 6; ++d)
		in[d].resize(size_t(c[0]) * c[1] * c[2] / c[d / 2]), out[d].resize(in[d].size());
	const auto face = [&](int d, int depth, auto &&copy) { // depth 0: the halo, 1: the outermost own points
		const int a = d / 2, b = a == 0 ? 1 : 0, e = a == 2 ? 1 : 2;
		int i[3], k = 0;
		i[a] = d % 2 ? c[a] + 1 - depth : depth;
		for (i[b] = 1; i[b] <= c[b]; ++i[b])
			for (i[e] = 1; i[e] <= c[e]; ++i[e])
				copy(u[at(i[0], i[1], i[2])], k++);
	};
	const auto update = [&](int x, int y, int z) {
		const double *v = &u[at(x, y, z)];
		next[at(x, y, z)] = *v + ratio * (v[-sx] + v[sx] + v[-sy] + v[sy] + v[-1] + v[1] - 6 * *v);
	};
	Figures mine;
	ctx.barrier();
	const double start = seconds();
	for (int s = 0; s < steps; ++s) {
		pt2p::request requests[12]; // empty where there is a wall
		double t = seconds();
		for (int d = 0; d < 6; ++d)
			if (my.neighbour[d] >= 0)
				requests[d] = ctx.irecv(std::span(in[d]), my.neighbour[d], uint64_t(d ^ 1));
		for (int d = 0; d < 6; ++d)
			if (my.neighbour[d] >= 0) {
				face(d, 1, [&](double &value, int k) { out[d][k] = value; });
				requests[6 + d] = ctx.isend(std::span<const double>(out[d]), my.neighbour[d], uint64_t(d));
			}
		mine.talking += seconds() - t;
		loop(2, c[0] - 1, 2, c[1] - 1, 2, c[2] - 1, update); // the inside needs no halo
		t = seconds();
		for (pt2p::request &request : requests)
			if (request)
				request.wait();
		for (int d = 0; d < 6; ++d)
			if (my.neighbour[d] >= 0)
				face(d, 0, [&](double &value, int k) { value = in[d][k]; });
		mine.talking += seconds() - t;
		for (int side = 0; side < 2; ++side) { // the shell
			const int x = side ? c[0] : 1, y = side ? c[1] : 1, z = side ? c[2] : 1;
			loop(x, x, 1, c[1], 1, c[2], update);
			loop(2, c[0] - 1, y, y, 1, c[2], update);
			loop(2, c[0] - 1, 2, c[1] - 1, z, z, update);
		}
		u.swap(next);
	}
	mine.total = seconds() - start;
	loop(1, c[0], 1, c[1], 1, c[2], [&](int x, int y, int z) {
		mine.error = std::max(mine.error, std::abs(u[at(x, y, z)] - initial(x, y, z) * std::exp(-3 * pi * pi * time)));
	});

	// Rank 0 collects the figures, and the slice through the middle from those who own a part of it.
	const int z = n / 2 - my.first[2] + 1;
	std::vector<double> part, slice(size_t(n) * n);
	if (z >= 1 && z <= c[2])
		loop(1, c[0], 1, c[1], z, z, [&](int x, int y, int) { part.push_back(u[at(x, y, z)]); });
	if (ctx.rank() != 0) {
		ctx.send(mine, 0, FIGURES);
		ctx.send(std::span<const double>(part), 0, SLICE);
		return 0;
	}
	Figures all;
	for (int r = 0; r < ctx.size(); ++r) {
		const Block block(grid, r, n);
		if (r > 0) {
			ctx.recv(mine, r, FIGURES);
			part.resize(size_t(block.count[0]) * block.count[1]);
			part.resize(ctx.recv(std::span(part), r, SLICE).length / sizeof(double));
		}
		all = {std::max(all.error, mine.error), all.talking + mine.talking, all.total + mine.total};
		for (size_t k = 0; k < part.size(); ++k)
			slice[(block.first[0] + k / block.count[1]) * n + block.first[1] + k % block.count[1]] = part[k];
	}
	// Of the order of the scheme's own error; a wrong halo is far above.
	const double rate = 3 * pi * pi * time, allowed = h * h * (1 + rate) * std::exp(-rate) + 1e-14;
	const bool good = all.error < allowed;
	printf("heat3d: %d^3 points on %d x %d x %d ranks, %d steps, %.3f s, %.1f %% of it in communication\n", n,
	       grid.ranks[0], grid.ranks[1], grid.ranks[2], steps, all.total / ctx.size(), 100 * all.talking / all.total);
	printf("largest error %.2e, allowed %.2e: %s\n", all.error, allowed, good ? "verified" : "WRONG");
	const bool written = picture.empty() || write_pgm(picture, slice, n);
	if (!written)
		fprintf(stderr, "cannot write %s\n", picture.c_str());
	return good && written ? 0 : 1;
}

int main(int argc, char **argv)
{
	int n = 64, steps = 300, option;
	const char *picture = "";
	while ((option = getopt(argc, argv, "n:s:o:")) != -1)
		if (option == 'o')
			picture = optarg;
		else
			(option == 's' ? steps : n) = optarg ? atoi(optarg) : 0; // 0 gives the usage
	try {
		pt2p::context ctx;
		if (n < 2 || n > 2048 || steps < 1 || n < Grid(ctx.size()).ranks[0]) {
			if (ctx.rank() == 0)
				fprintf(stderr, "usage: heat3d [-n points, one for each rank at least] [-s steps] [-o slice.pgm]\n");
			ctx.barrier(); // the launcher ends the job when the first rank fails: not before rank 0 has spoken
			return 2;
		}
		try {
			const int status = run(ctx, n, steps, picture);
			ctx.finalize();
			return status;
		} catch (const pt2p::error &e) {
			fprintf(stderr, "%s\n", e.what());
			pt2p_abort(ctx.get(), 1, "heat3d failed"); // the others would wait for this rank for ever
		}
	} catch (const pt2p::error &e) { // could not join the job
		fprintf(stderr, "%s\n", e.what());
	}
	return 1;
}
