// SPDX-License-Identifier: BSD-3-Clause
// pt2p_perf: latency, bandwidth and message rate between ranks. Uses the public interface alone.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "tools/perf/bench.hpp"
#include "tools/perf/print.hpp"
#include "tools/perf/routes.hpp"

namespace pt2p::perf {

namespace {

std::vector<size_t> sizes_for(Test test, const Options &options)
{
	if (!options.sizes.empty())
		return options.sizes;
	switch (test) {
	case Test::lat: return {8, 1024, 4096, 65536, 1048576};
	case Test::rate: return {8};
	case Test::call:
	case Test::windows: return {0, 32, 1024, 65536};
	case Test::echo:
	case Test::callrate: return {0, 32, 1024};
	default: return {65536, 1048576};
	}
}

// Ranks without a partner wait politely: they must not take a core from those that measure.
void sit_out(pt2p_context_t *ctx)
{
	pt2p_request_t *request = nullptr;
	must(ctx, "pt2p_irecv", pt2p_irecv(ctx, nullptr, 0, 0, kTagOver, PT2P_TAG_EXACT, &request));
	for (int done = 0; !done;) {
		const timespec nap = {0, 5000000};
		nanosleep(&nap, nullptr);
		must(ctx, "pt2p_test", pt2p_test(ctx, request, &done, nullptr));
	}
}

// The part of a leading rank.
void lead(Pair &pair, const Options &options)
{
	Bench bench(pair, options);
	if (options.demo) {
		if (pair.rank() == 0) {
			print_demo(pair, bench);
		} else {
			bench.measure(Test::lat, 8);
			bench.measure(Test::rate, 8);
			bench.measure(Test::bw, 65536);
			bench.measure(Test::bw, 1048576);
		}
	} else {
		std::vector<Point> points;
		for (Test test : options.tests)
			for (size_t size : sizes_for(test, options))
				points.push_back(bench.measure(test, size));
		if (pair.rank() == 0)
			options.json ? print_json(pair, options, points, bench) : print_table(pair, options, points, bench);
	}
	pair.dismiss();
	if (pair.rank() == 0)
		for (int r = 2 * pair.pairs(); r < pair.size(); ++r)
			must(pair.ctx(), "pt2p_send", pt2p_send(pair.ctx(), nullptr, 0, r, kTagOver));
}

int run(pt2p_context_t *ctx, const Options &options)
{
	try {
		if (options.routes) {
			show_routes(ctx);
			return 0;
		}
		Pair pair(ctx, options);
		if (options.demo && pair.rank() != 0) {
			pt2p_info_t info;
			must(ctx, "pt2p_query", pt2p_query(ctx, &info));
			must(ctx, "pt2p_send", pt2p_send(ctx, &info, sizeof info, 0, kTagPlace));
		}
		if (pair.idle())
			sit_out(ctx);
		else if (pair.leads())
			lead(pair, options);
		else
			pair.serve();
		return 0;
	} catch (const Failure &failure) {
		fprintf(stderr, "pt2p_perf: rank %d: %s\n", pt2p_rank(ctx), failure.text.c_str());
	} catch (const std::exception &e) {
		fprintf(stderr, "pt2p_perf: rank %d: %s\n", pt2p_rank(ctx), e.what());
	}
	return 1;
}

// To the file, or to standard output if that is "-".
int draw(const std::string &trace, const std::string &output)
{
	try {
		const std::string picture = drawing(trace);
		FILE *file = output == "-" ? stdout : fopen(output.c_str(), "w");
		if (file && fputs(picture.c_str(), file) >= 0 && fflush(file) == 0) {
			if (file != stdout)
				printf("%s\n", output.c_str());
			return 0;
		}
		fprintf(stderr, "pt2p_perf: %s: %s\n", output == "-" ? "standard output" : output.c_str(), strerror(errno));
	} catch (const Failure &failure) {
		fprintf(stderr, "pt2p_perf: %s\n", failure.text.c_str());
	}
	return 1;
}

// Whether this rank has sent anything by a transport that is tuned.
bool uses_device(pt2p_context_t *ctx) { return counter(ctx, "rc_messages") + counter(ctx, "dct_messages") > 0; }

} // namespace

} // namespace pt2p::perf

using namespace pt2p::perf;

int main(int argc, char **argv)
{
	Options options;
	const std::string wrong = parse_options(argc, argv, options);
	const bool only_text = !wrong.empty() || options.help;
	if (!only_text && !options.draw.empty())
		return draw(options.draw, options.output.empty() ? options.draw + ".svg" : options.output);
	if (!options.trace.empty()) {
		setenv("PT2P_TUNE_TRACE", options.trace.c_str(), 1);
		setenv("PT2P_TUNE", "on", 0);
	}
	pt2p_context_t *ctx = nullptr;
	const pt2p_status_t joined = pt2p_init(nullptr, &ctx);
	if (only_text) {
		// Launched many times over, only rank 0 has to say so. Only rank 0 fails, too: a launcher that sees another
		// rank fail ends the job, and with it what rank 0 has to say.
		const bool speaks = ctx == nullptr || pt2p_rank(ctx) == 0;
		if (speaks && !wrong.empty())
			fprintf(stderr, "pt2p_perf: %s\n", wrong.c_str());
		if (speaks)
			fputs(usage_text(), wrong.empty() ? stdout : stderr);
		if (ctx)
			pt2p_finalize(ctx);
		return speaks && !wrong.empty() ? 2 : 0;
	}
	if (joined != PT2P_OK) {
		fprintf(stderr, "pt2p_perf: %s: %s\n", pt2p_strerror(joined), pt2p_last_error(nullptr));
		return 1;
	}
	if (run(ctx, options) != 0)
		pt2p_abort(ctx, 1, "pt2p_perf failed");
	if (!options.trace.empty() && pt2p_rank(ctx) == 0 && !uses_device(ctx))
		fprintf(stderr,
		        "pt2p_perf: --tune-trace: nothing went through a network device, so there is nothing to observe\n");
	const bool lost_output = fflush(stdout) != 0 || ferror(stdout);
	const pt2p_status_t left = pt2p_finalize(ctx);
	if (left != PT2P_OK)
		fprintf(stderr, "pt2p_perf: %s\n", pt2p_last_error(nullptr));
	if (lost_output)
		fprintf(stderr, "pt2p_perf: the output could not be written\n");
	return left == PT2P_OK && !lost_output ? 0 : 1;
}
