#include "bindings/bindings.hpp"

PYBIND11_MODULE(_engine, module) {
  module.doc() = "The C++ engine: kernels chosen for this CPU, a thread team, and programs over one arena.";
  vla::python::register_cpu(module);
  vla::python::register_memory(module);
  vla::python::register_engine(module);
  vla::python::register_program(module);
}
