// The layers below the engine. They need the engine to be made, so they come after it.
#pragma once

namespace pt2p {

class Progress;
class Router;

struct Layers {
	Router *router = nullptr;
	Progress *progress = nullptr;
};

} // namespace pt2p
