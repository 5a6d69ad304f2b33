// SPDX-License-Identifier: BSD-3-Clause
//
// A key-value store whose partitions are on the ranks of a job. Each key belongs to one partition, and one thread alone
// works on a partition (exclusive read, exclusive write). Clients reach it by calls. See kv --help.
//
//     mpirun -n 4 ./kv bench
#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>
#include <new>
#include <optional>
#include <string>

#include <pt2p.hpp>

#include "bench.hpp"
#include "hot_keys.hpp"
#include "server.hpp"
#include "shell.hpp"

using namespace kv;

static const char help[] = R"(usage: mpirun -n RANKS kv [OPTION ...] [COMMAND [ARGUMENT ...]]

A key-value store in the memory of the ranks. It lives as long as the job: rank 0 carries out commands, one after the
other, and at the end the store is gone. Commands come from, in this order: options -e, the file of --script, the
command line; or from the standard input, one on a line, when there is none of them.

    mpirun -n 4 kv -e 'load users.tsv' -e 'get alice bob'
    mpirun -n 4 kv                                           then type commands; the end of the input ends the job
    mpirun -n 8 kv --servers 1 --threads 4 bench get=95 time=5

Options:
  --memory SIZE   of each rank that serves, with the index: 64k ... 64g (default 64m)
  --cache         when memory is full, evict items that were not used lately. Else a put is refused then
  --servers N     the first N ranks serve, the others are clients only (default: all ranks are both)
  --threads N     N partitions on each rank that serves, each with a thread (default 0: one partition without a thread,
                  whose calls are handled when the rank itself waits or makes calls)
  -e COMMAND      a command; may be repeated
  --script FILE   commands, one on a line; those that begin with # are left out
  --help

Commands:
  get KEY ...     prints the values; one call for each partition, however many keys
  put KEY VALUE   the value is the rest of the line
  delete KEY
  load FILE       puts all lines of a file: KEY, a tab or else "=", VALUE
  stats           what each partition holds and has done
  help, quit
  bench [NAME=VALUE ...]   load like YCSB from all clients at the same time. Prints rate, latency and each rank's
                           share. Its items stay in the store
      get=95          gets, per cent; the others are puts
      keys=100000     items; they are loaded first, unless load=no
      distribution=zipf|uniform    zipf: with 0.99
      value=32        bytes; mix: 1 ... 899, 43 in the mean
      depth=16        calls that a client has under way
      time=1          seconds; or count=N, calls of each client
      verify=no       yes: check that each value belongs to its key
      seed=1
  check [NAME=VALUE ...]   all clients work on the keys check-0, check-1, ..., and what they see is checked: it
                           must be linearizable. The keys are deleted before and after
      keys=4 count=1000 depth=2 seed=1    count: operations of each client; depth: those under way, at most 4
      lose=N          the store loses one of N puts, to show that the check finds it

Keys have 1 to 255 bytes, values up to 512 KiB, and up to a 32nd of a partition's memory. Status 0: all commands were
carried out and found what they asked for. 1: one was not. 2: wrong arguments. Tunables of the library (PT2P_TRANSPORTS
and others) work as always: pt2p_info --config. With PT2P_NET_DELIVERY=write and PT2P_CALL_REPLY_BY=datagram a store on
RDMA devices works as HERD does: requests are written into its memory, and replies go by datagram.
)";

struct Options {
	size_t memory = 64 << 20;
	unsigned threads = 0;
	int servers = 0; // 0: all ranks
	bool cache = false, help = false;
	std::deque<std::string> commands;
	std::string script, command;

	void read(int argc, char **argv)
	{
		int i = 1;
		for (; i < argc && argv[i][0] == '-'; ++i) {
			const std::string name = argv[i];
			const auto argument = [&] {
				if (++i == argc)
					throw Mistake(name + " needs a value");
				return std::string(argv[i]);
			};
			if (name == "--help" || name == "-h")
				help = true;
			else if (name == "--cache")
				cache = true;
			else if (name == "--memory")
				memory = static_cast<size_t>(number(name, argument(), Store::min_memory, Store::max_memory, 1024));
			else if (name == "--servers")
				servers = static_cast<int>(number(name, argument(), 1, 1e6));
			else if (name == "--threads")
				threads = static_cast<unsigned>(number(name, argument(), 0, 256));
			else if (name == "-e")
				commands.push_back(argument());
			else if (name == "--script")
				script = argument();
			else
				throw Mistake("there is no option " + name + "; see kv --help");
		}
		for (; i < argc; ++i)
			command += (command.empty() ? "" : " ") + std::string(argv[i]);
		if (memory / std::max(threads, 1u) < Store::min_memory)
			throw Mistake("--memory: each of the " + std::to_string(threads) + " partitions of a rank needs 64k");
	}
};

// What rank 0 has all ranks do.
struct Job {
	enum { bench, check, quit } what = quit;
	BenchSettings bench_settings;
	CheckSettings check_settings;
};
static constexpr uint64_t tag_job = 1;

class Program {
public:
	Program(pt2p::context &ctx, const Options &options)
	    : ctx_(ctx), options_(options), layout_{options.servers, std::max(options.threads, 1u)},
	      first_client_(options.servers < ctx.size() ? options.servers : 0)
	{
		if (ctx.rank() < options.servers)
			server_.emplace(ctx, options.threads, options.memory, options.cache);
		ctx.barrier(); // the services are open
	}

	int run()
	{
		bool good = true;
		if (ctx_.rank() == 0)
			good = command();
		else
			obey();
		ctx_.barrier(); // nobody calls any more
		return !good;
	}

private:
	// Rank 0.
	bool command()
	{
		Shell shell(ctx_, layout_);
		bool good = read_script();
		for (std::string line; next(line) && line != "quit";) {
			try {
				good &= carry_out(shell, line);
			} catch (const Mistake &mistake) {
				std::fprintf(stderr, "kv: %s\n", mistake.what());
				good = false;
			}
			std::fflush(stdout);
		}
		to_all(Job());
		return good;
	}
	bool carry_out(Shell &shell, const std::string &line)
	{
		const size_t begin = line.find_first_not_of(' '), end = std::min(line.find(' ', begin), line.size());
		if (begin == std::string::npos || line[begin] == '#')
			return true;
		const std::string name = line.substr(begin, end - begin), rest = line.substr(std::min(end + 1, line.size()));
		Job job;
		if (name == "help") {
			std::fputs(help, stdout);
			return true;
		}
		if (name == "bench") {
			job.what = Job::bench;
			job.bench_settings = BenchSettings::from(rest);
		} else if (name == "check") {
			job.what = Job::check;
			job.check_settings = CheckSettings::from(rest);
		} else {
			bool known = true;
			try {
				known = shell.run(name, rest);
			} catch (const pt2p::error &error) { // a rank is lost, with its keys; others can be asked
				throw Mistake(error.what());
			}
			if (!known)
				throw Mistake("there is no command \"" + name + "\"; try help");
			return true;
		}
		to_all(job);
		return take_part(job);
	}
	// Adds the other commands to those of -e.
	bool read_script()
	{
		typed_ = options_.commands.empty() && options_.script.empty() && options_.command.empty();
		bool good = true;
		if (!options_.script.empty()) {
			std::ifstream file(options_.script);
			for (std::string line; std::getline(file, line);)
				options_.commands.push_back(line);
			good = file.eof();
			if (!good)
				std::fprintf(stderr, "kv: cannot read \"%s\"\n", options_.script.c_str());
		}
		if (!options_.command.empty())
			options_.commands.push_back(options_.command);
		return good;
	}
	bool next(std::string &line)
	{
		if (typed_)
			return static_cast<bool>(std::getline(std::cin, line));
		if (options_.commands.empty())
			return false;
		line = options_.commands.front();
		options_.commands.pop_front();
		return true;
	}
	// A rank that is lost keeps nobody from getting it.
	void to_all(const Job &job)
	{
		std::optional<pt2p::error> lost;
		for (int rank = 1; rank < ctx_.size(); ++rank)
			try {
				ctx_.send(job, rank, tag_job);
			} catch (const pt2p::error &error) {
				lost = error;
			}
		if (lost)
			throw *lost;
	}

	// The other ranks. While they wait here, they serve.
	void obey()
	{
		Job job;
		while (ctx_.recv(job, 0, tag_job), job.what != Job::quit)
			take_part(job);
	}

	bool take_part(const Job &job)
	{
		if (job.what == Job::bench)
			return Bench(ctx_, layout_, first_client_, job.bench_settings).run();
		return HotKeys(ctx_, layout_, first_client_, server_ ? &*server_ : nullptr, job.check_settings).run();
	}

	pt2p::context &ctx_;
	Options options_;
	const Layout layout_;
	const int first_client_;
	std::optional<Server> server_;
	bool typed_ = false; // commands come from the standard input
};

int main(int argc, char **argv)
{
	Options options;
	std::string mistake; // told by rank 0 alone
	try {
		options.read(argc, argv);
	} catch (const Mistake &e) {
		mistake = e.what();
	}
	int rank = 0, status = 2;
	try {
		pt2p::context ctx(options.threads ? PT2P_THREAD_MULTIPLE : PT2P_THREAD_SINGLE);
		rank = ctx.rank();
		if (options.servers > ctx.size())
			mistake =
			    "--servers " + std::to_string(options.servers) + ": there are " + std::to_string(ctx.size()) + " ranks";
		if (!options.servers)
			options.servers = ctx.size();
		if (options.help)
			std::fputs(rank == 0 ? help : "", stdout), status = 0;
		else if (mistake.empty())
			status = Program(ctx, options).run();
		else if (rank == 0)
			std::fprintf(stderr, "kv: %s\n", mistake.c_str());
		if (!mistake.empty())
			ctx.barrier(); // mpirun kills the others as soon as one ends like this
		ctx.finalize();
	} catch (const pt2p::error &error) {
		std::fprintf(stderr, "kv: rank %d ends: %s\n", rank, error.what());
		return 1;
	} catch (const std::bad_alloc &) {
		std::fprintf(stderr, "kv: rank %d ends: there is not so much memory. Give less by --memory\n", rank);
		return 1;
	}
	return status;
}
