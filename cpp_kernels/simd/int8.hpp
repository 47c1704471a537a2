// Small integer vectors for the INT8 products, over the Vec of the same registers.
//
// The build compiles each INT8 source once per variant, with VLA_ISA as the namespace, the instruction set of Vec as
// in vec.hpp, and where the variant has an instruction for sums of products of bytes, VLA_INT8_DOT; where its products are
// of 16 bits, VLA_INT8_WIDE. A variant defines
//   Quantized      the form of a quantized input value, which is kept with kZeroPoint added
//   PackedWeight   the form of a quantized weight
//   kGroup         how many products multiply_add sums: those of a group of adjacent input values of one row with the
//                  weights that Vec::kWidth channels have for them, into one Sums lane per channel
//   weight_place   where the weight of a channel (lane) for a value of the group is among those
// Sums wrap around and never saturate.
#pragma once

#include "simd/vec.hpp"

#if defined(VLA_ISA_AVX512)
#include "simd/int8_avx512.hpp"
#elif defined(VLA_ISA_AVX2)
#include "simd/int8_avx2.hpp"
#elif defined(VLA_ISA_NEON)
#include "simd/int8_neon.hpp"
#else
#include "simd/int8_portable.hpp"
#endif
