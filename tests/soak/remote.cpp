// SPDX-License-Identifier: BSD-3-Clause
#include "remote.hpp"

namespace soak {

namespace {

constexpr uint64_t tag_blob = UINT64_C(10) << 60, tag_account = UINT64_C(11) << 60;

} // namespace

uint64_t checksum(const unsigned char *data, size_t length)
{
	uint64_t h = length;
	for (size_t i = 0; i < length; i += 8) {
		uint64_t word = 0;
		memcpy(&word, data + i, std::min<size_t>(8, length - i));
		h = mix(h ^ word);
	}
	return h;
}

// ---- the window
// --------------------------------------------------------------------------------------------------------

Window::Window(Rank &rank) : rank_(rank)
{
	Random r{mix(rank.plan.seed ^ 31)};
	const size_t sizes[] = {64, 1000, 20000, 100000, 400000};
	private_ = sizes[r.below(rank.lanes() > 8 ? 4 : 5)] / 8 * 8;
	slots_ = static_cast<size_t>(rank.plan.episodes) * max_signals;
	area_ = 8 + slots_ * slot + private_;
	bytes_ = words * 8 + area_ * static_cast<size_t>(rank.lanes());
	remotes_.resize(static_cast<size_t>(rank.plan.ranks));
	accounts_.resize(remotes_.size());
	incoming_.resize(remotes_.size());
}

Window::~Window() = default;

unsigned Window::signals(int lane, int owner, size_t episode) const
{
	const uint64_t h =
	    mix(rank_.plan.seed ^ mix(static_cast<uint64_t>(lane) << 32 | static_cast<uint64_t>(owner) << 16 | episode));
	if (rank_.plan.breaks)
		return 0; // it is like an atomic operation, and may fail with the connection
	return h % 3 ? 0 : static_cast<unsigned>(h >> 32) % (max_signals + 1);
}

size_t Window::signal_length(int lane, int owner, size_t index) const
{
	const uint64_t h = mix(signal_payload(lane, owner, index));
	return h % 4 ? h / 8 % (slot + 1) : h / 8 % 33;
}

uint64_t Window::signal_payload(int lane, int owner, size_t index) const
{
	return mix(rank_.plan.seed + 5 + (static_cast<uint64_t>(lane) << 40 | static_cast<uint64_t>(owner) << 20 | index));
}

void Window::exchange(const void *out, size_t length, bool each, uint64_t tag, const std::function<void *(int)> &in,
                      size_t capacity)
{
	for (int peer = 0; peer < rank_.plan.ranks; ++peer) {
		pt2p_request_t *r = nullptr;
		if (rank_.ok(pt2p_irecv(rank_.ctx, in(peer), capacity, peer, tag, PT2P_TAG_EXACT, &r), peer,
		             "window's receive"))
			pending_.push_back({r, peer, true});
		const auto *bytes = static_cast<const unsigned char *>(out) + (each ? static_cast<size_t>(peer) * length : 0);
		if (rank_.ok(pt2p_isend(rank_.ctx, bytes, length, peer, tag, &r), peer, "window's send"))
			pending_.push_back({r, peer, false});
	}
}

bool Window::await()
{
	bool all = true;
	received_.assign(remotes_.size(), 0);
	for (const Pending &p : pending_) {
		pt2p_result_t result{};
		const bool done = rank_.ok(pt2p_wait(rank_.ctx, p.request, &result), p.peer, "window's exchange");
		if (done && p.receive)
			received_[static_cast<size_t>(p.peer)] = result.length;
		all &= done;
	}
	pending_.clear();
	return all;
}

void Window::lend()
{
	Random r{mix(rank_.plan.seed ^ mix(static_cast<uint64_t>(rank_.me) + 99))};
	allocated_ = r.one_in(2);
	if (allocated_) {
		void *address = nullptr;
		rank_.ok(pt2p_memory_allocate(rank_.ctx, bytes_, &memory_, &address), rank_.me, "pt2p_memory_allocate");
		base_ = static_cast<unsigned char *>(address);
	} else {
		const size_t shift = 8 * r.below(9);
		own_ = std::make_unique<unsigned char[]>(bytes_ + shift + 8);
		base_ = own_.get() + shift;
		rank_.ok(pt2p_memory_register(rank_.ctx, base_, bytes_, &memory_), rank_.me, "pt2p_memory_register");
	}
	size_t needed = 0;
	blob_.resize(PT2P_EXPORT_MAX);
	rank_.ok(pt2p_memory_export(rank_.ctx, memory_, blob_.data(), blob_.size(), &needed), rank_.me,
	         "pt2p_memory_export");
	blob_.resize(needed);
	blobs_.assign(remotes_.size(), std::vector<unsigned char>(PT2P_EXPORT_MAX));
	exchange(
	    blob_.data(), blob_.size(), false, tag_blob,
	    [this](int peer) { return blobs_[static_cast<size_t>(peer)].data(); }, PT2P_EXPORT_MAX);
}

void Window::take()
{
	await();
	for (int peer = 0; peer < rank_.plan.ranks; ++peer) {
		const size_t length = received_[static_cast<size_t>(peer)];
		if (length)
			rank_.ok(pt2p_memory_import(rank_.ctx, peer, blobs_[static_cast<size_t>(peer)].data(), length,
			                            &remotes_[static_cast<size_t>(peer)]),
			         peer, "pt2p_memory_import");
	}
}

void Window::changed(int owner, size_t word, uint64_t by)
{
	const std::lock_guard lock(mutex_);
	accounts_[static_cast<size_t>(owner)].change[word] += by;
}

void Window::leaves(int owner, int lane, uint64_t sum)
{
	accounts_[static_cast<size_t>(owner)].checksum[lane % rank_.plan.threads] = sum;
}

void Window::account()
{
	for (Account &a : accounts_)
		a.unknown = rank_.atomics_failed;
	exchange(
	    accounts_.data(), sizeof(Account), true, tag_account,
	    [this](int peer) { return &incoming_[static_cast<size_t>(peer)]; }, sizeof(Account));
}

void Window::verify()
{
	const bool all = await() && !rank_.has_victim();
	uint64_t unknown = 0, sum[words] = {};
	for (int peer = 0; peer < rank_.plan.ranks; ++peer) {
		const Account &a = incoming_[static_cast<size_t>(peer)];
		unknown |= a.unknown;
		for (size_t w = 0; w < words; ++w)
			sum[w] += a.change[w];
		if (!received_[static_cast<size_t>(peer)])
			continue;
		for (int t = 0; t < rank_.plan.threads; ++t) {
			const int lane = peer * rank_.plan.threads + t;
			if (checksum(base_ + private_at(lane), private_) != a.checksum[t])
				fail("what rank " + std::to_string(peer) + " has put here is not here");
		}
	}
	if (!all || unknown)
		return;
	for (size_t w = 0; w < words; ++w) {
		const uint64_t is = __atomic_load_n(reinterpret_cast<uint64_t *>(base_) + w, __ATOMIC_ACQUIRE);
		if (is != sum[w])
			fail("word " + std::to_string(w) + " is " + std::to_string(is) + ", all that was done to it makes " +
			     std::to_string(sum[w]));
	}
}

void Window::give_up()
{
	for (size_t peer = 0; peer < remotes_.size(); ++peer)
		if (remotes_[peer])
			rank_.ok(pt2p_remote_release(rank_.ctx, remotes_[peer]), static_cast<int>(peer), "pt2p_remote_release");
}

void Window::withdraw() { rank_.ok(pt2p_memory_release(rank_.ctx, memory_), rank_.me, "pt2p_memory_release"); }

// ---- the load
// ----------------------------------------------------------------------------------------------------------

RemoteLoad::RemoteLoad(Window &window, Rank &rank, int thread)
    : window_(window), rank_(rank), thread_(thread),
      me_(rank.me * rank.plan.threads + thread), random_{mix(rank.plan.seed ^ mix(static_cast<uint64_t>(me_) + 12345))},
      targets_(static_cast<size_t>(rank.plan.ranks)), seen_(static_cast<size_t>(rank.lanes()))
{
	for (Target &t : targets_)
		t.expected.resize(window.private_bytes());
}

void RemoteLoad::begin(size_t episode)
{
	left_ = rank_.plan.operations;
	for (int owner = 0; owner < rank_.plan.ranks; ++owner)
		signals_.insert(signals_.end(), window_.signals(me_, owner, episode), owner);
	random_.shuffle(signals_);
}

void RemoteLoad::start()
{
	if (!signals_.empty() && (left_ == 0 || random_.one_in(3))) {
		const int owner = signals_.back();
		signals_.pop_back();
		return signal(owner);
	}
	--left_;
	const int owner = static_cast<int>(random_.below(targets_.size()));
	if (rank_.gone(owner) || !window_.remote(owner))
		return;
	switch (random_.below(7)) {
	case 0:
	case 1: return put_or_get(owner, true);
	case 2:
	case 3: return put_or_get(owner, false);
	case 4:
		if (random_.one_in(4))
			flush(owner);
		[[fallthrough]];
	default: return atomic(owner);
	}
}

// Operations have no order without a fence.
void RemoteLoad::order(int owner, Range next)
{
	Target &t = targets_[static_cast<size_t>(owner)];
	bool overlap = false;
	for (const Range &r : t.under_way)
		overlap |= r.begin < next.end && next.begin < r.end && (r.write || next.write);
	if (overlap && random_.one_in(4)) {
		flush(owner);
	} else if (overlap || random_.one_in(20)) {
		rank_.ok(pt2p_fence(rank_.ctx, owner), owner, "pt2p_fence");
		t.under_way.clear();
	}
	t.under_way.push_back(next);
}

void RemoteLoad::started(Operation &o, pt2p_status_t status, const char *what)
{
	++rank_.counts.operations;
	if (!rank_.ok(status, o.peer, what))
		o.then(false);
	else if (o.request)
		lane_->open.push_back(&o);
	else
		unasked_.push_back(&o);
}

void RemoteLoad::put_or_get(int owner, bool put)
{
	const size_t all = window_.private_bytes();
	const size_t usual[] = {0, 8, 64, 300, 9000, all};
	const size_t length = random_.below(std::min(all, usual[random_.below(6)]) + 1),
	             at = random_.below(all - length + 1);
	order(owner, {at, at + length, put});
	Operation &o = lane_->add(Operation::What::remote, owner);
	o.buffer = std::make_unique<Buffer>(rank_.ctx, length, random_);
	pt2p_request_t **request = random_.one_in(2) ? &o.request : nullptr;
	unsigned char *expected = targets_[static_cast<size_t>(owner)].expected.data() + at, *data = o.buffer->data();
	pt2p_remote_t *remote = window_.remote(owner);
	const size_t offset = window_.private_at(me_) + at;
	if (put) {
		fill(data, length, random_.next());
		memcpy(expected, data, length);
		o.then = [&o](bool) { o.buffer->scribble(); };
		return started(o, pt2p_put(rank_.ctx, data, length, remote, offset, request), "pt2p_put");
	}
	const std::vector<unsigned char> there(expected, expected + length);
	o.buffer->scribble();
	const bool asked = request;
	o.then = [&o, there, at, asked](bool done) {
		if (!done)
			return;
		if (!std::equal(there.begin(), there.end(), o.buffer->data())) {
			size_t i = 0;
			while (o.buffer->data()[i] == there[i])
				++i;
			fail("pt2p_get of " + std::to_string(there.size()) + " bytes from " + std::to_string(at) + " of rank " +
			     std::to_string(o.peer) + ": byte " + std::to_string(i) + " is " + std::to_string(o.buffer->data()[i]) +
			     ", not " + std::to_string(there[i]) + (asked ? "" : "; a flush says that it is done"));
		}
		o.buffer->check_guards("pt2p_get");
	};
	started(o, pt2p_get(rank_.ctx, data, length, remote, offset, request), "pt2p_get");
}

// Whatever the operation, the old value tells by how much the word has changed.
void RemoteLoad::atomic(int owner)
{
	Operation &o = lane_->add(Operation::What::remote, owner);
	pt2p_request_t **request = random_.one_in(2) ? &o.request : nullptr;
	pt2p_remote_t *remote = window_.remote(owner);
	const size_t word = random_.below(Window::words);
	const unsigned kind = static_cast<unsigned>(random_.below(3));
	const bool wide = random_.one_in(2);
	const unsigned half = wide ? 0 : static_cast<unsigned>(random_.below(2));
	const size_t offset = word * 8 + 4 * half;
	// Compare-and-swap needs the right guess, so words are small numbers now and then.
	const uint64_t expected = random_.below(3), desired = random_.one_in(2) ? random_.below(3) : random_.next();
	o.then = [this, &o, owner, word, kind, wide, half, expected, desired](bool done) {
		if (!done)
			return;
		const uint64_t was = wide ? o.value : o.value32;
		uint64_t is = kind == 0 ? was + desired : kind == 1 || was == expected ? desired : was;
		if (!wide)
			is = static_cast<uint32_t>(is);
		window_.changed(owner, word, (is - was) << (32 * half));
	};
	pt2p_status_t status;
	const auto desired32 = static_cast<uint32_t>(desired);
	switch (kind) {
	case 0:
		status = wide ? pt2p_fetch_add64(rank_.ctx, remote, offset, desired, &o.value, request)
		              : pt2p_fetch_add32(rank_.ctx, remote, offset, desired32, &o.value32, request);
		break;
	case 1:
		status = wide ? pt2p_swap64(rank_.ctx, remote, offset, desired, &o.value, request)
		              : pt2p_swap32(rank_.ctx, remote, offset, desired32, &o.value32, request);
		break;
	default:
		status = wide ? pt2p_compare_swap64(rank_.ctx, remote, offset, expected, desired, &o.value, request)
		              : pt2p_compare_swap32(rank_.ctx, remote, offset, static_cast<uint32_t>(expected), desired32,
		                                    &o.value32, request);
	}
	started(o, status, "atomic operation");
}

void RemoteLoad::signal(int owner)
{
	if (rank_.gone(owner) || !window_.remote(owner))
		return;
	Target &t = targets_[static_cast<size_t>(owner)];
	const size_t index = t.signals++, length = window_.signal_length(me_, owner, index);
	const bool add = window_.signal_payload(me_, owner, 0) % 2;
	if (!add) { // a smaller number must not overwrite one that was set
		rank_.ok(pt2p_fence(rank_.ctx, owner), owner, "pt2p_fence");
		t.under_way.clear();
	}
	Operation &o = lane_->add(Operation::What::remote, owner);
	o.buffer = std::make_unique<Buffer>(rank_.ctx, length, random_);
	fill(o.buffer->data(), length, window_.signal_payload(me_, owner, index));
	o.then = [&o](bool) { o.buffer->scribble(); };
	pt2p_remote_t *remote = window_.remote(owner);
	started(o,
	        pt2p_put_signal(rank_.ctx, o.buffer->data(), length, remote, window_.slot_at(me_, index), remote,
	                        window_.signal_at(me_), add ? PT2P_SIGNAL_ADD : PT2P_SIGNAL_SET, add ? 1 : index + 1,
	                        random_.one_in(2) ? &o.request : nullptr),
	        "pt2p_put_signal");
}

void RemoteLoad::await_signals(size_t episode)
{
	if (thread_ != 0)
		return;
	for (int lane = 0; lane < rank_.lanes(); ++lane) {
		const int source = lane / rank_.plan.threads;
		size_t &seen = seen_[static_cast<size_t>(lane)];
		const size_t wanted = seen + window_.signals(lane, rank_.me, episode);
		const auto *word = reinterpret_cast<const uint64_t *>(window_.memory() + window_.signal_at(lane));
		if (wanted == seen || rank_.gone(source) ||
		    !rank_.ok(pt2p_signal_wait(rank_.ctx, word, wanted, source), source, "pt2p_signal_wait"))
			continue;
		for (; seen < wanted; ++seen)
			check(window_.memory() + window_.slot_at(lane, seen), window_.signal_length(lane, rank_.me, seen),
			      window_.signal_payload(lane, rank_.me, seen), "a signal of rank " + std::to_string(source));
	}
}

void RemoteLoad::flush(int owner)
{
	const pt2p_status_t status = pt2p_flush(rank_.ctx, owner);
	const bool lost_atomic = status != PT2P_OK && status != PT2P_ERR_PEER_LOST && rank_.plan.breaks;
	if (lost_atomic)
		rank_.atomics_failed = true;
	const bool done = lost_atomic || rank_.ok(status, owner, "pt2p_flush");
	targets_[static_cast<size_t>(owner)].under_way.clear();
	std::vector<Operation *> ended;
	std::erase_if(unasked_, [&](Operation *o) { return o->peer == owner && (ended.push_back(o), true); });
	for (Operation *o : ended)
		o->then(done && !(lost_atomic && !o->buffer));
}

void RemoteLoad::finish()
{
	for (int owner = 0; owner < rank_.plan.ranks; ++owner)
		flush(owner);
}

void RemoteLoad::last()
{
	for (int owner = 0; owner < rank_.plan.ranks; ++owner) {
		if (rank_.gone(owner) || !window_.remote(owner))
			continue;
		const std::vector<unsigned char> &expected = targets_[static_cast<size_t>(owner)].expected;
		std::vector<unsigned char> is(expected.size());
		pt2p_request_t *r = nullptr;
		const size_t offset = window_.private_at(me_);
		if (!rank_.ok(pt2p_get(rank_.ctx, is.data(), is.size(), window_.remote(owner), offset, &r), owner,
		              "the last pt2p_get") ||
		    !rank_.ok(pt2p_wait(rank_.ctx, r, nullptr), owner, "the last pt2p_get"))
			continue;
		pt2p_memory_gone(rank_.ctx, is.data(), is.size());
		if (is != expected)
			fail("what has been put at rank " + std::to_string(owner) + " is not there");
		window_.leaves(owner, me_, checksum(expected.data(), expected.size()));
	}
}

} // namespace soak
