// Events of the launcher: which processes are lost, or the launcher itself. They come on PMIx's thread.
#pragma once

#include <cstdint>

#include "base/job/pmix/calls.hpp"

namespace pt2p {

class EventListener {
public:
	virtual void on_lost(const pmix_proc_t &process, pmix_status_t status) = 0;
	virtual void on_server_lost() = 0;

protected:
	~EventListener() = default;
};

// Registers a listener; `token` is for unlisten(), also where PMIx refuses the registration.
pmix_status_t listen(EventListener &listener, uintptr_t &token);
// No event comes once it has returned.
void unlisten(uintptr_t token);

} // namespace pt2p
