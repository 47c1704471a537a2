// The entry points of one INT8 variant, as int8_table.cpp collects them; see int8.hpp for what they do.
#pragma once

#include "kernels/int8.hpp"
#include "simd/int8.hpp"

namespace vla::VLA_ISA {

int64_t int8_packed_bytes(int64_t n, Int8Runs runs);
void int8_pack(const float* w, int64_t n, Int8Runs runs, std::byte* packed, Range panels);
int64_t int8_rows_bytes(int64_t m, int64_t k);
void int8_quantize_rows(const LinearArgs& args, Range rows, Int8Input out);
void int8_linear(const LinearArgs& args, Int8Input in, Range rows, Range panels);
int64_t int8_image_bytes(const Conv2dArgs& args);
float int8_largest(const float* x, Range values);
void int8_quantize_image(const Conv2dArgs& args, Range rows, Int8Input out);
void int8_conv2d(const Conv2dArgs& args, Int8Input in, Range rows, Range panels);

#ifdef VLA_INT8_WIDE
int64_t int8_winograd_packed_bytes(int64_t out_c, int64_t in_c);
void int8_winograd_pack(const float* w, int64_t out_c, int64_t in_c, std::byte* packed, Range panels);
int64_t int8_winograd_scratch(const Conv2dArgs& args);
void int8_winograd(const Conv2dArgs& args, Int8Input in, Range tiles, Range panels, float* scratch);
#else
constexpr decltype(Int8Table::winograd_packed_bytes) int8_winograd_packed_bytes = nullptr;
constexpr decltype(Int8Table::winograd_pack) int8_winograd_pack = nullptr;
constexpr decltype(Int8Table::winograd_scratch) int8_winograd_scratch = nullptr;
constexpr decltype(Int8Table::winograd) int8_winograd = nullptr;
#endif

const Int8Table* int8_kernels();

}  // namespace vla::VLA_ISA
