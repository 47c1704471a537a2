// Counts the allocations of the whole process, libraries included.
#pragma once

#include <cstdint>

// False under a sanitizer, which has taken the functions already.
bool counts_allocations();

int64_t allocations();
