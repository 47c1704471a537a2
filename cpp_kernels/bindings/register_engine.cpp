#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/bindings.hpp"

namespace vla::python {
namespace {

using FloatMatrix = py::array_t<float, py::array::c_style>;

Schedule parse_schedule(const std::string& name) {
  if (name == "static") return Schedule::kStatic;
  if (name == "dynamic") return Schedule::kDynamic;
  throw std::invalid_argument("schedule='" + name + "': expected static or dynamic");
}

std::shared_ptr<Engine> make_engine(int threads, const std::string& isa, const std::vector<int>& affinity,
                                    int64_t spin_us, const std::string& schedule, int64_t parallel_cutoff,
                                    int64_t block_rows, int threads_per_branch, const std::string& int8) {
  EngineOptions options;
  options.threads = threads;
  options.isa = isa;
  options.affinity = affinity;
  options.spin_us = spin_us;
  options.schedule = parse_schedule(schedule);
  options.parallel_cutoff = parallel_cutoff;
  options.block_rows = block_rows;
  options.threads_per_branch = threads_per_branch;
  options.int8 = int8;
  return std::make_shared<Engine>(options);
}

std::shared_ptr<PackedWeights> pack(Engine& engine, const FloatMatrix& weights, int64_t winograd_side, int64_t kernel,
                                    int64_t stride, bool rows, bool strassen, bool bf16_where_exact) {
  if (weights.ndim() != 2) {
    throw std::invalid_argument("weights: got " + std::to_string(weights.ndim()) + " dimensions, expected [n, k]");
  }
  const float* data = weights.data();
  const int64_t n = weights.shape(0);
  const int64_t k = weights.shape(1);
  const py::gil_scoped_release release;
  const WeightForm form{{winograd_side, kernel, stride}, rows, strassen, bf16_where_exact};
  return std::const_pointer_cast<PackedWeights>(engine.pack(data, n, k, form));
}

constexpr std::pair<const char*, BlockForm> kBlockForms[] = {
    {"q8_0", BlockForm::kQ8_0}, {"q4_0", BlockForm::kQ4_0}, {"q4_1", BlockForm::kQ4_1}};

std::shared_ptr<BlockWeights> pack_blocks(Engine& engine, const std::string& form,
                                          const py::array_t<uint8_t, py::array::c_style>& blocks, int64_t k) {
  if (blocks.ndim() != 2) {
    throw std::invalid_argument("weights in blocks: got " + std::to_string(blocks.ndim()) +
                                " dimensions, expected [n, bytes of a row]");
  }
  for (const auto& [name, known] : kBlockForms) {
    if (form != name) continue;
    const auto* data = reinterpret_cast<const std::byte*>(blocks.data());
    const int64_t bytes = blocks.size(), n = blocks.shape(0);
    const BlockForm parsed = known;
    const py::gil_scoped_release release;
    return std::const_pointer_cast<BlockWeights>(engine.pack_blocks(parsed, data, bytes, n, k));
  }
  throw std::invalid_argument("weights in blocks: unknown form '" + form + "', expected q8_0, q4_0 or q4_1");
}

std::shared_ptr<Int8Weights> pack_int8(Engine& engine, const FloatMatrix& weights, int64_t runs, bool winograd) {
  if (weights.ndim() != 2 || runs < 1 || weights.shape(1) % runs != 0) {
    throw std::invalid_argument("INT8 weights: expected [n, k] with k a multiple of runs=" + std::to_string(runs));
  }
  const float* data = weights.data();
  const int64_t n = weights.shape(0);
  const Int8Runs parts{runs, weights.shape(1) / runs};
  const py::gil_scoped_release release;
  return std::const_pointer_cast<Int8Weights>(engine.pack_int8(data, n, parts, winograd));
}

}  // namespace

void register_engine(py::module_& module) {
  py::register_local_exception<Cancelled>(module, "Cancelled", PyExc_RuntimeError);
  py::register_local_exception<RunError>(module, "RunError", PyExc_ValueError);

  py::class_<PackedWeights, std::shared_ptr<PackedWeights>>(module, "PackedWeights",
                                                            "Weights [n, k] in the layout of one instruction set.")
      .def_property_readonly("isa", [](const PackedWeights& weights) { return weights.kernels().isa; })
      .def_property_readonly("n", &PackedWeights::n)
      .def_property_readonly("k", &PackedWeights::k)
      .def_property_readonly("winograd_side", [](const PackedWeights& weights) { return weights.winograd().side; })
      .def_property_readonly("rows", &PackedWeights::rows)
      .def_property_readonly("strassen", &PackedWeights::strassen)
      .def_property_readonly("bf16", &PackedWeights::bf16)
      .def_property_readonly("bytes", &PackedWeights::bytes);

  py::class_<Int8Weights, std::shared_ptr<Int8Weights>>(module, "Int8Weights",
                                                        "Weights [n, k] quantized for one variant of INT8 kernels.")
      .def_property_readonly("isa", [](const Int8Weights& weights) { return weights.kernels().name; })
      .def_property_readonly("n", &Int8Weights::n)
      .def_property_readonly("k", &Int8Weights::k)
      .def_property_readonly("bytes", &Int8Weights::bytes);

  py::class_<KeyValues, std::shared_ptr<KeyValues>>(module, "KeyValues", "A state, in the layout of one instruction set.")
      .def_property_readonly("rows", [](const KeyValues& state) { return state.shape().rows; })
      .def_property_readonly("bytes", &KeyValues::bytes);
  py::class_<BlockWeights, std::shared_ptr<BlockWeights>>(module, "BlockWeights",
                                                          "Weights [n, k] in blocks, for one instruction set.")
      .def_property_readonly("isa", [](const BlockWeights& weights) { return weights.kernels().isa; })
      .def_property_readonly("form",
                             [](const BlockWeights& weights) {
                               return kBlockForms[static_cast<std::size_t>(weights.form())].first;
                             })
      .def_property_readonly("n", &BlockWeights::n)
      .def_property_readonly("k", &BlockWeights::k)
      .def_property_readonly("bytes", &BlockWeights::bytes);

  py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine", "Kernels, a team of threads and scratch memory.")
      .def(py::init(&make_engine), py::arg("threads") = 0, py::arg("isa") = "",
           py::arg("affinity") = std::vector<int>{}, py::arg("spin_us") = EngineOptions().spin_us,
           py::arg("schedule") = "dynamic", py::arg("parallel_cutoff") = EngineOptions().parallel_cutoff,
           py::arg("block_rows") = EngineOptions().block_rows,
           py::arg("threads_per_branch") = EngineOptions().threads_per_branch, py::arg("int8") = "",
           py::call_guard<py::gil_scoped_release>(),
           "threads 0: one per usable core, or per CPU in affinity; isa empty: VLA_SIMD_ISA or the best available; "
           "int8 empty: VLA_SIMD_INT8 or the best INT8 kernels with the vectors of isa; "
           "spin_us: how long idle threads poll before they sleep.")
      .def_property_readonly("isa", [](const Engine& engine) { return engine.kernels().isa; })
      .def_property_readonly("int8_isa", [](const Engine& engine) { return engine.int8_kernels().name; })
      .def_property_readonly("threads", &Engine::threads)
      .def_property_readonly("affinity", &Engine::affinity)
      .def_property_readonly("branching", &Engine::branching)
      .def_property_readonly("tile", [](const Engine& engine) {
        return std::make_pair(engine.kernels().tile_rows, engine.kernels().tile_cols);
      })
      .def("strassen_fits",
           [](const Engine& engine, int64_t n, int64_t k) { return engine.kernels().strassen_fits(n, k); },
           py::arg("n"), py::arg("k"), "Whether weights [n, k] divide into quarters of whole panels.")
      .def("pack", &pack, py::arg("weights"), py::arg("winograd_side") = 0, py::arg("kernel") = 3,
           py::arg("stride") = 1, py::arg("rows") = false, py::arg("strassen") = false, py::arg("bf16_where_exact") = false,
           "Packs weights [n, k] of float32; with a side of Winograd's tiles, filters of side `kernel` for that method; "
           "with `rows`, those of a linear layer to be read row by row, with `strassen` for Strassen's method. They can be "
           "kept in bf16, in half the memory, where all of them are such values, and then not for Strassen's method.")
      .def_property_readonly("int8_winograd",
                             [](const Engine& engine) { return engine.int8_kernels().winograd != nullptr; })
      .def_property_readonly("int8_tile", [](const Engine& engine) {
        return std::make_pair(engine.int8_kernels().tile_rows, engine.int8_kernels().tile_cols);
      })
      .def("pack_int8", &pack_int8, py::arg("weights"), py::arg("runs") = 1,
           py::arg("winograd") = false,
           "Quantizes and packs weights [n, k] of float32 for INT8 kernels. A convolution has a run per row of its "
           "filter, or per place where it is dilated; with `winograd` those of 3x3 are packed for that method.")
      .def("key_values", [](const Engine& engine, int64_t rows, int64_t kv_heads, int64_t head) {
             return engine.key_values({rows, kv_heads, head});
           }, py::arg("rows"), py::arg("kv_heads"), py::arg("head"), "Keys and values of so many tokens, zero.")
      .def("pack_blocks", &pack_blocks, py::arg("form"), py::arg("blocks"), py::arg("k"),
           "Packs weights [n, k] that are given in blocks of 32, as ggml lays them out: bytes [n, k / 32 * bytes of a "
           "block]; form is q8_0, q4_0 or q4_1.")
      .def("cancel", &Engine::cancel, "Ends the run in flight, and later ones until resume(), with Cancelled.")
      .def("resume", &Engine::resume)
      .def("read_bandwidth", &Engine::read_bandwidth, py::arg("bytes"), py::arg("repeats") = 5,
           py::call_guard<py::gil_scoped_release>(), "Bytes per second that all threads together read.");
}

}  // namespace vla::python
