// Pools: objects that are made in chunks, reused for ever and freed together. After warm-up nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace pt2p {

// Objects of one type, last released first used. T needs a default constructor; objects keep their state while free.
template <class T>
class Pool {
public:
	T *take()
	{
		if (free_.empty())
			grow();
		T *object = free_.back();
		free_.pop_back();
		return object;
	}
	void give(T *object) { free_.push_back(object); }
	size_t capacity() const { return chunks_.size() * chunk_size; }
	size_t in_use() const { return capacity() - free_.size(); }

private:
	static constexpr size_t chunk_size = 64;

	void grow()
	{
		chunks_.push_back(std::make_unique<T[]>(chunk_size));
		// Room for every object, so that give() never allocates.
		free_.reserve(capacity());
		for (size_t i = chunk_size; i > 0; --i)
			free_.push_back(&chunks_.back()[i - 1]);
	}

	std::vector<std::unique_ptr<T[]>> chunks_;
	std::vector<T *> free_;
};

// Buffers of any size: powers of two from 64 bytes to 64 KiB are kept for reuse, larger ones come from the heap.
class BufferPool {
public:
	~BufferPool()
	{
		for (auto &list : free_)
			for (void *buffer : list)
				::operator delete(buffer);
	}
	void *take(size_t bytes)
	{
		const unsigned c = size_class(bytes);
		if (c >= classes)
			return ::operator new(bytes);
		if (free_[c].empty())
			return ::operator new(smallest << c);
		void *buffer = free_[c].back();
		free_[c].pop_back();
		return buffer;
	}
	static constexpr size_t largest_kept = size_t{64} << 10;
	// `bytes` as given to take().
	void give(void *buffer, size_t bytes)
	{
		const unsigned c = size_class(bytes);
		if (c >= classes)
			::operator delete(buffer);
		else
			free_[c].push_back(buffer);
	}

private:
	static constexpr unsigned classes = 11;
	static constexpr size_t smallest = 64;
	static_assert(smallest << (classes - 1) == largest_kept);

	static unsigned size_class(size_t bytes)
	{
		unsigned c = 0;
		while (c < classes && (smallest << c) < bytes)
			++c;
		return c;
	}
	std::vector<void *> free_[classes];
};

// Objects with handles that go stale. A handle is (generation, index + 1); releasing an object changes its generation,
// so a stale, foreign or invented handle finds nothing instead of somebody else's object.
//
//   handle   63        32 31         0
//            [generation] [index + 1]
//
// T needs the members `uint64_t handle` and `T *next_free`.
template <class T>
class HandlePool {
public:
	// `salt` makes the handles of different pools differ.
	explicit HandlePool(uint32_t salt) : salt_(salt) {}

	T *take()
	{
		if (__builtin_expect(!free_, 0))
			grow();
		T *object = free_;
		take(*object);
		return object;
	}
	// The object that take() would give without allocating, or null; take(first) takes it.
	T *peek() const { return free_; }
	void take(T &first) { free_ = first.next_free; }
	void give(T *object)
	{
		object->handle += UINT64_C(1) << 32;
		object->next_free = free_;
		free_ = object;
	}
	// The object of a handle; null when there is none. A free object is not found: its generation has changed. An
	// object that was never taken can be found; the owner recognizes it by its state.
	T *find(uint64_t handle) const
	{
		const uint32_t index = static_cast<uint32_t>(handle) - 1;
		if (__builtin_expect(index >= capacity_, 0))
			return nullptr;
		T *object = &chunks_[index / chunk_size][index % chunk_size];
		return object->handle == handle ? object : nullptr;
	}
	template <class F>
	void for_each(F &&function) const
	{
		for (const auto &chunk : chunks_)
			for (size_t i = 0; i < chunk_size; ++i)
				function(chunk[i]);
	}
	size_t capacity() const { return capacity_; }

private:
	static constexpr uint32_t chunk_size = 256;

	[[gnu::noinline, gnu::cold]] void grow()
	{
		chunks_.push_back(std::make_unique<T[]>(chunk_size));
		const uint32_t base = capacity_;
		capacity_ += chunk_size;
		for (uint32_t i = chunk_size; i > 0; --i) {
			T &object = chunks_.back()[i - 1];
			object.handle = static_cast<uint64_t>(salt_) << 32 | (base + i);
			object.next_free = free_;
			free_ = &object;
		}
	}

	std::vector<std::unique_ptr<T[]>> chunks_;
	T *free_ = nullptr;
	uint32_t capacity_ = 0, salt_;
};

} // namespace pt2p
