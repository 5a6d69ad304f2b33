// The functions of libc that hooks.cpp stands in front of.
#pragma once

#include <sys/types.h>

struct stat;

namespace softhca::real {

int close(int fd);
int fstat(int fd, struct stat *status);

} // namespace softhca::real
