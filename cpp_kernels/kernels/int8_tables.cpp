#include "kernels/int8_tables.hpp"

// The getter of a variant that is part of this build, and of one that is not.
#define VLA_INT8_PRESENT(variant)  \
  namespace int8_##variant {       \
  const Int8Table* int8_kernels(); \
  }                                \
  const Int8Table* int8_##variant##_kernels() { return int8_##variant::int8_kernels(); }
#define VLA_INT8_ABSENT(variant) \
  const Int8Table* int8_##variant##_kernels() { return nullptr; }

namespace vla {

VLA_INT8_PRESENT(portable)

#ifdef VLA_HAS_INT8_AVX2
VLA_INT8_PRESENT(avx2)
VLA_INT8_PRESENT(avxvnni)
VLA_INT8_PRESENT(avx512)
VLA_INT8_PRESENT(avx512vnni)
#else
VLA_INT8_ABSENT(avx2)
VLA_INT8_ABSENT(avxvnni)
VLA_INT8_ABSENT(avx512)
VLA_INT8_ABSENT(avx512vnni)
#endif

#ifdef VLA_HAS_INT8_NEON
VLA_INT8_PRESENT(neon)
VLA_INT8_PRESENT(neondot)
#else
VLA_INT8_ABSENT(neon)
VLA_INT8_ABSENT(neondot)
#endif

}  // namespace vla
