#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "tests/support/gpu_battery.h"
#include "tests/support/random_layers.h"

namespace specdec::battery {
namespace {

using Values = std::vector<float>;

std::unique_ptr<Buffer> uploaded(Backend& backend, std::span<const std::byte> bytes) {
  auto buffer = backend.allocate(bytes.size());
  backend.upload(buffer->data(), bytes, {});
  return buffer;
}

Values downloaded(Backend& backend, Buffer& buffer, std::int64_t count) {
  Values values(static_cast<std::size_t>(count));
  backend.download(std::as_writable_bytes(std::span(values)), buffer.data(), {});
  backend.synchronize({});
  return values;
}

/// Three rows of ascending numbers times the weight.
Values product(Backend& backend, const PackedLinear& weight) {
  constexpr std::int64_t kRows = 3;
  const std::int64_t inputs = weight.in_features();
  const std::int64_t outputs = weight.out_features();
  Values x(static_cast<std::size_t>(kRows * inputs));
  std::iota(x.begin(), x.end(), -20.0F);
  const auto in = uploaded(backend, std::as_bytes(std::span(x)));
  const auto out = backend.allocate(static_cast<std::size_t>(kRows * outputs) * sizeof(float));
  backend.matmul(weight, {in->floats(), kRows, inputs, inputs}, {out->floats(), kRows, outputs, outputs}, {});
  return downloaded(backend, *out, kRows * outputs);
}

Values rows(Backend& backend, const WeightView& weight) {
  const std::vector<std::int32_t> index = {3, 0, static_cast<std::int32_t>(weight.rows - 1)};
  const auto table = backend.make_table(weight);
  const auto picked = uploaded(backend, std::as_bytes(std::span(index)));
  const auto out = backend.allocate(index.size() * static_cast<std::size_t>(weight.cols) * sizeof(float));
  backend.embed(*table, reinterpret_cast<const std::int32_t*>(picked->data()),
                {out->floats(), std::ssize(index), weight.cols, weight.cols}, {});
  return downloaded(backend, *out, std::ssize(index) * weight.cols);
}

}  // namespace

void expect_random_weights(Backend& gpu, DType dtype) {
  for (const tests::RandomLayer& layer : tests::random_layers(dtype)) {
    const tests::ReadLayer read(layer.spec());
    const auto made = gpu.pack(layer.spec());
    const auto copied = gpu.pack(read.spec());
    EXPECT_EQ(made->bytes(), copied->bytes()) << layer.name;
    EXPECT_EQ(product(gpu, *made), product(gpu, *copied)) << layer.name;
  }
  CpuBackend cpu(Isa::kScalar, 1);
  EXPECT_EQ(rows(gpu, tests::random_view(8, 0, 30, 70, 70, 1)), rows(cpu, tests::random_view(8, 0, 30, 70, 70, 1)));
  EXPECT_EQ(rows(gpu, tests::random_view(8, 13, 20, 33, 1, 40)), rows(cpu, tests::random_view(8, 13, 20, 33, 1, 40)));
}

}  // namespace specdec::battery
