#include <pybind11/stl.h>

#include "bindings/bindings.hpp"
#include "runtime/program_builder.hpp"

namespace vla::python {
namespace {

using OptionalView = std::optional<Operand>;
// Packed for the fp32 kernels or for the INT8 ones.
using Weights = std::variant<std::shared_ptr<PackedWeights>, std::shared_ptr<Int8Weights>>;
// Of a linear layer, which may be in blocks too.
using LinearWeights =
    std::variant<std::shared_ptr<PackedWeights>, std::shared_ptr<Int8Weights>, std::shared_ptr<BlockWeights>>;
using Table = std::variant<Operand, std::shared_ptr<BlockWeights>>;
using Size = std::pair<int64_t, int64_t>;

// (top, bottom) and (left, right).
using Sides = std::pair<Size, Size>;

ImageSize image(const Size& size) { return ImageSize{size.first, size.second}; }

Window window_of(const Size& kernel, const Size& stride, const Sides& padding, int64_t dilation) {
  const auto& [vertical, horizontal] = padding;
  return Window{image(kernel), Steps(stride.first, stride.second),
                Edges(vertical.first, vertical.second, horizontal.first, horizontal.second), dilation};
}

Activation parse_activation(const std::string& op, const std::string& name) {
  constexpr std::pair<const char*, Activation> kNames[] = {
      {"none", Activation::kNone},          {"relu", Activation::kRelu}, {"gelu", Activation::kGelu},
      {"gelu_tanh", Activation::kGeluTanh}, {"silu", Activation::kSilu}, {"tanh", Activation::kTanh},
      {"mish", Activation::kMish},          {"exp", Activation::kExp},   {"sigmoid", Activation::kSigmoid}};
  for (const auto& [known, activation] : kNames) {
    if (name == known) return activation;
  }
  throw ProgramError("op '" + op + "': unknown activation '" + name + "'");
}

Binary parse_binary(const std::string& op, const std::string& name) {
  constexpr std::pair<const char*, Binary> kNames[] = {
      {"add", Binary::kAdd}, {"sub", Binary::kSub}, {"mul", Binary::kMul},
      {"div", Binary::kDiv}, {"min", Binary::kMin}, {"max", Binary::kMax}};
  for (const auto& [known, binary] : kNames) {
    if (name == known) return binary;
  }
  throw ProgramError("op '" + op + "': unknown binary operation '" + name + "'");
}

// The builder as Python sees it: plain values in, and the engine that the program is for.
class Builder {
 public:
  Builder(std::shared_ptr<Engine> engine, std::shared_ptr<Arena> arena)
      : engine_(std::move(engine)), builder_(engine_->kernels(), engine_->int8_kernels(), engine_->sharing(), std::move(arena)) {}

  void linear(const std::string& label, const Operand& x, const LinearWeights& weights, const Operand& y,
              const OptionalView& bias, const OptionalView& residual, const std::string& activation,
              const OptionalView& gamma, const OptionalView& beta) {
    const EpilogueOperands epilogue{bias, residual, parse_activation(label, activation), gamma, beta};
    std::visit([&](const auto& packed) { builder_.linear(label, x, packed, y, epilogue); }, weights);
  }

  void conv2d(const std::string& label, const Operand& x, const Size& in, const Weights& weights, const Size& kernel,
              const Size& stride, const Sides& padding, int64_t dilation, const Operand& y, const Size& out,
              const OptionalView& bias, const OptionalView& residual, const std::string& activation,
              const OptionalView& gamma, const OptionalView& beta) {
    const EpilogueOperands epilogue{bias, residual, parse_activation(label, activation), gamma, beta};
    const Window window = window_of(kernel, stride, padding, dilation);
    std::visit([&](const auto& packed) { builder_.conv2d(label, x, image(in), packed, window, y, image(out), epilogue); },
               weights);
  }

  void conv2d_flat(const std::string& label, const Operand& x, const Size& in,
                   const std::shared_ptr<PackedWeights>& weights, const Size& kernel, const Size& stride,
                   const Sides& padding, int64_t dilation, const Operand& y, const Size& out, const OptionalView& bias,
                   const OptionalView& residual, const std::string& activation, const OptionalView& gamma,
                   const OptionalView& beta) {
    const EpilogueOperands epilogue{bias, residual, parse_activation(label, activation), gamma, beta};
    const Window window = window_of(kernel, stride, padding, dilation);
    builder_.conv2d_flat(label, x, image(in), weights, window, y, image(out), epilogue);
  }

  void max_pool2d(const std::string& label, const Operand& x, const Size& in, int64_t kernel, int64_t stride,
                  int64_t padding, const Operand& y, const Size& out) {
    builder_.max_pool2d(label, x, image(in), Window{{kernel, kernel}, stride, padding, 1}, y, image(out));
  }

  void attention(const std::string& label, const Operand& q, const Operand& k, const Operand& v, const Operand& y,
                 int64_t heads, int64_t kv_heads, float scale, const OptionalView& bias, bool materialized) {
    const AttentionMethod method = materialized ? AttentionMethod::kMaterialized : AttentionMethod::kFused;
    builder_.attention(label, q, k, v, bias, y, Heads{heads, kv_heads, scale}, method);
  }

  void layer_norm(const std::string& label, const Operand& x, const Operand& weight, const Operand& bias, float eps,
                  const Operand& y) {
    builder_.layer_norm(label, x, weight, bias, eps, y);
  }

  void rms_norm(const std::string& label, const Operand& x, const Operand& weight, float eps, const Operand& y) {
    builder_.rms_norm(label, x, weight, eps, y);
  }

  void group_norm(const std::string& label, const Operand& x, const Operand& weight, const Operand& bias,
                  int64_t groups, float eps, const std::string& activation, const Operand& y) {
    builder_.group_norm(label, x, weight, bias, groups, eps, parse_activation(label, activation), y);
  }

  void softmax(const std::string& label, const Operand& x, const Operand& y) { builder_.softmax(label, x, y); }

  void rotary(const std::string& label, const Operand& x, const Operand& cos, const Operand& sin, int64_t heads,
              const Operand& y, bool interleaved) {
    builder_.rotary(label, x, cos, sin, heads, y, interleaved);
  }

  void transpose(const std::string& label, const Operand& x, const std::array<int64_t, 3>& shape,
                 const std::array<int64_t, 3>& axes, const Operand& y) {
    builder_.transpose(label, x, shape, axes, y);
  }

  void resize(const std::string& label, const Operand& x, const Size& in, const Operand& y, const Size& out) {
    builder_.resize(label, x, image(in), y, image(out));
  }

  void resample(const std::string& label, const Operand& x, const Size& in, int64_t axis, const Operand& first,
                const Operand& weights, const Operand& y) {
    builder_.resample(label, x, image(in), axis, first, weights, y);
  }

  void copy(const std::string& label, const Operand& x, const Operand& y) { builder_.copy(label, x, y); }

  void binary(const std::string& label, const std::string& op, const Operand& a, const Operand& b, const Operand& y) {
    builder_.binary(label, parse_binary(label, op), a, b, y);
  }

  void pointwise(const std::string& label, const Operand& x, const Operand& y, const std::string& activation,
                 const OptionalView& gamma, const OptionalView& beta) {
    builder_.pointwise(label, x, parse_activation(label, activation), gamma, beta, y);
  }

  void mean_rows(const std::string& label, const Operand& x, const Operand& y) { builder_.mean_rows(label, x, y); }

  void lookup_u8(const std::string& label, const Operand& x, const Operand& table, const Operand& y) {
    builder_.lookup_u8(label, x, table, y);
  }

  void embedding(const std::string& label, const Table& table, const Operand& ids, const Operand& y) {
    std::visit([&](const auto& rows) { builder_.embedding(label, rows, ids, y); }, table);
  }

  void append(const std::string& label, const std::shared_ptr<KeyValues>& state, const Operand& k, const Operand& v,
              const Operand& positions) {
    builder_.append(label, state, k, v, positions);
  }

  void cached_attention(const std::string& label, const Operand& q, const std::shared_ptr<KeyValues>& state,
                        const Operand& positions, const Operand& y, int64_t heads, float scale) {
    builder_.cached_attention(label, q, state, positions, y, heads, scale);
  }

  void set_branch(int branch) { builder_.set_branch(branch); }

  BoundProgram build() {
    BoundProgram bound{engine_, builder_.build()};
    const py::gil_scoped_release release;
    engine_->prepare(*bound.program);
    return bound;
  }

 private:
  std::shared_ptr<Engine> engine_;
  ProgramBuilder builder_;
};

std::vector<int64_t> profile(const BoundProgram& bound) {
  std::vector<int64_t> op_ns(bound.program->ops.size());
  bound.engine->run(*bound.program, op_ns.data());
  return op_ns;
}

std::vector<std::string> labels(const BoundProgram& bound) {
  std::vector<std::string> names;
  for (const Op& op : bound.program->ops) names.push_back(op.label);
  return names;
}

void register_builder(py::module_& module) {
  const auto none = py::none();
  using py::arg;
  py::class_<Builder>(module, "ProgramBuilder",
                      "Collects operations; every method raises ProgramError for one that would not be safe to run.")
      .def(py::init<std::shared_ptr<Engine>, std::shared_ptr<Arena>>(), arg("engine"), arg("arena"))
      .def("linear", &Builder::linear, arg("label"), arg("x"), arg("weights"), arg("y"), arg("bias") = none,
           arg("residual") = none, arg("activation") = "none", arg("gamma") = none, arg("beta") = none)
      .def("conv2d", &Builder::conv2d, arg("label"), arg("x"), arg("in_size"), arg("weights"), arg("kernel"),
           arg("stride"), arg("padding"), arg("dilation"), arg("y"), arg("out_size"), arg("bias") = none,
           arg("residual") = none, arg("activation") = "none", arg("gamma") = none, arg("beta") = none)
      .def("conv2d_flat", &Builder::conv2d_flat, arg("label"), arg("x"), arg("in_size"), arg("weights"), arg("kernel"),
           arg("stride"), arg("padding"), arg("dilation"), arg("y"), arg("out_size"), arg("bias") = none,
           arg("residual") = none, arg("activation") = "none", arg("gamma") = none, arg("beta") = none)
      .def("max_pool2d", &Builder::max_pool2d, arg("label"), arg("x"), arg("in_size"), arg("kernel"), arg("stride"),
           arg("padding"), arg("y"), arg("out_size"))
      .def("attention", &Builder::attention, arg("label"), arg("q"), arg("k"), arg("v"), arg("y"), arg("heads"),
           arg("kv_heads"), arg("scale"), arg("bias") = none, arg("materialized") = false)
      .def("layer_norm", &Builder::layer_norm, arg("label"), arg("x"), arg("weight"), arg("bias"), arg("eps"), arg("y"))
      .def("rms_norm", &Builder::rms_norm, arg("label"), arg("x"), arg("weight"), arg("eps"), arg("y"))
      .def("group_norm", &Builder::group_norm, arg("label"), arg("x"), arg("weight"), arg("bias"), arg("groups"),
           arg("eps"), arg("activation"), arg("y"))
      .def("softmax", &Builder::softmax, arg("label"), arg("x"), arg("y"))
      .def("rotary", &Builder::rotary, arg("label"), arg("x"), arg("cos"), arg("sin"), arg("heads"), arg("y"),
           arg("interleaved") = false)
      .def("transpose", &Builder::transpose, arg("label"), arg("x"), arg("shape"), arg("axes"), arg("y"))
      .def("resize", &Builder::resize, arg("label"), arg("x"), arg("in_size"), arg("y"), arg("out_size"))
      .def("resample", &Builder::resample, arg("label"), arg("x"), arg("in_size"), arg("axis"), arg("first"),
           arg("weights"), arg("y"))
      .def("copy", &Builder::copy, arg("label"), arg("x"), arg("y"))
      .def("binary", &Builder::binary, arg("label"), arg("op"), arg("a"), arg("b"), arg("y"))
      .def("pointwise", &Builder::pointwise, arg("label"), arg("x"), arg("y"), arg("activation") = "none",
           arg("gamma") = none, arg("beta") = none)
      .def("mean_rows", &Builder::mean_rows, arg("label"), arg("x"), arg("y"))
      .def("lookup_u8", &Builder::lookup_u8, arg("label"), arg("x"), arg("table"), arg("y"))
      .def("embedding", &Builder::embedding, arg("label"), arg("table"), arg("ids"), arg("y"))
      .def("append", &Builder::append, arg("label"), arg("state"), arg("k"), arg("v"), arg("positions"))
      .def("cached_attention", &Builder::cached_attention, arg("label"), arg("q"), arg("state"), arg("positions"),
           arg("y"), arg("heads"), arg("scale"))
      .def("set_branch", &Builder::set_branch, arg("branch"),
           "What is added from now on belongs to this branch of a section, or to none if it is negative.")
      .def("build", &Builder::build, "The program; the builder is empty afterwards.");
}

}  // namespace

void register_program(py::module_& module) {
  py::register_local_exception<ProgramError>(module, "ProgramError", PyExc_ValueError);

  py::class_<BoundProgram>(module, "Program", "Operations that run in order, without allocating.")
      .def_property_readonly("labels", &labels)
      .def("run", [](const BoundProgram& bound) { bound.engine->run(*bound.program); },
           py::call_guard<py::gil_scoped_release>(),
           "Runs every operation. Raises Cancelled after Engine.cancel(), RunError for an index outside its table.")
      .def("profile", &profile, py::call_guard<py::gil_scoped_release>(),
           "Runs every operation; nanoseconds that each took.")
      .def("time", [](const BoundProgram& bound, int64_t runs) { return bound.engine->time(*bound.program, runs); },
           py::arg("runs"), py::call_guard<py::gil_scoped_release>(),
           "Runs all operations so often, one run after the other; nanoseconds that it took in all.");
  register_builder(module);
}

}  // namespace vla::python
