// What the tests of INT8 convolutions share: shapes, random problems with their results in whole numbers, and runs.
#pragma once

#include "int8_common.hpp"

namespace vla::test {

struct Shape {
  int64_t in_h, in_w, in_c, out_c;
  int64_t kernel_h = 3, kernel_w = 3, stride = 1, padding = 1, dilation = 1;
  // Where they differ from those above: the stride to the right, and what is added to the padding of these sides.
  int64_t stride_w = stride;
  int64_t more_bottom = 0, more_left = 0, more_right = 0;

  int64_t left() const { return padding + more_left; }
  int64_t padded_h() const { return in_h + 2 * padding + more_bottom; }
  int64_t out_h() const { return (padded_h() - dilation * (kernel_h - 1) - 1) / stride + 1; }
  int64_t out_w() const {
    return (in_w + left() + padding + more_right - dilation * (kernel_w - 1) - 1) / stride_w + 1;
  }
  int64_t k() const { return kernel_h * kernel_w * in_c; }
  Int8Runs runs() const {
    return dilation == 1 ? Int8Runs{kernel_h, kernel_w * in_c} : Int8Runs{kernel_h * kernel_w, in_c};
  }
  std::string name() const {
    return std::to_string(in_h) + "x" + std::to_string(in_w) + "x" + std::to_string(in_c) + " to " +
           std::to_string(out_c) + ", kernel " + std::to_string(kernel_h) + "x" + std::to_string(kernel_w) +
           " stride " + std::to_string(stride) + " padding " + std::to_string(padding) + " dilation " +
           std::to_string(dilation);
  }
};

struct Problem {
  Shape s;
  Floats x, w, bias;
  Floats residual, gamma;  // empty, or as large as their operands; `expected` knows neither
  Activation activation = Activation::kRelu;
  int64_t block_rows = 0;

  explicit Problem(const Shape& shape) : s(shape) {
    Random random(11);
    x = random.floats(s.in_h * s.in_w * s.in_c);
    w = random.floats(s.out_c * s.k());
    bias = random.floats(s.out_c);
  }
  // What must come out, with bias and relu; pixel by pixel.
  Floats expected() const {
    const Quantized image = quantized(x.data(), static_cast<int64_t>(x.size()));
    Floats result(static_cast<size_t>(s.out_h() * s.out_w() * s.out_c));
    for (int64_t c = 0; c < s.out_c; ++c) {
      const Quantized filter = quantized(w.data() + c * s.k(), s.k());
      for (int64_t i = 0; i < s.out_h() * s.out_w(); ++i) {
        const auto sum = static_cast<float>(patch_sum(image, filter, i / s.out_w(), i % s.out_w()));
        const volatile float product = sum * (image.scale * filter.scale);  // rounded, not fused with the addition
        const float y = product + bias[static_cast<size_t>(c)];
        result[static_cast<size_t>(i * s.out_c + c)] = std::max(y, 0.0f);
      }
    }
    return result;
  }

 private:
  int64_t patch_sum(const Quantized& image, const Quantized& filter, int64_t out_y, int64_t out_x) const {
    int64_t sum = 0;
    size_t at = 0;
    for (int64_t fy = 0; fy < s.kernel_h; ++fy) {
      for (int64_t fx = 0; fx < s.kernel_w; ++fx) {
        const int64_t y = out_y * s.stride - s.padding + fy * s.dilation;
        const int64_t x_at = out_x * s.stride_w - s.left() + fx * s.dilation;
        const bool inside = y >= 0 && y < s.in_h && x_at >= 0 && x_at < s.in_w;
        for (int64_t c = 0; c < s.in_c; ++c, ++at) {
          if (inside) sum += image.values[static_cast<size_t>((y * s.in_w + x_at) * s.in_c + c)] * filter.values[at];
        }
      }
    }
    return sum;
  }
};

// A convolution in pieces: ranges of output pixels, or of tiles by Winograd's method, and of panels.
class Run {
 public:
  Run(const Int8Table& table, const Problem& p, bool winograd = false)
      : table_(table), winograd_(winograd), packed_(packed(p)), args_(arguments(p)),
        scratch_(winograd ? table.winograd_scratch(args_) * static_cast<int64_t>(sizeof(float)) : 0),
        values_(table.image_bytes(args_)), y(p.s.out_h() * p.s.out_w(), p.s.out_c, p.s.out_c + 3) {
    args_.packed = reinterpret_cast<const float*>(packed_.data());
    args_.y = y.data();
    args_.y_ld = y.ld();
    const auto count = static_cast<int64_t>(p.x.size());
    scale_ = std::max(table.largest(p.x.data(), {0, count / 3}), table.largest(p.x.data(), {count / 3, count})) / 127.0f;
    const int64_t rows = p.s.padded_h();
    for (int64_t row = 0; row < rows; row += 2) table.quantize_image(args_, {row, std::min(rows, row + 2)}, input());
    CHECK(values_.intact());
  }
  int64_t rows() const {
    constexpr int64_t kSide = kInt8WinogradSide;
    if (!winograd_) return args_.out_h * args_.out_w;
    return (args_.out_h + kSide - 1) / kSide * ((args_.out_w + kSide - 1) / kSide);
  }
  void part(Range rows, Range panels) {
    if (winograd_) {
      table_.winograd(args_, input(), rows, panels, reinterpret_cast<float*>(scratch_.data()));
    } else {
      table_.conv2d(args_, input(), rows, panels);
    }
  }
  Run& whole() {
    part({0, rows()}, {0, int8_panels(table_, args_.out_c)});
    CHECK(y.intact() && scratch_.intact());
    return *this;
  }

 private:
  Bytes packed(const Problem& p) const {
    if (!winograd_) return int8_packed(table_, p.w, p.s.out_c, p.s.runs());
    Bytes out(table_.winograd_packed_bytes(p.s.out_c, p.s.in_c));
    table_.winograd_pack(p.w.data(), p.s.out_c, p.s.in_c, out.data(), {0, int8_panels(table_, p.s.out_c)});
    CHECK(out.intact());
    return out;
  }
  static Conv2dArgs arguments(const Problem& p) {
    Conv2dArgs a;
    a.x = p.x.data();
    a.in_h = p.s.in_h;
    a.in_w = p.s.in_w;
    a.in_c = p.s.in_c;
    a.out_h = p.s.out_h();
    a.out_w = p.s.out_w();
    a.out_c = p.s.out_c;
    a.kernel_h = p.s.kernel_h;
    a.kernel_w = p.s.kernel_w;
    a.stride_h = p.s.stride;
    a.stride_w = p.s.stride_w;
    a.pad_top = p.s.padding;
    a.pad_bottom = p.s.padding + p.s.more_bottom;
    a.pad_left = p.s.left();
    a.pad_right = p.s.padding + p.s.more_right;
    a.dilation = p.s.dilation;
    a.block_rows = p.block_rows;
    a.epilogue.bias = p.bias.data();
    a.epilogue.activation = p.activation;
    if (!p.residual.empty()) a.epilogue.residual = p.residual.data();
    a.epilogue.residual_ld = p.s.out_c;
    if (!p.gamma.empty()) a.epilogue.gamma = a.epilogue.beta = p.gamma.data();
    return a;
  }
  Int8Input input() { return {values_.data(), &scale_}; }
  const Int8Table& table_;
  bool winograd_;
  Bytes packed_;
  Conv2dArgs args_;
  Bytes scratch_;
  Bytes values_;
  float scale_ = 0.0f;

 public:
  Matrix y;
};

// The run has exactly the results of the problem.
inline void check_results(const Problem& p, const Floats& expected, Run run) {
  run.whole();
  const auto channels = static_cast<size_t>(p.s.out_c);
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK_CLOSE(run.y.at(static_cast<int64_t>(i / channels), static_cast<int64_t>(i % channels)), expected[i], 0.0);
  }
}

}  // namespace vla::test
