// A small unit-test harness: TEST defines a case, CHECK and CHECK_CLOSE record failures without stopping
// it, CHECK_MAIN runs all cases of the program and fails when any check failed.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace check {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

// What is being tried, printed with a failure: an instruction set, a size.
inline std::vector<std::string>& context() {
  static std::vector<std::string> parts;
  return parts;
}

struct Context {
  explicit Context(std::string part) { context().push_back(std::move(part)); }
  ~Context() { context().pop_back(); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

inline void fail(const char* file, int line, const std::string& message) {
  ++failures();
  if (failures() > 40) return;
  std::string where;
  for (const std::string& part : context()) where += " [" + part + "]";
  std::fprintf(stderr, "%s:%d:%s %s\n", file, line, where.c_str(), message.c_str());
}

struct Registration {
  Registration(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

inline int run_all() {
  for (const Case& c : cases()) {
    const int before = failures();
    c.body();
    std::printf("%s %s\n", failures() == before ? "ok    " : "FAILED", c.name);
  }
  if (cases().empty()) std::fprintf(stderr, "no test cases\n");
  return failures() == 0 && !cases().empty() ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                                     \
  static void test_##name();                                           \
  static const check::Registration registration_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition);   \
  } while (false)

// |got - expected| <= tolerance, and NaN exactly where NaN is expected.
#define CHECK_CLOSE(got, expected, tolerance)                                                         \
  do {                                                                                                \
    const double g_ = (got), e_ = (expected), t_ = (tolerance);                                       \
    if (std::isnan(g_) != std::isnan(e_) || std::fabs(g_ - e_) > t_) {                                \
      check::fail(__FILE__, __LINE__,                                                                 \
                  std::string(#got) + ": got " + std::to_string(g_) + ", expected " +                 \
                      std::to_string(e_) + ", off by " + std::to_string(std::fabs(g_ - e_) * 1e6) +   \
                      "e-6, allowed " + std::to_string(t_ * 1e6) + "e-6");                            \
    }                                                                                                 \
  } while (false)

#define CHECK_MAIN() \
  int main() { return check::run_all(); }
