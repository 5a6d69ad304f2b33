// The functions of libc that libc_hooks.cpp interposes.
#pragma once

#include <sys/types.h>

struct stat;

namespace softhca::real {

int close(int fd);
int fstat(int fd, struct stat *status);
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int munmap(void *address, size_t bytes);

} // namespace softhca::real
