// SPDX-License-Identifier: BSD-3-Clause
//
// The heat equation u_t = u_xx + u_yy + u_zz in a unit cube with cold walls. The n x n x n points are shared out over a
// 3-D grid of ranks. In each step a rank exchanges six faces with its neighbours while it computes its inside. The
// result is checked against the analytic solution sin(pi x) sin(pi y) sin(pi z) exp(-3 pi^2 t).
//
//     mpirun -n 8 ./heat3d [-n points] [-s steps] [-o slice.pgm]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

#include "grid3d.hpp"
#include <pt2p.hpp>

enum : uint64_t { FIGURES = 6, SLICE = 7 }; // tags; 0 ... 5 are the directions in which faces travel

static const double pi = std::acos(-1.0);
static constexpr double ratio = 0.125; // time step / (distance of two points)^2

// The points of one rank, and around them one layer of halo: copies of the neighbours' points, or zero at a wall.
class Field {
public:
	Field(const Block &block, int n) : my(block), c(my.count), sy(c[2] + 2), sx((c[1] + 2) * sy), h(1.0 / (n + 1))
	{
		u.resize(size_t(c[0] + 2) * sx);
		next.resize(u.size());
		for (int d = 0; d < 6; ++d)
			in[d].resize(size_t(c[0]) * c[1] * c[2] / c[d / 2]), out[d].resize(in[d].size());
		loop(1, c[0], 1, c[1], 1, c[2], [&](int x, int y, int z) { u[at(x, y, z)] = initial(x, y, z); });
	}

	Field(const Field &) = delete;

	void step(pt2p::context &ctx)
	{
		const auto compute = [&](int x, int y, int z) { update(x, y, z); };
		pt2p::request requests[12]; // empty where there is a wall
		double start = seconds();
		start_exchange(ctx, requests);
		talking += seconds() - start;
		loop(2, c[0] - 1, 2, c[1] - 1, 2, c[2] - 1, compute); // the inside needs no halo
		start = seconds();
		finish_exchange(requests);
		talking += seconds() - start;
		for (int side = 0; side < 2; ++side) { // the outermost points need it
			const int x = side ? c[0] : 1, y = side ? c[1] : 1, z = side ? c[2] : 1;
			loop(x, x, 1, c[1], 1, c[2], compute);
			loop(2, c[0] - 1, y, y, 1, c[2], compute);
			loop(2, c[0] - 1, 2, c[1] - 1, z, z, compute);
		}
		u.swap(next);
	}

	double largest_error(double time) const
	{
		double error = 0;
		loop(1, c[0], 1, c[1], 1, c[2], [&](int x, int y, int z) {
			error = std::max(error, std::abs(u[at(x, y, z)] - initial(x, y, z) * std::exp(-3 * pi * pi * time)));
		});
		return error;
	}

	std::vector<double> slice(int z) const // the own points in the plane z of the cube, if there are any
	{
		std::vector<double> values;
		z -= my.first[2] - 1;
		if (z >= 1 && z <= c[2])
			loop(1, c[0], 1, c[1], z, z, [&](int x, int y, int) { values.push_back(u[at(x, y, z)]); });
		return values;
	}

	double talking = 0; // seconds in communication

private:
	size_t at(int x, int y, int z) const { return size_t(x) * sx + size_t(y) * sy + z; } // own points start at 1
	double sine(int axis, int i) const { return std::sin(pi * h * (my.first[axis] + i)); }
	double initial(int x, int y, int z) const { return sine(0, x) * sine(1, y) * sine(2, z); }

	void update(int x, int y, int z)
	{
		const double *v = &u[at(x, y, z)];
		next[at(x, y, z)] = *v + ratio * (v[-sx] + v[sx] + v[-sy] + v[sy] + v[-1] + v[1] - 6 * *v);
	}

	// Calls copy(point, number) for the points of one face. depth 0: the halo, 1: the outermost own points.
	template <class Copy>
	void face(int d, int depth, Copy &&copy)
	{
		const int a = d / 2, b = a == 0 ? 1 : 0, e = a == 2 ? 1 : 2;
		int i[3], k = 0;
		i[a] = d % 2 ? c[a] + 1 - depth : depth;
		for (i[b] = 1; i[b] <= c[b]; ++i[b])
			for (i[e] = 1; i[e] <= c[e]; ++i[e])
				copy(u[at(i[0], i[1], i[2])], k++);
	}

	// Receives are posted before anything is sent, so that each face goes straight to its place.
	void start_exchange(pt2p::context &ctx, pt2p::request *requests)
	{
		for (int d = 0; d < 6; ++d)
			if (my.neighbour[d] >= 0)
				requests[d] = ctx.irecv(std::span(in[d]), my.neighbour[d], uint64_t(d ^ 1));
		for (int d = 0; d < 6; ++d)
			if (my.neighbour[d] >= 0) {
				face(d, 1, [&](double &value, int k) { out[d][k] = value; });
				requests[6 + d] = ctx.isend(std::span<const double>(out[d]), my.neighbour[d], uint64_t(d));
			}
	}

	void finish_exchange(pt2p::request *requests)
	{
		for (int i = 0; i < 12; ++i)
			if (requests[i])
				requests[i].wait();
		for (int d = 0; d < 6; ++d)
			if (my.neighbour[d] >= 0)
				face(d, 0, [&](double &value, int k) { value = in[d][k]; });
	}

	const Block my;
	const int *const c; // own points along each axis
	const int sy, sx;   // from one point to the next along y and x
	const double h;     // distance of two points
	std::vector<double> u, next, out[6], in[6];
};

struct Figures {
	double error = 0, talking = 0, total = 0;
}; // largest error, seconds in communication, seconds

// Rank 0 prints the figures of all ranks, and draws the slice through the middle.
static bool conclude(pt2p::context &ctx, int n, int steps, Figures mine, std::vector<double> part,
                     const std::string &picture)
{
	const Grid grid(ctx.size());
	std::vector<double> slice(size_t(n) * n);
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
	// The scheme's own error is of this order. A wrong halo gives far more.
	const double h = 1.0 / (n + 1), rate = 3 * pi * pi * steps * ratio * h * h;
	const double allowed = h * h * (1 + rate) * std::exp(-rate) + 1e-14;
	const bool good = all.error < allowed;
	printf("heat3d: %d^3 points on %d x %d x %d ranks, %d steps, %.3f s, %.1f %% of it in communication\n", n,
	       grid.ranks[0], grid.ranks[1], grid.ranks[2], steps, all.total / ctx.size(), 100 * all.talking / all.total);
	printf("largest error %.2e, allowed %.2e: %s\n", all.error, allowed, good ? "verified" : "WRONG");
	const bool written = picture.empty() || write_pgm(picture, slice, n);
	if (!written)
		fprintf(stderr, "cannot write %s\n", picture.c_str());
	return good && written;
}

static bool run(pt2p::context &ctx, int n, int steps, const std::string &picture)
{
	Field field(Block(Grid(ctx.size()), ctx.rank(), n), n);
	Figures mine;
	ctx.barrier();
	const double start = seconds();
	for (int s = 0; s < steps; ++s)
		field.step(ctx);
	mine.total = seconds() - start;
	mine.talking = field.talking;
	mine.error = field.largest_error(steps * ratio / (n + 1.0) / (n + 1.0));
	const std::vector<double> part = field.slice(n / 2);
	if (ctx.rank() == 0)
		return conclude(ctx, n, steps, mine, part, picture);
	ctx.send(mine, 0, FIGURES);
	ctx.send(std::span<const double>(part), 0, SLICE);
	return true;
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
			ctx.barrier(); // the launcher ends the job when the first rank fails, so rank 0 has to print first
			return 2;
		}
		try {
			const bool good = run(ctx, n, steps, picture);
			ctx.finalize();
			return good ? 0 : 1;
		} catch (const pt2p::error &e) {
			fprintf(stderr, "%s\n", e.what());
			pt2p_abort(ctx.get(), 1, "heat3d failed"); // the others would wait for this rank for ever
		}
	} catch (const pt2p::error &e) { // could not join the job
		fprintf(stderr, "%s\n", e.what());
	}
	return 1;
}
