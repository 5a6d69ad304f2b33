// The first device, opened, and a protection domain. Both must be destroyed without an error.
#pragma once

#include <catch2/catch.hpp>

#include <infiniband/verbs.h>

struct Device {
	Device()
	{
		ibv_device **list = ibv_get_device_list(nullptr);
		REQUIRE(list);
		REQUIRE(list[0]);
		context = ibv_open_device(list[0]);
		ibv_free_device_list(list);
		REQUIRE(context);
		pd = ibv_alloc_pd(context);
		REQUIRE(pd);
	}
	~Device()
	{
		CHECK(ibv_dealloc_pd(pd) == 0);
		CHECK(ibv_close_device(context) == 0);
	}
	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;

	ibv_context *context = nullptr;
	ibv_pd *pd = nullptr;
};
