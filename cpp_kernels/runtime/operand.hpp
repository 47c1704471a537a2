// A matrix somewhere in the arena or in a constant, and the checks that make it safe to hand to a kernel.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "runtime/arena.hpp"
#include "runtime/constants.hpp"

namespace vla {

// What is wrong with an operation of a program; the message names the operation.
class ProgramError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Rows of `cols` elements, `ld` elements apart, from byte `offset` of the constant, or of the arena where
// there is no constant. An image is a matrix of pixels by channels, a vector one row.
struct Operand {
  std::shared_ptr<const Constant> constant;
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
  DType dtype = DType::kF32;
};

// Whether the two may share a byte. Exact for column blocks of one matrix, conservative otherwise.
bool may_overlap(const Operand& a, const Operand& b);

// Checks operands of one operation and turns them into addresses.
class OperandCheck {
 public:
  OperandCheck(const Arena& arena, std::string op) : arena_(arena), op_(std::move(op)) {}

  // An operand that is read, of the given type and shape.
  const std::byte* input(const char* role, const Operand& operand, DType dtype, int64_t rows, int64_t cols) const;
  const float* f32(const char* role, const Operand& operand, int64_t rows, int64_t cols) const {
    return reinterpret_cast<const float*>(input(role, operand, DType::kF32, rows, cols));
  }
  // Like f32, of either `rows` rows or one for all; `ld` is 0 in the latter case.
  const float* f32_broadcast(const char* role, const Operand& operand, int64_t rows, int64_t cols,
                             int64_t* ld) const;
  // The operand that is written: in the arena, float32 except where another type is given.
  std::byte* written(const Operand& operand, DType dtype, int64_t rows, int64_t cols) const;
  float* output(const Operand& operand, int64_t rows, int64_t cols) const {
    return reinterpret_cast<float*>(written(operand, DType::kF32, rows, cols));
  }

  void require_dense(const char* role, const Operand& operand) const;
  // `read` must not share memory with `written`.
  void require_apart(const char* role, const Operand& read, const Operand& written) const;
  // The same, but reading exactly what is overwritten is fine, as element-wise operations do.
  void require_apart_or_same(const char* role, const Operand& read, const Operand& written) const;
  void require_positive(const char* role, int64_t value) const;
  void require(bool condition, const std::string& message) const;
  [[noreturn]] void fail(const std::string& message) const;

 private:
  void check_bounds(const char* role, const Operand& operand) const;
  void check_shape(const char* role, const Operand& operand, DType dtype, int64_t rows, int64_t cols) const;

  const Arena& arena_;
  std::string op_;
};

}  // namespace vla
