#include <pybind11/stl.h>

#include "bindings/bindings.hpp"
#include "runtime/cpu_features.hpp"
#include "runtime/dispatch.hpp"
#include "runtime/int8_dispatch.hpp"
#include "runtime/probe.hpp"

namespace vla::python {

void register_cpu(py::module_& module) {
  module.def(
      "cpu_info",
      [] {
        const CpuInfo info = cpu_info();
        py::dict result;
        result["model"] = info.model;
        result["features"] = info.features;
        result["logical_cpus"] = info.logical_cpus;
        result["physical_cores"] = info.physical_cores;
        result["l1d_bytes"] = info.l1d_bytes;
        result["l2_bytes"] = info.l2_bytes;
        result["l3_bytes"] = info.l3_bytes;
        return result;
      },
      "Model, instruction sets, usable CPUs and cores, and cache sizes (0 where unknown).");
  module.def("available_isas", &available_isas, "Instruction sets that can be chosen here, best first.");
  module.def("available_int8", &available_int8, "Variants of the INT8 kernels that can be chosen here, best first.");
  module.def("default_threads", &default_threads, "Threads an engine starts when none are asked for.");
  module.def(
      "fma_peak", [](const std::string& isa, double seconds) { return fma_peak(select_kernels(isa), seconds) * 1e-9; },
      py::arg("isa") = "", py::arg("seconds") = 0.2, py::call_guard<py::gil_scoped_release>(),
      "GFLOP/s of fused multiply-adds on one core.");
}

}  // namespace vla::python
