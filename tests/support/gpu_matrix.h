#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "tests/support/all_isas.h"

/// What the batteries for GPU backends are written with.
namespace specdec::battery {

using Values = std::vector<float>;

inline Values random_values(std::int64_t count, unsigned seed) {
  Values values(static_cast<std::size_t>(count));
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::ranges::generate(values, [&] { return normal(engine); });
  return values;
}

/// A NaN is as good as any other: which sign and payload an operation gives one is the hardware's.
inline testing::AssertionResult same_bits(const Values& expected, const Values& found) {
  for (std::size_t i = 0; i < expected.size() && i < found.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(found[i]) &&
        !(std::isnan(expected[i]) && std::isnan(found[i]))) {
      return testing::AssertionFailure() << "element " << i << ": expected " << expected[i] << ", found " << found[i];
    }
  }
  return expected.size() == found.size() ? testing::AssertionSuccess() : testing::AssertionFailure() << "sizes differ";
}

/// Rows in the memory of a backend.
class Matrix {
 public:
  Matrix(Backend& backend, std::int64_t rows, std::int64_t cols)
      : backend_(backend), memory_(backend.allocate(rows * cols * sizeof(float))), shape_{nullptr, rows, cols, cols} {}
  Matrix(Backend& backend, std::int64_t rows, std::int64_t cols, const Values& values) : Matrix(backend, rows, cols) {
    backend.upload(memory_->data(), std::as_bytes(std::span(values)).first(memory_->bytes()), {});
    backend.synchronize({});
  }
  Rows rows() { return {memory_->floats(), shape_.rows, shape_.cols, shape_.stride}; }
  float* data() { return memory_->floats(); }
  Values values() {
    Values out(static_cast<std::size_t>(shape_.rows * shape_.cols));
    backend_.download(std::as_writable_bytes(std::span(out)), memory_->data(), {});
    backend_.synchronize({});
    return out;
  }

 private:
  Backend& backend_;
  std::unique_ptr<Buffer> memory_;
  Rows shape_;
};

/// The same operation on both: what the CPU finds is expected.
inline void expect_alike(Backend& gpu, const std::function<Values(Backend&)>& operation, std::string_view what) {
  CpuBackend cpu(strongest_isa_in_turn(), 1);
  EXPECT_TRUE(same_bits(operation(cpu), operation(gpu))) << what;
}

}  // namespace specdec::battery
