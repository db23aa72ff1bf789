#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "tests/support/all_isas.h"

namespace specdec {

/// Rows on the host with storage of their own; `stride` may exceed `cols`, and what lies between is never touched.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols, std::int64_t gap = 0)
      : rows_(rows), cols_(cols), stride_(cols + gap), values_(static_cast<std::size_t>(rows * stride_)) {}

  /// Normally distributed, a function of the seed only.
  static Matrix random(std::int64_t rows, std::int64_t cols, unsigned seed, float spread = 1.0F, std::int64_t gap = 0) {
    Matrix result(rows, cols, gap);
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0F, spread);
    for (float& x : result.values_) {
      x = normal(engine);
    }
    return result;
  }

  Rows view() { return {values_.data(), rows_, cols_, stride_}; }
  ConstRows view() const { return {values_.data(), rows_, cols_, stride_}; }
  float* data() { return values_.data(); }
  const float* data() const { return values_.data(); }
  float at(std::int64_t r, std::int64_t c) const { return values_[r * stride_ + c]; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  /// Everything, the gaps included: equal only if an operation gave the same bits and left the gaps alone.
  const std::vector<float>& all() const { return values_; }
  std::vector<float> row(std::int64_t r) const {
    const auto begin = values_.begin() + r * stride_;
    return {begin, begin + cols_};
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  std::vector<float> values_;
};

/// Sizes at which vector code goes wrong: around one, two and four vectors, odd, prime.
inline const std::vector<std::int64_t> kAwkwardSizes = {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 47, 64, 65, 97, 128, 257};

/// A test for every instruction set of the machine.
class CpuBackendTest : public ::testing::TestWithParam<Isa> {
 protected:
  CpuBackend cpu{GetParam(), 1};
  CpuBackend scalar{Isa::kScalar, 1};
  ReferenceBackend reference;
  Stream stream;
};

inline std::string isa_name(const ::testing::TestParamInfo<Isa>& info) { return std::string(name_of(info.param)); }

}  // namespace specdec
