#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/bindings.hpp"
#include "runtime/operand.hpp"

namespace vla::python {
namespace {

DType parse_dtype(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kU8, DType::kI32}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  throw std::invalid_argument("dtype '" + name + "': expected float32, uint8 or int32");
}

std::shared_ptr<const Constant> make_constant(const py::array& array, bool borrow) {
  if ((array.flags() & py::array::c_style) == 0) throw std::invalid_argument("constant: the array is not C-contiguous");
  const DType dtype = dtype_of(array.request());
  if (!borrow) return Constant::copy(array.data(), array.size(), dtype);
  const std::shared_ptr<const void> owner(new py::array(array), [](const void* held) {
    const py::gil_scoped_acquire gil;
    delete static_cast<const py::array*>(held);
  });
  return Constant::borrow(array.data(), array.size(), dtype, owner);
}

// A numpy view of a part of the arena, which it keeps alive.
py::array arena_array(const std::shared_ptr<Arena>& arena, int64_t offset, const std::vector<py::ssize_t>& shape,
                      const std::vector<py::ssize_t>& strides, const std::string& dtype) {
  const int64_t item = item_bytes(parse_dtype(dtype));
  if (shape.size() != strides.size()) throw std::invalid_argument("arena: shape and strides differ in length");
  const auto limit = static_cast<int64_t>(arena->bytes());
  int64_t last = offset;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    if (shape[i] < 1 || strides[i] < 0 || __builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      throw std::invalid_argument("arena: a view of non-positive or excessive extent");
    }
  }
  if (offset < 0 || offset % item != 0 || last > limit - item) {
    throw std::invalid_argument("arena: a view that ends at byte " + std::to_string(last + item) +
                                " exceeds the arena of " + std::to_string(limit) + " bytes, or is not aligned");
  }
  return py::array(py::dtype(dtype), shape, strides, arena->data() + offset, py::cast(arena));
}

}  // namespace

DType dtype_of(const py::buffer_info& info) {
  if (info.item_type_is_equivalent_to<float>()) return DType::kF32;
  if (info.item_type_is_equivalent_to<uint8_t>()) return DType::kU8;
  if (info.item_type_is_equivalent_to<int32_t>()) return DType::kI32;
  throw std::invalid_argument("array of format '" + info.format + "': expected float32, uint8 or int32");
}

void register_memory(py::module_& module) {
  py::class_<Arena, std::shared_ptr<Arena>>(module, "Arena", "One block of memory, 64-byte aligned and zeroed.")
      .def(py::init<std::size_t>(), py::arg("bytes"))
      .def_property_readonly("bytes", &Arena::bytes)
      .def("array", &arena_array, py::arg("offset"), py::arg("shape"), py::arg("strides"), py::arg("dtype"),
           "A writable numpy view: byte offset, shape, strides in bytes, dtype name.");

  py::class_<Constant, std::shared_ptr<Constant>>(module, "Constant", "A value that never changes.")
      .def(py::init([](const py::array& array, bool borrow) {
             return std::const_pointer_cast<Constant>(make_constant(array, borrow));
           }),
           py::arg("array"), py::arg("borrow") = false,
           "Copies the array, or reads it where it is; then nobody may write to it.")
      .def_property_readonly("bytes", &Constant::bytes);

  py::class_<Operand>(module, "View", "A matrix in the arena or in a constant.")
      .def(py::init([](int64_t offset, int64_t rows, int64_t cols, int64_t ld, const std::string& dtype,
                       std::shared_ptr<Constant> constant) {
             return Operand{std::move(constant), offset, rows, cols, ld, parse_dtype(dtype)};
           }),
           py::arg("offset"), py::arg("rows"), py::arg("cols"), py::arg("ld"), py::arg("dtype") = "float32",
           py::arg("constant") = nullptr, "offset in bytes; ld, the distance of rows, in elements.");
}

}  // namespace vla::python
