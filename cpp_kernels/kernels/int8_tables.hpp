// The INT8 kernels that this build holds; as in tables.hpp.
#pragma once

#include "kernels/int8.hpp"

namespace vla {

const Int8Table* int8_portable_kernels();  // never null
const Int8Table* int8_avx2_kernels();
const Int8Table* int8_avxvnni_kernels();
const Int8Table* int8_avx512_kernels();
const Int8Table* int8_avx512vnni_kernels();
const Int8Table* int8_neon_kernels();
const Int8Table* int8_neondot_kernels();

}  // namespace vla
