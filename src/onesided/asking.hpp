// Asks the owners of memory for operations that this rank cannot do itself; wire.hpp draws the messages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onesided/targets.hpp"

namespace pt2p::onesided {

class Asker {
public:
	// Whose operations they are.
	class Client {
	public:
		// The owner has answered. With a signal, the operation goes on.
		virtual void advance(Operation &operation, pt2p_status_t status, std::string_view reason = {}) = 0;
		virtual void finish(Operation &operation, pt2p_status_t status, std::string_view reason = {}) = 0;

	protected:
		~Client() = default;
	};
	Asker(Operations &operations, Targets &targets, Client &client)
	    : operations_(operations), targets_(targets), client_(client)
	{
	}

	// False when there is no room now and nothing has happened.
	bool ask(Operation &operation);
	// Sends pieces of a put that there is room for; returns how many.
	unsigned stream(Target &target);
	// Answers. Null, or what is wrong with them.
	const char *on_data(Target &target, uint64_t token, const void *data, size_t length);
	const char *on_result(Target &target, uint64_t token, const void *data, size_t length);

private:
	bool ask_put(Operation &operation, Channel &channel);
	Operation *asked(uint64_t token, const Target &target);

	Operations &operations_;
	Targets &targets_;
	Client &client_;
};

} // namespace pt2p::onesided
