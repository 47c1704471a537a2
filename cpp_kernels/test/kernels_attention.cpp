#include <limits>

#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

struct Problem {
  int64_t queries, keys, heads, kv_heads, dim;
  bool bias = false;
  float scale = 0.3f;
  float spread = 1.0f;  // of q and k
  int64_t extra = 0;    // leading dimensions beyond the columns
  bool shared_bias = false;  // by all heads

  std::string name() const {
    return std::to_string(queries) + " queries " + std::to_string(keys) + " keys " + std::to_string(heads) + "/" +
           std::to_string(kv_heads) + " heads of " + std::to_string(dim);
  }
};

struct Case {
  Problem p;
  Floats q, k, v, bias;

  explicit Case(const Problem& problem) : p(problem) {
    Random random(5);
    q = random.floats(p.queries * q_ld(), -p.spread, p.spread);
    k = random.floats(p.keys * kv_ld(), -p.spread, p.spread);
    v = random.floats(p.keys * kv_ld());
    bias = random.floats(p.heads * p.queries * p.keys, -2.0f, 2.0f);
  }
  int64_t q_ld() const { return p.heads * p.dim + p.extra; }
  int64_t kv_ld() const { return p.kv_heads * p.dim + p.extra; }
  AttentionArgs args(Matrix& y) const {
    AttentionArgs a;
    a.q = q.data();
    a.q_ld = q_ld();
    a.k = k.data();
    a.k_ld = a.v_ld = kv_ld();
    a.v = v.data();
    a.bias = p.bias ? bias.data() : nullptr;
    a.bias_head = p.shared_bias ? 0 : p.queries * p.keys;
    a.y = y.data();
    a.y_ld = y.ld();
    a.queries = p.queries;
    a.keys = p.keys;
    a.heads = p.heads;
    a.kv_heads = p.kv_heads;
    a.head_dim = p.dim;
    a.scale = p.scale;
    return a;
  }
  Matrix result() const { return Matrix(p.queries, p.heads * p.dim, p.heads * p.dim + p.extra); }

  std::vector<double> expected(int64_t head, int64_t query) const {
    const int64_t kv = head / (p.heads / p.kv_heads);
    std::vector<double> s(static_cast<size_t>(p.keys)), out(static_cast<size_t>(p.dim));
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t j = 0; j < p.keys; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < p.dim; ++c) {
        dot += static_cast<double>(q[static_cast<size_t>(query * q_ld() + head * p.dim + c)]) *
               k[static_cast<size_t>(j * kv_ld() + kv * p.dim + c)];
      }
      dot *= p.scale;
      if (p.bias) dot += bias[static_cast<size_t>(((p.shared_bias ? 0 : head) * p.queries + query) * p.keys + j)];
      s[static_cast<size_t>(j)] = dot;
      largest = std::max(largest, dot);
    }
    for (double& value : s) total += value = std::exp(value - largest);
    for (int64_t j = 0; j < p.keys; ++j) {
      for (int64_t c = 0; c < p.dim; ++c) {
        out[static_cast<size_t>(c)] +=
            s[static_cast<size_t>(j)] / total * v[static_cast<size_t>(j * kv_ld() + kv * p.dim + c)];
      }
    }
    return out;
  }
};

// body(head, queries) for all queries of all heads, query_step of them at a time.
template <typename Body>
void for_queries(const AttentionArgs& a, int64_t query_step, Body body) {
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t q = 0; q < a.queries; q += query_step) body(h, Range{q, std::min(a.queries, q + query_step)});
  }
}

Floats packed_kv(const KernelTable& table, const AttentionArgs& a) {
  Floats packed(static_cast<size_t>(a.kv_heads * table.attention_packed_size(a)), -777.25f);
  const auto size = static_cast<size_t>(table.attention_packed_size(a));
  for (int64_t h = 0; h < a.kv_heads; ++h) table.attention_pack(a, h, packed.data() + static_cast<size_t>(h) * size);
  return packed;
}

const float* packed_of(const KernelTable& table, const AttentionArgs& a, const Floats& packed, int64_t head) {
  return packed.data() + head / (a.heads / a.kv_heads) * table.attention_packed_size(a);
}

void run_fused(const KernelTable& table, const AttentionArgs& a, int64_t query_step) {
  const Floats packed = packed_kv(table, a);
  Floats scratch(static_cast<size_t>(table.attention_scratch(a)), std::numeric_limits<float>::quiet_NaN());
  for_queries(a, query_step, [&](int64_t head, Range queries) {
    table.attention(a, head, queries, packed_of(table, a, packed, head), scratch.data());
  });
}

void run_materialized(const KernelTable& table, const AttentionArgs& a, int64_t query_step) {
  const Floats packed = packed_kv(table, a);
  const auto size = static_cast<size_t>(table.attention_scores_size(a));
  Floats scores(size * static_cast<size_t>(a.heads), std::numeric_limits<float>::quiet_NaN());
  const auto of = [&](int64_t head) { return scores.data() + static_cast<size_t>(head) * size; };
  for_queries(a, query_step, [&](int64_t head, Range queries) {
    table.attention_scores(a, head, queries, packed_of(table, a, packed, head), of(head));
  });
  for_queries(a, query_step, [&](int64_t head, Range queries) { table.attention_softmax(a, head, queries, of(head)); });
  for_queries(a, query_step, [&](int64_t head, Range queries) {
    table.attention_values(a, head, queries, packed_of(table, a, packed, head), of(head));
  });
}

// In parts that begin at multiples of the vector width.
void run_unpacked(const KernelTable& table, const AttentionArgs& a, int64_t query_step) {
  Floats scratch(static_cast<size_t>(table.attention_unpacked_scratch(a)), std::numeric_limits<float>::quiet_NaN());
  const int64_t width = table.vector_width, step = (query_step + width - 1) / width * width;
  for_queries(a, step, [&](int64_t head, Range queries) { table.attention_unpacked(a, head, queries, scratch.data()); });
}

using Run = void (*)(const KernelTable&, const AttentionArgs&, int64_t query_step);

bool fits_unpacked(const KernelTable& table, const Case& c) {
  Matrix y = c.result();
  return table.attention_unpacked_fits(c.args(y));
}

// The ways of computing it that a case has.
std::vector<Run> methods(const KernelTable& table, const Case& c) {
  std::vector<Run> all = {run_fused, run_materialized};
  if (fits_unpacked(table, c)) all.push_back(run_unpacked);
  return all;
}

void check_case(const Case& c, double tolerance) {
  const Problem& p = c.p;
  const check::Context context(p.name());
  for_each_isa([&](const KernelTable& table) {
    for (const Run run : methods(table, c)) {
      Matrix y = c.result();
      run(table, c.args(y), p.queries);
      CHECK(y.intact());
      for (int64_t h = 0; h < p.heads; ++h) {
        for (int64_t i = 0; i < p.queries; ++i) {
          const std::vector<double> expected = c.expected(h, i);
          for (int64_t d = 0; d < p.dim; ++d) {
            CHECK_CLOSE(y.at(i, h * p.dim + d), expected[static_cast<size_t>(d)], tolerance);
          }
        }
      }
    }
  });
}

// Scores of every fourth query are about zero, but for that of the first key.
Case with_a_first_key_far(int64_t queries, int64_t keys, float first) {
  Case c({queries, keys, 1, 1, 16, false, 1.0f, 0.2f});
  for (int64_t i = 0; i < queries; i += 4) c.q[static_cast<size_t>(i * 16)] = first;
  for (int64_t j = 0; j < keys; ++j) c.k[static_cast<size_t>(j * 16)] = j == 0 ? 1.0f : 0.001f * static_cast<float>(j % 7);
  return c;
}

}  // namespace

TEST(any_number_of_keys) {
  for (const int64_t keys : {1, 2, 7, 16, 31, 32, 33, 48, 49, 100, 256, 634, 1024, 1025, 2100}) {
    check_case(Case({15, keys, 2, 2, 16}), 1e-6);
  }
}

TEST(one_bias_for_all_heads) {
  for (const int64_t keys : {7, 33, 1100}) {
    Problem p{11, keys, 4, 2, 16, true};
    p.shared_bias = true;
    check_case(Case(p), 1e-6);
  }
}

// Keys beyond the first block, the only ones admitted, follow whole blocks that weigh nothing.
TEST(a_shared_mask_of_whole_blocks) {
  Problem p{9, 2100, 2, 1, 16, true};
  p.shared_bias = true;
  Case c(p);
  const float inf = std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < p.queries; ++i) {
    const int64_t first = i % 3 == 0 ? 2099 : i % 3 == 1 ? 1500 : 1;
    for (int64_t j = 0; j < first; ++j) c.bias[static_cast<size_t>(i * p.keys + j)] = -inf;
    if (i % 3 == 2) {
      for (int64_t j = 40; j < p.keys; ++j) c.bias[static_cast<size_t>(i * p.keys + j)] = -inf;
    }
  }
  check_case(c, 1e-6);
}

TEST(any_head_width) {
  for (const int64_t dim : {1, 3, 8, 17, 31, 32, 33, 64, 80, 96}) check_case(Case({9, 70, 2, 2, dim}), 1e-6);
}

TEST(any_number_of_queries) {
  for (const int64_t queries : {1, 2, 3, 5, 6, 13, 14, 15, 19, 20, 50, 64, 71, 100, 128, 129}) {
    check_case(Case({queries, 40, 1, 1, 64}), 1e-6);
  }
}

TEST(as_many_keys_as_queries) {
  for (const int64_t tokens : {4, 17, 35, 50, 67, 100}) {
    check_case(Case({tokens, tokens, 3, 3, 64}), 1e-6);
    check_case(Case({tokens, tokens - 3, 4, 2, 32, false, 1.0f, 0.5f, 7}), 1e-6);
  }
}

// Values of one key each tell its weight; the scores of others differ from the first key's by up to 2^6 and 2^6 / 17.
TEST(weights_are_exact_to_some_units_in_the_last_place) {
  constexpr int64_t kQueries = 67, kKeys = 16;
  Case c({kQueries, kKeys, 1, 1, 16, false, std::log(2.0f)});
  for (int64_t i = 0; i < kQueries; ++i) {
    for (int64_t d = 0; d < 16; ++d) c.q[static_cast<size_t>(i * 16 + d)] = d == 0 ? static_cast<float>(i - 33) / 34.0f : 0.0f;
  }
  for (int64_t j = 0; j < kKeys; ++j) {
    for (int64_t d = 0; d < 16; ++d) {
      c.k[static_cast<size_t>(j * 16 + d)] = d == 0 ? static_cast<float>(j * j * 64) / 225.0f : 0.0f;
      c.v[static_cast<size_t>(j * 16 + d)] = d == j ? 1.0f : 0.0f;
    }
  }
  for_each_isa([&](const KernelTable& table) {
    Matrix y = c.result();
    run_unpacked(table, c.args(y), kQueries);
    for (int64_t i = 0; i < kQueries; ++i) {
      const std::vector<double> expected = c.expected(0, i);
      for (size_t d = 0; d < 16; ++d) CHECK_CLOSE(y.at(i, static_cast<int64_t>(d)) / expected[d], 1.0, 4e-6);
    }
  });
}

TEST(few_queries_without_a_bias_need_no_packing) {
  for_each_isa([&](const KernelTable& table) {
    const auto fits = [&](const Problem& p) { return fits_unpacked(table, Case(p)); };
    CHECK(fits({50, 7, 2, 2, 64}) && fits({128, 7, 2, 1, 16}));
    CHECK(!fits({129, 7, 2, 2, 64}) && !fits({50, 7, 2, 2, 66}) && !fits({50, 7, 2, 2, 64, true}));
  });
}

TEST(rows_pages_apart) {
  for (const int64_t queries : {9, 50, 100}) {
    for (const int64_t keys : {33, 700}) {
      Problem p{queries, keys, 2, 1, 16};
      p.extra = 1024 - 16;
      check_case(Case(p), 1e-6);
    }
  }
}

TEST(grouped_query_heads) {
  check_case(Case({10, 50, 8, 2, 24}), 1e-6);
  check_case(Case({10, 50, 6, 1, 24}), 1e-6);
}

TEST(bias_and_leading_dimensions) {
  check_case(Case({15, 300, 3, 3, 20, true, 1.0f, 0.5f, 5}), 1e-6);
  check_case(Case({4, 9, 2, 1, 7, true, 1.0f, 0.5f, 2}), 1e-6);
}

TEST(negative_scale) { check_case(Case({6, 40, 1, 1, 16, false, -0.5f}), 1e-6); }

TEST(scores_far_beyond_what_exp_can_hold) { check_case(Case({8, 1200, 1, 1, 64, false, 1.0f, 10.0f}), 2e-4); }

// Weights are relative to the first key's, which here is the one that weighs least, or most, by far. In a tile of queries
// only some are like that, and the others have the bits that they have without those.
TEST(a_first_key_far_from_the_others) {
  for (const float first : {-400.0f, -70.0f, -30.0f, 30.0f, 400.0f}) {
    for (const int64_t queries : {15, 17}) {  // all in lanes, or the last one without
      for (const int64_t keys : {3, 40, 70, 1100}) {
        const Case c = with_a_first_key_far(queries, keys, first);
        check_case(c, 4e-6);
        for_each_isa([&](const KernelTable& table) {
          for (const Run run : {run_fused, run_unpacked}) {
            Matrix together = c.result(), apart = c.result();
            run(table, c.args(together), queries);
            run(table, c.args(apart), 1);
            CHECK(same_bits(together.copy(), apart.copy()));
          }
        });
      }
    }
  }
}

// Scores that no power of two holds, of every key or of the first one only.
TEST(scores_of_any_size) {
  for (const float factor : {1e3f, 1e6f, 1e12f, 1e30f}) {
    Case c({8, 90, 1, 1, 16, false, 1.0f, 1.0f});
    for (int64_t j = 0; j < 90; ++j) {
      for (int64_t d = 0; d < 16; ++d) c.k[static_cast<size_t>(j * 16 + d)] = d == 0 ? static_cast<float>(j % 11) : 0.0f;
    }
    for (int64_t i = 0; i < 8; ++i) c.q[static_cast<size_t>(i * 16)] = i % 2 == 0 ? factor : -factor;
    check_case(c, 1e-5);
  }
}

TEST(infinite_scores_are_told) {
  Case c({4, 50, 1, 1, 16});
  c.q[16] = std::numeric_limits<float>::infinity();  // of the second query
  for_each_isa([&](const KernelTable& table) {
    for (const Run run : methods(table, c)) {
      Matrix y = c.result();
      run(table, c.args(y), 4);
      for (int64_t i = 0; i < 4; ++i) CHECK(std::isnan(y.at(i, 0)) == (i == 1));
    }
  });
}

TEST(large_values_stay_finite) {
  Case c({5, 60, 1, 1, 16});
  for (float& v : c.v) v *= 1e20f;
  const std::vector<double> expected = c.expected(0, 2);
  for_each_isa([&](const KernelTable& table) {
    for (const Run run : {run_fused, run_unpacked}) {
      Matrix y = c.result();
      run(table, c.args(y), 5);
      for (int64_t d = 0; d < 16; ++d) CHECK_CLOSE(y.at(2, d) / 1e20, expected[static_cast<size_t>(d)] / 1e20, 1e-6);
    }
  });
}

TEST(masked_keys_have_no_weight) {
  Case c({7, 1300, 2, 2, 8, true, 1.0f, 0.5f});
  for (int64_t row = 0; row < 2 * 7; ++row) {
    for (int64_t j = 0; j < 1300; ++j) {
      const bool masked = j < 700 || j % 3 == 0;  // the whole first block, and some of the others
      if (masked) c.bias[static_cast<size_t>(row * 1300 + j)] = -std::numeric_limits<float>::infinity();
    }
  }
  check_case(c, 1e-6);
}

TEST(nan_is_passed_on) {
  Case c({3, 20, 1, 1, 16});
  c.q[16] = std::numeric_limits<float>::quiet_NaN();  // of the second query
  for_each_isa([&](const KernelTable& table) {
    for (const Run run : methods(table, c)) {
      Matrix y = c.result();
      run(table, c.args(y), 3);
      for (int64_t d = 0; d < 16; ++d) {
        CHECK(!std::isnan(y.at(0, d)));
        CHECK(std::isnan(y.at(1, d)));
        CHECK(!std::isnan(y.at(2, d)));
      }
    }
  });
}

TEST(bits_do_not_depend_on_the_partition) {
  for (const bool bias : {true, false}) {
    const Case c({61, 1100, 2, 1, 48, bias});
    for_each_isa([&](const KernelTable& table) {
      for (const Run run : methods(table, c)) {
        Matrix whole = c.result();
        run(table, c.args(whole), 61);
        for (const int64_t step : {1, 5, 14, 30}) {
          Matrix parts = c.result();
          run(table, c.args(parts), step);
          CHECK(same_bits(whole.copy(), parts.copy()));
        }
      }
    });
  }
}

CHECK_MAIN()
