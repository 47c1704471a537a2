// The parts of the Python module.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "runtime/engine.hpp"

namespace vla::python {

namespace py = pybind11;

// A program together with the engine that it was prepared for.
struct BoundProgram {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const Program> program;
};

void register_cpu(py::module_& module);
void register_memory(py::module_& module);
void register_engine(py::module_& module);
void register_program(py::module_& module);

// The element type of a numpy array; throws std::invalid_argument for one that the engine does not know.
DType dtype_of(const py::buffer_info& info);

}  // namespace vla::python
