// The attributes of one RDMA_VERBS_IOCTL, with the kernel's rules: data of up to eight bytes lies in the attribute
// itself when it goes in, longer data and everything that comes out is pointed to.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <rdma/rdma_user_ioctl_cmds.h>

namespace softhca {

class Attributes {
public:
	explicit Attributes(ib_uverbs_ioctl_hdr &header) : header_(header) {}

	ib_uverbs_attr *find(uint16_t id) const
	{
		for (unsigned i = 0; i < header_.num_attrs; ++i)
			if (header_.attrs[i].attr_id == id)
				return &header_.attrs[i];
		return nullptr;
	}
	// As much of `value` as the user has given; the rest is zero. ENOSPC, as from the kernel, when there is nothing.
	template <class T>
	int in(uint16_t id, T &value) const
	{
		const ib_uverbs_attr *a = find(id);
		std::memset(&value, 0, sizeof value);
		if (!a)
			return ENOSPC;
		const void *data = a->len <= sizeof a->data ? static_cast<const void *>(&a->data) : pointer(*a);
		if (!data)
			return EFAULT;
		std::memcpy(&value, data, std::min<size_t>(sizeof value, a->len));
		return 0;
	}
	// As much of `value` as the user has room for; an output that was not asked for is dropped.
	template <class T>
	int out(uint16_t id, const T &value) const
	{
		ib_uverbs_attr *a = find(id);
		if (!a)
			return 0;
		if (!a->data)
			return EFAULT;
		std::memcpy(pointer(*a), &value, std::min<size_t>(sizeof value, a->len));
		a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
		return 0;
	}
	// A handle or descriptor, which lies in the attribute in both directions.
	int out_value(uint16_t id, uint64_t value) const
	{
		ib_uverbs_attr *a = find(id);
		if (!a)
			return EINVAL;
		a->data = value;
		a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
		return 0;
	}

private:
	static void *pointer(const ib_uverbs_attr &a) { return reinterpret_cast<void *>(static_cast<uintptr_t>(a.data)); }

	ib_uverbs_ioctl_hdr &header_;
};

} // namespace softhca
