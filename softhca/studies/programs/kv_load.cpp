// The loads of traffic.hpp with libpt2p.
//
//   softhca --model connectx5 --devices 16 kv_load nodes=16 workload=b PT2P_TRANSPORTS=self,rc
//
// summary: a rank whose pt2p_summary is printed at the end.
#include "softhca/studies/programs/pt2p_job.hpp"
#include "softhca/studies/programs/traffic.hpp"

namespace {

using namespace study;

class Pt2pMessenger final : public Messenger {
public:
	Pt2pMessenger(pt2p_context_t *ctx, const Load &load) : ctx_(ctx), receives_(load.receives), sends_(load.sends) {}

	void receive(size_t place, void *buffer, size_t room) override
	{
		check(ctx_, pt2p_irecv(ctx_, buffer, room, PT2P_ANY_SOURCE, 0, PT2P_TAG_EXACT, &receives_[place]), "receive");
	}
	std::optional<size_t> received(size_t place) override
	{
		int done;
		pt2p_result_t result;
		check(ctx_, pt2p_test(ctx_, receives_[place], &done, &result), "receive");
		return done ? std::optional(static_cast<size_t>(result.source)) : std::nullopt;
	}
	void send(size_t place, size_t to, const void *buffer, size_t bytes) override
	{
		check(ctx_, pt2p_isend(ctx_, buffer, bytes, static_cast<int>(to), 0, &sends_[place]), "send");
	}
	bool sent(size_t place) override
	{
		int done = !sends_[place];
		if (!done)
			check(ctx_, pt2p_test(ctx_, sends_[place], &done, nullptr), "send");
		if (done)
			sends_[place] = nullptr;
		return done;
	}
	void barrier() override { check(ctx_, pt2p_barrier(ctx_), "barrier"); }
	void finish() override
	{
		for (pt2p_request_t *receive : receives_) {
			check(ctx_, pt2p_cancel(ctx_, receive), "cancel");
			pt2p_wait(ctx_, receive, nullptr);
		}
		for (pt2p_request_t *send : sends_)
			if (send)
				check(ctx_, pt2p_wait(ctx_, send, nullptr), "send");
	}

private:
	pt2p_context_t *const ctx_;
	std::vector<pt2p_request_t *> receives_, sends_;
};

} // namespace

int main(int argc, char **argv)
{
	Study study(argc, argv, {{"summary", "no"}});
	const std::vector<std::string> &tunables = study.settings.tunables;
	{
		InprocessJob once(1, 1, {}); // memory that all contexts share is not counted
	}
	study.begin();
	const InprocessJob job(study.load.ranks, study.per_node(), tunables);
	job.run([&](pt2p_context_t *ctx) {
		Pt2pMessenger messenger(ctx, study.load);
		study.run(static_cast<size_t>(pt2p_rank(ctx)), messenger);
		std::vector<char> text(1 << 16);
		if (study.settings.text("summary") == std::to_string(pt2p_rank(ctx)) &&
		    pt2p_summary(ctx, text.data(), text.size(), nullptr) == PT2P_OK)
			std::fputs(text.data(), stderr);
	});
	study.end();
	study.print(job.counter("forwarded"));
}
