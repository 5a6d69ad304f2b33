// Preconditions inside the library. Arguments of callers are checked where they come in, and a peer's bytes where they
// are read; this is for what only a mistake of the library can break.
#pragma once

#include <cstdio>
#include <cstdlib>

// PT2P_CHECKED is defined with --enable-debug and --enable-sanitizers; without it the condition is not evaluated.
#ifdef PT2P_CHECKED
#define PT2P_ASSERT(condition)                                                                                         \
	(__builtin_expect(!(condition), 0)                                                                                 \
	     ? (std::fprintf(stderr, "%s:%d: Assertion `%s' failed.\n", __FILE__, __LINE__, #condition), std::abort())     \
	     : void())
#else
#define PT2P_ASSERT(condition) static_cast<void>(sizeof(!(condition)))
#endif
