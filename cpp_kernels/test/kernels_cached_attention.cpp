// States: rows that are appended, and attention to them.
#include <limits>

#include "kernels_common.hpp"

using namespace vla;
using namespace vla::test;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Tokens whose keys and values fill a state of `shape.rows`, and the queries of the last of them.
struct Case {
  KeyValueShape shape;
  int64_t group;
  int64_t queries;
  Floats q, k, v;
  std::vector<int32_t> positions;

  Case(const KeyValueShape& s, int64_t heads_per_kv, int64_t last) : shape(s), group(heads_per_kv), queries(last) {
    Random random(6);
    q = random.floats(queries * q_ld(), -2.0f, 2.0f);
    k = random.floats(shape.rows * kv_ld(), -2.0f, 2.0f);
    v = random.floats(shape.rows * kv_ld());
    for (int32_t i = 0; i < shape.rows; ++i) positions.push_back(i);
  }

  std::string name() const {
    return std::to_string(queries) + " of " + std::to_string(shape.rows) + " tokens, " + std::to_string(group) + " on " +
           std::to_string(shape.kv_heads) + " heads of " + std::to_string(shape.head_dim);
  }
  int64_t heads() const { return group * shape.kv_heads; }
  int64_t width() const { return heads() * shape.head_dim; }
  int64_t q_ld() const { return width() + 3; }
  int64_t kv_ld() const { return shape.width() + 5; }
  int64_t first() const { return shape.rows - queries; }

  Floats empty(const KernelTable& table) const {
    return Floats(static_cast<size_t>(table.key_value_size(shape)), 0.0f);
  }
  void append(const KernelTable& table, Floats& state, Range rows) const {
    AppendArgs a;
    a.k = k.data();
    a.v = v.data();
    a.k_ld = a.v_ld = kv_ld();
    a.positions = positions.data();
    a.state = state.data();
    a.shape = shape;
    table.append(a, rows);
  }
  Floats filled(const KernelTable& table) const {
    Floats state = empty(table);
    append(table, state, {0, 1});
    append(table, state, {1, shape.rows});
    return state;
  }
  Matrix result() const { return Matrix(queries, width(), q_ld()); }
  // Of `count` queries from `row` on, `step` units at a time.
  void attend(const KernelTable& table, const Floats& state, int64_t row, int64_t count, int64_t step, Matrix& y) const {
    CachedAttentionArgs a;
    a.q = q.data() + row * q_ld();
    a.q_ld = q_ld();
    a.state = state.data();
    a.shape = shape;
    a.positions = positions.data() + first() + row;
    a.y = y.data() + row * y.ld();
    a.y_ld = y.ld();
    a.queries = count;
    a.heads = heads();
    a.scale = 0.6f;
    Floats scratch(static_cast<size_t>(table.cached_attention_scratch(a)), kNan);
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      for (int64_t u = 0; u < a.units(); u += step) {
        table.cached_attention(a, h, {u, std::min(u + step, a.units())}, scratch.data());
      }
    }
  }
  std::vector<double> expected(int64_t query, int64_t head) const {
    const int64_t keys = first() + query + 1, kv = head / group * shape.head_dim;
    std::vector<double> s, out(static_cast<size_t>(shape.head_dim));
    double largest = -1e300, total = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < shape.head_dim; ++c) {
        dot += static_cast<double>(q[static_cast<size_t>(query * q_ld() + head * shape.head_dim + c)]) *
               k[static_cast<size_t>(j * kv_ld() + kv + c)];
      }
      s.push_back(0.6f * dot);
      largest = std::max(largest, s.back());
    }
    for (double& value : s) total += value = std::exp(value - largest);
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t c = 0; c < shape.head_dim; ++c) {
        out[static_cast<size_t>(c)] +=
            s[static_cast<size_t>(j)] / total * v[static_cast<size_t>(j * kv_ld() + kv + c)];
      }
    }
    return out;
  }
};

void check_case(const Case& c) {
  const check::Context context(c.name());
  for_each_isa([&](const KernelTable& table) {
    Matrix y = c.result();
    c.attend(table, c.filled(table), 0, c.queries, c.queries * c.group, y);
    CHECK(y.intact());
    for (int64_t i = 0; i < c.queries; ++i) {
      for (int64_t h = 0; h < c.heads(); ++h) {
        const std::vector<double> expected = c.expected(i, h);
        for (int64_t d = 0; d < c.shape.head_dim; ++d) {
          CHECK_CLOSE(y.at(i, h * c.shape.head_dim + d), expected[static_cast<size_t>(d)], 2e-6);
        }
      }
    }
  });
}

}  // namespace

TEST(any_number_of_tokens) {
  for (const int64_t rows : {1, 2, 7, 16, 33, 255, 256, 257, 700}) check_case(Case({rows, 2, 16}, 1, 1));
}
TEST(any_number_of_queries) {
  for (const int64_t queries : {2, 5, 6, 13, 40}) check_case(Case({270, 1, 24}, 1, queries));
}
TEST(any_head_width) {
  for (const int64_t dim : {1, 3, 8, 17, 32, 33, 64, 80}) check_case(Case({40, 2, dim}, 1, 3));
}
TEST(heads_that_share_keys) {
  check_case(Case({50, 3, 16}, 3, 7));
  check_case(Case({300, 1, 8}, 6, 50));
}

// Whatever lies at positions after a row's own: what was guessed there, or nothing yet.
TEST(rows_after_a_position_are_not_read) {
  const Case c({90, 2, 20}, 2, 40);
  for_each_isa([&](const KernelTable& table) {
    Matrix expected = c.result(), y = c.result();
    c.attend(table, c.filled(table), 0, c.queries, c.queries * c.group, expected);
    Floats state(static_cast<size_t>(table.key_value_size(c.shape)), kNan);
    c.append(table, state, {0, c.first()});
    for (int64_t i = 0; i < c.queries; ++i) {
      c.append(table, state, {c.first() + i, c.first() + i + 1});
      c.attend(table, state, i, 1, 1, y);
    }
    CHECK(same_bits(expected.copy(), y.copy()));
  });
}

TEST(bits_depend_neither_on_the_partition_nor_on_the_other_rows) {
  const Case c({530, 2, 40}, 3, 64);
  for_each_isa([&](const KernelTable& table) {
    const Floats state = c.filled(table);
    Matrix whole = c.result();
    c.attend(table, state, 0, c.queries, c.queries * c.group, whole);
    for (const int64_t rows : {1, 2, 5, 16, 63}) {
      for (const int64_t step : {1, 7, 1000}) {
        Matrix parts = c.result();
        for (int64_t i = 0; i < c.queries; i += rows) {
          c.attend(table, state, i, std::min(rows, c.queries - i), step, parts);
        }
        CHECK(same_bits(whole.copy(), parts.copy()));
      }
    }
  });
}

TEST(appending_again_replaces_rows) {
  const Case c({70, 2, 20}, 1, 4);
  for_each_isa([&](const KernelTable& table) {
    Floats state = c.empty(table);
    Case other = c;
    for (float& value : other.k) value = -value;
    other.append(table, state, {0, 70});
    c.append(table, state, {0, 70});
    CHECK(same_bits(state, c.filled(table)));
  });
}

TEST(nan_is_passed_on) {
  Case c({20, 1, 8}, 1, 3);
  c.q[static_cast<size_t>(c.q_ld())] = kNan;  // of the second query
  for_each_isa([&](const KernelTable& table) {
    Matrix y = c.result();
    c.attend(table, c.filled(table), 0, 3, 3, y);
    for (int64_t i = 0; i < 3; ++i) CHECK(std::isnan(y.at(i, 0)) == (i == 1));
  });
}

CHECK_MAIN()
