// Operations on states.
#include <algorithm>
#include <string>

#include "runtime/element_cost.hpp"
#include "runtime/program_builder.hpp"

namespace vla {

void ProgramBuilder::append(const std::string& label, std::shared_ptr<KeyValues> state, const Operand& k,
                            const Operand& v, const Operand& positions) {
  const OperandCheck check = this->check(label);
  const KeyValueShape& shape = checked_state(check, state);
  check.require(k.rows <= shape.rows, std::to_string(k.rows) + " rows for a state of " + std::to_string(shape.rows));
  AppendRecord record;
  AppendArgs& args = record.args;
  args.k = check.f32("k", k, k.rows, shape.width());
  args.k_ld = k.ld;
  args.v = check.f32("v", v, k.rows, shape.width());
  args.v_ld = v.ld;
  args.positions = reinterpret_cast<const int32_t*>(check.input("positions", positions, DType::kI32, 1, k.rows));
  args.state = state->data();
  args.shape = shape;
  record.rows = k.rows;
  record.chunks = chunk_count(k.rows, 2 * shape.width() * kCopyCost, sharing_for(2 * k.rows * shape.width()));
  for (const Operand* operand : {&k, &v, &positions}) keep(*operand);
  program_.states.push_back(std::move(state));
  add(label, record);
}

void ProgramBuilder::cached_attention(const std::string& label, const Operand& q, std::shared_ptr<KeyValues> state,
                                      const Operand& positions, const Operand& y, int64_t heads, float scale) {
  const OperandCheck check = this->check(label);
  const KeyValueShape& shape = checked_state(check, state);
  check.require_positive("heads", heads);
  check.require(heads % shape.kv_heads == 0 && q.cols == heads * shape.head_dim,
                "q of " + std::to_string(q.cols) + " columns is not " + std::to_string(heads) + " heads of " +
                    std::to_string(shape.head_dim) + " over " + std::to_string(shape.kv_heads) + " key-value heads");
  CachedAttentionRecord record;
  CachedAttentionArgs& args = record.args;
  args.q = check.f32("q", q, q.rows, q.cols);
  args.q_ld = q.ld;
  args.state = state->data();
  args.shape = shape;
  args.positions = reinterpret_cast<const int32_t*>(check.input("positions", positions, DType::kI32, 1, q.rows));
  args.y = check.output(y, q.rows, q.cols);
  args.y_ld = y.ld;
  args.queries = q.rows;
  args.heads = heads;
  args.scale = scale;
  check.require_apart("q", q, y);
  check.require_apart("positions", positions, y);
  record.tile_rows = kernels_.tile_rows;
  // As for a full state: how far it is filled is known when the program runs.
  const int64_t tiles = ceil_div(args.units(), record.tile_rows);
  const int64_t cost = 4 * record.tile_rows * shape.rows * shape.head_dim;
  const int64_t chunks = chunk_count(shape.kv_heads * tiles, cost, sharing_for(args.units() * shape.rows));
  record.unit_chunks = std::clamp(ceil_div(chunks, shape.kv_heads), int64_t{1}, tiles);
  int64_t& scratch = program_.workspace.per_thread;
  scratch = std::max(scratch, kernels_.cached_attention_scratch(args));
  for (const Operand* operand : {&q, &positions}) keep(*operand);
  program_.states.push_back(std::move(state));
  add(label, record);
}

const KeyValueShape& ProgramBuilder::checked_state(const OperandCheck& check,
                                                   const std::shared_ptr<KeyValues>& state) const {
  check.require(state != nullptr, "no state");
  check.require(&state->kernels() == &kernels_, std::string("the state is laid out for ") + state->kernels().isa +
                                                    ", expected " + kernels_.isa);
  return state->shape();
}

}  // namespace vla
