// The entry points of one instruction set, as table.cpp collects them; see kernels.hpp for what they do.
#pragma once

#include "kernels/kernels.hpp"
#include "simd/vec.hpp"

namespace vla::VLA_ISA {

int64_t packed_size(int64_t n, int64_t k);
void pack_weights(const float* w, int64_t n, int64_t k, float* packed, Range panels);
void pack_bf16(const float* w, int64_t n, int64_t k, uint16_t* packed, Range panels);
void linear(const LinearArgs& args, Range rows, Range panels);
void linear_rows(const LinearArgs& args, Range rows, Range panels);
void pack_blocks(BlockForm form, const std::byte* blocks, int64_t n, int64_t k, std::byte* packed, Range panels);
int64_t blocks_scratch(int64_t k);
void linear_blocks(BlockForm form, const LinearArgs& args, Range rows, Range panels, float* scratch);
void embed_blocks(BlockForm form, const EmbeddingArgs& args, Range rows, float* scratch);
bool strassen_fits(int64_t n, int64_t k);
int64_t strassen_packed_size(int64_t n, int64_t k);
void strassen_pack(const float* w, int64_t n, int64_t k, float* packed, Range panels);
int64_t strassen_scratch(const LinearArgs& args);
void strassen(const LinearArgs& args, Range rows, Range panels, float* scratch);

int64_t conv2d_scratch(const Conv2dArgs& args);
void conv2d(const Conv2dArgs& args, Range rows, Range panels, float* scratch);
void conv2d_patches(const Conv2dArgs& args, Range pixels, float* patches);
int64_t winograd_packed_size(const WinogradForm& form, int64_t out_c, int64_t in_c);
void winograd_pack(const WinogradForm& form, const float* w, int64_t out_c, int64_t in_c, float* packed, Range panels);
int64_t winograd_scratch(const WinogradForm& form, const Conv2dArgs& args);
void winograd(const WinogradForm& form, const Conv2dArgs& args, Range tiles, Range panels, float* scratch);
void max_pool2d(const MaxPool2dArgs& args, Range out_rows);

int64_t attention_packed_size(const AttentionArgs& args);
int64_t attention_scratch(const AttentionArgs& args);
void attention_pack(const AttentionArgs& args, int64_t kv_head, float* packed);
void attention(const AttentionArgs& args, int64_t head, Range queries, const float* packed, float* scratch);
bool attention_unpacked_fits(const AttentionArgs& args);
int64_t attention_unpacked_scratch(const AttentionArgs& args);
void attention_unpacked(const AttentionArgs& args, int64_t head, Range queries, float* scratch);
int64_t attention_scores_size(const AttentionArgs& args);
void attention_scores(const AttentionArgs& args, int64_t head, Range queries, const float* packed, float* scores);
void attention_softmax(const AttentionArgs& args, int64_t head, Range queries, float* scores);
void attention_values(const AttentionArgs& args, int64_t head, Range queries, const float* packed, const float* scores);

int64_t key_value_size(const KeyValueShape& shape);
void append(const AppendArgs& args, Range rows);
int64_t cached_attention_scratch(const CachedAttentionArgs& args);
void cached_attention(const CachedAttentionArgs& args, int64_t kv_head, Range units, float* scratch);

void layer_norm(const NormArgs& args, Range rows);
void rms_norm(const NormArgs& args, Range rows);
void group_norm_moments(const GroupNormArgs& args, Range pieces, float* moments);
void group_norm_factors(const GroupNormArgs& args, const float* moments, float* factors);
void group_norm(const GroupNormArgs& args, Range rows, const float* factors);
void softmax(const SoftmaxArgs& args, Range rows);
void rotary(const RotaryArgs& args, Range rows);
void transpose(const TransposeArgs& args, Range bands);
void resize(const ResizeArgs& args, Range out_rows, float* scratch);
void resample(const ResampleArgs& args, Range lines);
void binary(const BinaryArgs& args, Range rows);
void pointwise(const PointwiseArgs& args, Range rows);
void mean_rows(const float* x, int64_t x_ld, int64_t rows, float* y, Range cols);
void lookup_u8(const uint8_t* x, const float* table, int64_t channels, float* y, Range pixels);
void embedding(const EmbeddingArgs& args, Range rows);
double fma_peak(int64_t iterations);
float read_all(const float* x, int64_t count, int64_t passes);

const KernelTable* kernels();

}  // namespace vla::VLA_ISA
