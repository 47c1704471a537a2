#include "kernels/pack.hpp"
#include "kernels/panel_product.hpp"
#include "kernels/table.hpp"

namespace vla::VLA_ISA {

void linear(const LinearArgs& g, Range rows, Range panels) {
  if (!is_narrow(g.n)) return panel_product(g, rows, panels);
  if (panels.begin < panels.end) linear_narrow(g, rows, g.packed + panels_size(g.n, g.k));
}

}  // namespace vla::VLA_ISA
