#include "kernels/tables.hpp"

namespace vla {

namespace portable {
const KernelTable* kernels();
}
const KernelTable* portable_kernels() { return portable::kernels(); }

#ifdef VLA_HAS_AVX2
namespace avx2 {
const KernelTable* kernels();
}
const KernelTable* avx2_kernels() { return avx2::kernels(); }
#else
const KernelTable* avx2_kernels() { return nullptr; }
#endif

#ifdef VLA_HAS_AVX512
namespace avx512 {
const KernelTable* kernels();
}
const KernelTable* avx512_kernels() { return avx512::kernels(); }
#else
const KernelTable* avx512_kernels() { return nullptr; }
#endif

#ifdef VLA_HAS_NEON
namespace neon {
const KernelTable* kernels();
}
const KernelTable* neon_kernels() { return neon::kernels(); }
#else
const KernelTable* neon_kernels() { return nullptr; }
#endif

}  // namespace vla
