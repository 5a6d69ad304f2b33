// The ranks that one-sided operations go to and come from.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory/work_list.hpp"
#include "message/engine.hpp"
#include "onesided/operation.hpp"

namespace pt2p::onesided {

class Targets {
public:
	explicit Targets(Engine &engine) : engine_(engine) {}

	// Made when it is first asked for.
	Target &at(int rank);
	// Null: nothing was exchanged with it yet.
	Target *find(int rank)
	{
		const auto found = targets_.find(rank);
		return found == targets_.end() ? nullptr : &found->second;
	}
	template <class F>
	void for_each(F &&function)
	{
		for (auto &[rank, target] : targets_)
			function(target);
	}
	template <class F>
	void for_each(F &&function) const
	{
		for (const auto &[rank, target] : targets_)
			function(target);
	}
	// Gives it a channel if it has none; false: that cannot be done, and `status` says why.
	bool connect(Target &target, pt2p_status_t &status)
	{
		if (!target.channel)
			target.channel = engine_.channels().reach(target.rank, status);
		return target.channel != nullptr;
	}

	// That rank will be somebody else. The target stays as long as it is used, lost for ever.
	template <class Used>
	void retire(int rank, Used &&used)
	{
		if (auto node = targets_.extract(rank))
			retired_.push_back(std::move(node));
		std::erase_if(retired_, [&](const auto &node) { return !used(node.mapped()); });
	}

	// It has work.
	void list(Target &target)
	{
		busy_.add(target);
		engine_.wake_extensions();
	}
	bool busy() const { return !busy_.empty(); }
	template <class F>
	unsigned drive(F &&function)
	{
		return busy_.drive(function);
	}

private:
	Engine &engine_;
	std::unordered_map<int, Target> targets_; // by rank
	std::vector<std::unordered_map<int, Target>::node_type> retired_;
	WorkList<Target> busy_;
};

inline Target &Targets::at(int rank)
{
	const auto [found, made] = targets_.try_emplace(rank);
	Target &t = found->second;
	if (made) {
		t.rank = rank;
		std::string reason;
		t.status = engine_.losses().status_of(rank, reason);
	}
	return t;
}

} // namespace pt2p::onesided
