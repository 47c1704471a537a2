// Operations of a program on weights in blocks.
#include <algorithm>
#include <utility>

#include "runtime/element_cost.hpp"
#include "runtime/program_builder.hpp"

namespace vla {

void ProgramBuilder::check_weights(const OperandCheck& check, const std::shared_ptr<const BlockWeights>& weights,
                                   int64_t n, int64_t k) const {
  check.require(weights != nullptr, "no weights");
  check.require(&weights->kernels() == &kernels_, std::string("weights are packed for ") + weights->kernels().isa +
                                                      ", the program runs on " + kernels_.isa);
  check.require(weights->n() == n && weights->k() == k,
                "weights are " + std::to_string(weights->n()) + "x" + std::to_string(weights->k()) + ", expected " +
                    std::to_string(n) + "x" + std::to_string(k));
}

void ProgramBuilder::need_blocks_scratch(int64_t k) {
  int64_t& per_thread = program_.workspace.per_thread;
  per_thread = std::max(per_thread, kernels_.blocks_scratch(k));
}

void ProgramBuilder::linear(const std::string& label, const Operand& x, std::shared_ptr<const BlockWeights> weights,
                            const Operand& y, const EpilogueOperands& epilogue) {
  const OperandCheck check = this->check(label);
  check_weights(check, weights, y.cols, x.cols);
  BlockLinearRecord record;
  LinearArgs& args = record.args;
  args = linear_args(check, x, y, epilogue);
  args.packed = reinterpret_cast<const float*>(weights->data());
  record.form = weights->form();
  record.grid = cut_linear(kernels_, args.m, args.n, args.k, sharing(y));
  need_blocks_scratch(args.k);
  keep(x);
  keep(epilogue);
  program_.block_weights.push_back(std::move(weights));
  add(label, record);
}

void ProgramBuilder::embedding(const std::string& label, std::shared_ptr<const BlockWeights> table, const Operand& ids,
                               const Operand& y) {
  const OperandCheck check = this->check(label);
  check_weights(check, table, table ? table->n() : 0, y.cols);
  BlockEmbeddingRecord record;
  EmbeddingArgs& args = record.args;
  args.table = reinterpret_cast<const float*>(table->data());
  args.ids = reinterpret_cast<const int32_t*>(check.input("ids", ids, DType::kI32, 1, y.rows));
  args.y = check.output(y, y.rows, y.cols);
  args.y_ld = y.ld;
  args.cols = y.cols;
  check.require_apart("ids", ids, y);
  record.form = table->form();
  record.table_rows = table->n();
  record.rows = y.rows;
  record.chunks = chunk_count(y.rows, y.cols * kTranscendentalCost, sharing(y));
  need_blocks_scratch(args.cols);
  keep(ids);
  program_.block_weights.push_back(std::move(table));
  add(label, record);
}

}  // namespace vla
