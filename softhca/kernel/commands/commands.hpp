// The commands of a device file. Each reads its input from the attributes and writes its output to them; 0 or an errno.
// All are called with the NIC's lock held.
#pragma once

#include <cstdint>
#include <memory>

#include "softhca/kernel/objects.hpp"

namespace softhca {
class Attributes;
class Context;
struct Qp;
} // namespace softhca

namespace softhca::commands {

// write_commands.cpp: dispatches the older ones.
int invoke_write(Context &context, Attributes &attributes);

// device_commands.cpp
int get_context(Context &context, Attributes &attributes);
int query_device(Context &context, Attributes &attributes);
int query_port(Context &context, Attributes &attributes);
int alloc_async_fd(Context &context, Attributes &attributes);
int alloc_uar(Context &context, Attributes &attributes);
int destroy_uar(Context &context, Attributes &attributes);

// memory_commands.cpp
int alloc_pd(Context &context, Attributes &attributes);
int dealloc_pd(Context &context, Attributes &attributes);
int reg_mr(Context &context, Attributes &attributes);
int rereg_mr(Context &context, Attributes &attributes);
int dereg_mr(Context &context, Attributes &attributes);
int check_access(uint32_t flags);
// Null when the region is refused.
std::shared_ptr<Mr> add_mr(Context &context, Mr &&region, uint32_t &handle);
int remove_mr(Context &context, uint32_t handle);

// cq_commands.cpp
int create_comp_channel(Context &context, Attributes &attributes);
int create_cq(Context &context, Attributes &attributes, bool extended);
int resize_cq(Context &context, Attributes &attributes);
int destroy_cq(Context &context, Attributes &attributes);
// How many of the asynchronous events of an object, of `raised`, the program has read; the others are taken back.
uint32_t read_events(Context &context, uint64_t element, uint32_t raised);

// srq_commands.cpp
int create_srq(Context &context, Attributes &attributes);
int modify_srq(Context &context, Attributes &attributes);
int query_srq(Context &context, Attributes &attributes);
int destroy_srq(Context &context, Attributes &attributes);

// qp_commands.cpp
int create_qp(Context &context, Attributes &attributes, bool extended);
int modify_qp(Context &context, Attributes &attributes, bool extended);
int query_qp(Context &context, Attributes &attributes);
int destroy_qp(Context &context, Attributes &attributes);
void remove_qp(Qp &qp);

// dm_commands.cpp
int alloc_dm(Context &context, Attributes &attributes);
int free_dm(Context &context, Attributes &attributes);
int reg_dm_mr(Context &context, Attributes &attributes);

} // namespace softhca::commands
