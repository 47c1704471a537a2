// Elementary functions over Vec. The polynomials are near-minimax fits; each comment gives the largest
// error of the approximation itself, to which the rounding of fp32 adds about one unit in the last place.
#pragma once

#include "kernels/kernels.hpp"
#include "simd/vec.hpp"

namespace vla::VLA_ISA {

// e^x. Zero below -87.33 (the smallest normal result), constant above 88. NaN stays NaN.
VLA_INLINE Vec exp(Vec x) {
  const Vec lowest = splat(-87.33f);
  const Vec clamped = min(splat(88.0f), max(lowest, x));
  const Vec n = round_to_even(clamped * splat(1.44269504f));
  // ln 2 in two parts, the first with so few bits that n times it is exact.
  const Vec r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), clamped));
  Vec p = splat(0x1.6db4e4p-10f);  // (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, relative to e^r within 4e-9
  p = fma(p, r, splat(0x1.123be0p-7f));
  p = fma(p, r, splat(0x1.55545ep-5f));
  p = fma(p, r, splat(0x1.55548ep-3f));
  p = fma(p, r, splat(0.5f));
  const Vec e = fma(r * r, p, r) + splat(1.0f);
  return select(less(x, lowest), zero(), e * power_of_two(n));
}

// What is added to a number to round it to an integer: 1.5 * 2^23 leaves no bits for a fraction, and with 127 more the
// lowest eight bits are the exponent field of that power of two.
constexpr float kToExponent = 0x1.8p23f + 127.0f;

// scale * 2^x for |x| <= 1/2; scale is a power of two.
VLA_INLINE Vec exp2_of_fraction(Vec x, float scale) {
  Vec p = splat(scale * 0x1.5bba14p-10f);  // (2^x - 1) / x, relative to 2^x within 9.2e-8
  p = fma(p, x, splat(scale * 0x1.3cea88p-7f));
  p = fma(p, x, splat(scale * 0x1.c6b752p-5f));
  p = fma(p, x, splat(scale * 0x1.ebf9bcp-3f));
  p = fma(p, x, splat(scale * 0x1.62e42ap-1f));
  return fma(p, x, splat(scale));
}

// 2^x for x <= 0, and exactly zero below -126.5. NaN stays NaN.
VLA_INLINE Vec exp2_of_negative(Vec x) {
  const Vec clamped = max(splat(-127.0f), x);
  const Vec shift = splat(kToExponent);
  const Vec shifted = clamped + shift;
  return exp2_of_fraction(clamped - (shifted - shift), 1.0f) * exponent_of_lowest_bits(shifted);
}

// x times the normal distribution below x, within 1e-7 of |x| everywhere. What is above |x| is taken from its logarithm,
// which is smooth: x on the right of zero less |x| times that.
VLA_INLINE Vec gelu(Vec x) {
  const Vec t = abs(x);
  Vec q = splat(-0x1.741412p-19f);  // log2 of the distribution above t, which is within 8e-9 and vanishes far out
  q = fma(q, t, splat(0x1.43fcc0p-15f));
  q = fma(q, t, splat(-0x1.7ed7dep-13f));
  q = fma(q, t, splat(-0x1.31e28ap-13f));
  q = fma(q, t, splat(0x1.cfb27cp-8f));
  q = fma(q, t, splat(-0x1.ae1f02p-5f));
  q = fma(q, t, splat(-0x1.d639d0p-2f));
  q = fma(q, t, splat(-0x1.26aedep+0f));
  q = fma(q, t, splat(-1.0f));
  return fma(zero() - t, exp2_of_negative(q), max(zero(), x));
}

// Within 2e-7 everywhere.
VLA_INLINE Vec tanh(Vec x) {
  const Vec a = abs(x);
  const Vec z = x * x;
  Vec p = splat(-0x1.6f1a70p-8f);  // (tanh(x) - x) / x^3 in x^2 on |x| <= 0.64, relative to tanh within 6e-9
  p = fma(p, z, splat(0x1.50af48p-6f));
  p = fma(p, z, splat(-0x1.b8054cp-5f));
  p = fma(p, z, splat(0x1.110598p-3f));
  p = fma(p, z, splat(-0x1.55552cp-2f));
  const Vec near = fma(p * z, x, x);
  const Vec e = exp(a + a);  // no larger than needed for a quotient that vanishes against one
  const Vec far = with_sign_of(splat(1.0f) - splat(2.0f) / (e + splat(1.0f)), x);
  return select(less(a, splat(0.625f)), near, far);
}

VLA_INLINE Vec activate(Vec x, Activation activation) {
  const Vec one = splat(1.0f);
  switch (activation) {
    case Activation::kRelu:
      return max(zero(), x);
    case Activation::kGelu:
      return gelu(x);
    case Activation::kGeluTanh: {
      const Vec cubic = fma(x * x * x, splat(0.044715f), x);
      return x / (one + exp(cubic * splat(-2.0f * 0.79788456f)));  // (1 + tanh(c)) / 2 = 1 / (1 + e^(-2 c))
    }
    case Activation::kSilu:
      return x / (one + exp(-x));
    case Activation::kTanh:
      return tanh(x);
    case Activation::kMish: {
      // tanh(log(1 + e)) is n / (n + 2) with n = e * (e + 2), one from x = 20 on
      const Vec e = exp(min(splat(20.0f), x));
      const Vec n = e * (e + splat(2.0f));
      return x * (n / (n + splat(2.0f)));
    }
    case Activation::kSigmoid:
      return one / (one + exp(-x));
    case Activation::kExp:
      return exp(x);
    case Activation::kNone:
      break;
  }
  return x;
}

template <Activation kActivation>
struct ActivationConstant {
  static constexpr Activation value = kActivation;
};

// Calls body with an ActivationConstant: its loops are compiled for each activation.
template <typename Body>
VLA_INLINE void with_activation(Activation activation, Body body) {
  switch (activation) {
    case Activation::kNone:
      return body(ActivationConstant<Activation::kNone>());
    case Activation::kRelu:
      return body(ActivationConstant<Activation::kRelu>());
    case Activation::kGelu:
      return body(ActivationConstant<Activation::kGelu>());
    case Activation::kGeluTanh:
      return body(ActivationConstant<Activation::kGeluTanh>());
    case Activation::kSilu:
      return body(ActivationConstant<Activation::kSilu>());
    case Activation::kTanh:
      return body(ActivationConstant<Activation::kTanh>());
    case Activation::kMish:
      return body(ActivationConstant<Activation::kMish>());
    case Activation::kSigmoid:
      return body(ActivationConstant<Activation::kSigmoid>());
    case Activation::kExp:
      return body(ActivationConstant<Activation::kExp>());
  }
}

}  // namespace vla::VLA_ISA
