#include "runtime/operand.hpp"

namespace vla {
namespace {

constexpr int64_t kMaxSide = int64_t{1} << 31;

std::string shape_text(int64_t rows, int64_t cols) { return std::to_string(rows) + "x" + std::to_string(cols); }

int64_t extent_bytes(const Operand& operand) {
  return ((operand.rows - 1) * operand.ld + operand.cols) * item_bytes(operand.dtype);
}

}  // namespace

bool may_overlap(const Operand& a, const Operand& b) {
  if (a.constant != b.constant) return false;
  if (a.offset + extent_bytes(a) <= b.offset || b.offset + extent_bytes(b) <= a.offset) return false;
  if (a.dtype != b.dtype || a.ld != b.ld || a.rows == 1 || b.rows == 1) return true;
  const int64_t item = item_bytes(a.dtype);
  if ((b.offset - a.offset) % item != 0) return true;
  // Where b's columns begin, counted from a's within the common row pitch.
  const int64_t shift = (((b.offset - a.offset) / item) % a.ld + a.ld) % a.ld;
  return shift < a.cols || shift + b.cols > a.ld;
}

void OperandCheck::fail(const std::string& message) const { throw ProgramError("op '" + op_ + "': " + message); }

void OperandCheck::require(bool condition, const std::string& message) const {
  if (!condition) fail(message);
}

void OperandCheck::require_positive(const char* role, int64_t value) const {
  if (value < 1 || value >= kMaxSide) {
    fail(std::string(role) + " is " + std::to_string(value) + ", expected at least 1 and less than 2^31");
  }
}

void OperandCheck::check_shape(const char* role, const Operand& operand, DType dtype, int64_t rows,
                               int64_t cols) const {
  if (operand.dtype != dtype) {
    fail(std::string(role) + " is " + dtype_name(operand.dtype) + ", expected " + dtype_name(dtype));
  }
  if (operand.rows != rows || operand.cols != cols) {
    fail(std::string(role) + " is " + shape_text(operand.rows, operand.cols) + ", expected " +
         shape_text(rows, cols));
  }
}

void OperandCheck::check_bounds(const char* role, const Operand& operand) const {
  require_positive(role, operand.rows);
  require_positive(role, operand.cols);
  require_positive(role, operand.ld);
  if (operand.rows > 1 && operand.ld < operand.cols) {
    fail(std::string(role) + " has rows of " + std::to_string(operand.cols) + " only " +
         std::to_string(operand.ld) + " apart");
  }
  if (operand.constant && operand.constant->dtype() != operand.dtype) {
    fail(std::string(role) + " reads a " + dtype_name(operand.constant->dtype()) + " constant as " +
         dtype_name(operand.dtype));
  }
  const int64_t limit =
      operand.constant ? operand.constant->bytes() : static_cast<int64_t>(arena_.bytes());
  const int64_t extent = ((operand.rows - 1) * operand.ld + operand.cols);  // below 2^62
  const int64_t item = item_bytes(operand.dtype);
  const bool inside = operand.offset >= 0 && operand.offset % item == 0 && operand.offset <= limit &&
                      extent <= (limit - operand.offset) / item;
  if (!inside) {
    fail(std::string(role) + " of " + std::to_string(extent) + " " + dtype_name(operand.dtype) + " at byte " +
         std::to_string(operand.offset) + " is outside the " + (operand.constant ? "constant" : "arena") + " of " +
         std::to_string(limit) + " bytes, or not aligned");
  }
}

const std::byte* OperandCheck::input(const char* role, const Operand& operand, DType dtype, int64_t rows,
                                     int64_t cols) const {
  check_shape(role, operand, dtype, rows, cols);
  check_bounds(role, operand);
  return (operand.constant ? operand.constant->data() : arena_.data()) + operand.offset;
}

const float* OperandCheck::f32_broadcast(const char* role, const Operand& operand, int64_t rows, int64_t cols,
                                         int64_t* ld) const {
  const bool one = operand.rows == 1;
  *ld = one ? 0 : operand.ld;
  return f32(role, operand, one ? 1 : rows, cols);
}

std::byte* OperandCheck::written(const Operand& operand, DType dtype, int64_t rows, int64_t cols) const {
  require(operand.constant == nullptr, "the output is in a constant");
  check_shape("output", operand, dtype, rows, cols);
  check_bounds("output", operand);
  return arena_.data() + operand.offset;
}

void OperandCheck::require_dense(const char* role, const Operand& operand) const {
  if (operand.rows > 1 && operand.ld != operand.cols) {
    fail(std::string(role) + " has rows of " + std::to_string(operand.cols) + " that are " +
         std::to_string(operand.ld) + " apart, expected them without gaps");
  }
}

void OperandCheck::require_apart(const char* role, const Operand& read, const Operand& written) const {
  if (may_overlap(read, written)) fail(std::string(role) + " shares memory with the output");
}

void OperandCheck::require_apart_or_same(const char* role, const Operand& read, const Operand& written) const {
  const bool same = !read.constant && read.offset == written.offset && read.rows == written.rows &&
                    read.cols == written.cols && (read.ld == written.ld || read.rows == 1);
  if (!same) require_apart(role, read, written);
}

}  // namespace vla
