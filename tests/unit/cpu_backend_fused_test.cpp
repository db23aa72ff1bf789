// Operations that the backend does at once have the bits of their parts, on every instruction set and by any number of threads.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/cpu_kv.h"
#include "backend/cpu/row_ops.h"
#include "backend/forwarding_backend.h"
#include "tests/unit/backend_fixture.h"

namespace specdec {
namespace {

class CpuBackendFused : public ::testing::TestWithParam<Isa> {
 protected:
  /// Calls check(fused, by parts) for teams of several sizes.
  template <typename Check>
  void for_teams(const Check& check) {
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      CpuBackend fused(GetParam(), threads);
      ForwardingBackend parts(fused);
      check(static_cast<Backend&>(fused), static_cast<Backend&>(parts));
    }
  }

  Stream stream;
};

INSTANTIATE_TEST_SUITE_P(Isas, CpuBackendFused, testing::ValuesIn(all_isas()), isa_name);

TEST_P(CpuBackendFused, GatedProduct) {
  struct Shape {
    std::int64_t in;
    std::int64_t gates;
  };
  // One panel of gates; several chunks for each thread, of one matrix and of a wide one; gates that end within a panel.
  for (const Shape& shape : std::vector<Shape>{{70, 16}, {640, 16 * 40}, {3000, 16 * 9}, {64, 40}}) {
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kInt8}) {
      const Matrix gate = Matrix::random(shape.gates, shape.in, 1, 0.1F);
      const Matrix up = Matrix::random(shape.gates, shape.in, 2, 0.1F);
      const auto view = [&](const Matrix& of) {
        return WeightView{
            reinterpret_cast<const std::byte*>(of.data()), DType::kF32, of.rows(), of.cols(), of.cols(), 1};
      };
      LinearSpec spec{.stacked = {view(gate), view(up)}, .slices = {{0, shape.in}}, .dtype = dtype};
      spec.gated = true;
      const Matrix bias = Matrix::random(1, 2 * shape.gates, 3);
      for_teams([&](Backend& fused, Backend& parts) {
        const std::unique_ptr<PackedLinear> weight = fused.pack(spec);
        for (const std::int64_t rows : {1, 5, 16, 17, 70}) {
          const Matrix x = Matrix::random(rows, shape.in, 4, 1.0F, 3);
          for (const float* const b : {static_cast<const float*>(nullptr), bias.data()}) {
            SCOPED_TRACE(testing::Message() << shape.in << " to " << shape.gates << ", " << name_of(dtype) << ", "
                                            << rows << " rows" << (b != nullptr ? ", bias" : ""));
            Matrix gate_up(rows, 2 * shape.gates, 8);
            Matrix expected(rows, shape.gates, 5);
            Matrix out(rows, shape.gates, 5);
            parts.matmul_silu_mul(*weight, x.view(), b, gate_up.view(), expected.view(), stream);
            fused.matmul_silu_mul(*weight, x.view(), b, gate_up.view(), out.view(), stream);
            EXPECT_EQ(out.all(), expected.all());
          }
        }
      });
    }
  }
}

TEST_P(CpuBackendFused, ResidualAndNorm) {
  for (const std::int64_t cols : {1, 17, 64, 1031}) {
    const std::int64_t rows = cols < 1000 ? 3 : 67;  // the last is shared by all threads
    const Matrix x = Matrix::random(rows, cols, 1, 3.0F, 5);
    const Matrix y = Matrix::random(rows, cols, 2, 3.0F, 1);
    const Matrix weight = Matrix::random(1, cols, 3);
    const Matrix bias = Matrix::random(1, cols, 4);
    for_teams([&](Backend& fused, Backend& parts) {
      const auto sum_and_norm = [&](Backend& backend, bool is_rms) {
        Matrix sum = x;
        Matrix norm(rows, cols, 7);
        if (is_rms) {
          backend.add_rms_norm(sum.view(), y.view(), weight.data(), 1e-5F, norm.view(), stream);
        } else {
          backend.add_layer_norm(sum.view(), y.view(), weight.data(), bias.data(), 1e-5F, norm.view(), stream);
        }
        return std::vector{sum.all(), norm.all()};
      };
      for (const bool is_rms : {true, false}) {
        EXPECT_EQ(sum_and_norm(fused, is_rms), sum_and_norm(parts, is_rms)) << cols << " " << is_rms;
      }
    });
  }
}

TEST_P(CpuBackendFused, RotaryEmbeddingAppendAndAttention) {
  struct Shape {
    std::int64_t heads;
    std::int64_t kv_heads;
    std::int64_t dim;
  };
  // One head of each kind, fewer than threads; many queries to a head; more keys and values than queries' threads share.
  for (const Shape& shape : std::vector<Shape>{{1, 1, 6}, {9, 3, 64}, {2, 2, 80}, {4, 4, 128}}) {
    for (const std::int64_t rows : {1, 5, 16, 70}) {
      SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.dim << ", " << rows << " rows");
      std::vector<std::int32_t> position(static_cast<std::size_t>(rows));
      std::vector<std::int32_t> parent(position.size());
      for (std::int32_t r = 0; r < rows; ++r) {
        position[static_cast<std::size_t>(r)] = 3 + r;
        parent[static_cast<std::size_t>(r)] = r - 1;
      }
      std::vector<std::int32_t> kv_head(static_cast<std::size_t>(shape.heads));
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        kv_head[static_cast<std::size_t>(head)] = static_cast<std::int32_t>(head * shape.kv_heads / shape.heads);
      }
      const RowChain chain{position, parent, 60};  // across blocks of keys
      const Matrix cos = Matrix::random(rows + 3, shape.dim / 2, 1);
      const Matrix sin = Matrix::random(rows + 3, shape.dim / 2, 2);
      for_teams([&](Backend& fused, Backend& parts) {
        const auto kept_and_attended = [&](Backend& backend) {
          Matrix query = Matrix::random(rows, shape.heads * shape.dim, 3, 1.0F, 5);
          Matrix keys = Matrix::random(rows, shape.kv_heads * shape.dim, 4, 1.0F, 1);
          const Matrix values = Matrix::random(rows, shape.kv_heads * shape.dim, 5);
          const auto kv =
              backend.make_kv({.layers = 2, .kv_heads = shape.kv_heads, .head_dim = shape.dim, .capacity = 60 + rows});
          Matrix out(rows, shape.heads * shape.dim, 3);
          backend.rope_append_attention({query.view(), keys.view(), values.view(), cos.data(), sin.data()}, *kv, 1,
                                        chain, kv_head, 0.3F, out.view(), stream);
          std::vector<std::vector<float>> all = {out.all()};
          const auto& store = static_cast<const CpuKv&>(*kv);
          for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
            for (std::int64_t block = 0; block * kKeyBlock < 60 + rows; ++block) {
              const float* const from = store.keys(1, head, block);
              all.emplace_back(from, from + key_block_size(shape.dim));
            }
          }
          return all;
        };
        EXPECT_EQ(kept_and_attended(fused), kept_and_attended(parts));
      });
    }
  }
}

TEST_P(CpuBackendFused, ResultsForOthersHaveTheSameBits) {
  const RowOps& ops = row_ops(GetParam());
  constexpr std::int64_t kRows = 3;
  for (const std::int64_t cols : kAwkwardSizes) {
    for (const std::int64_t offset : {0, 1, 16}) {  // on lines and off them
      const std::int64_t stride = (cols + offset + 47) / 16 * 16;
      const Matrix x = Matrix::random(kRows, 2 * cols, 1, 3.0F);
      const Matrix weight = Matrix::random(1, cols, 2);
      const Matrix bias = Matrix::random(1, cols, 3);
      std::vector<float> state(static_cast<std::size_t>(attention_state_size(cols)));
      ops.attention_begin(state.data(), cols);
      state[16] = 2;
      for (std::size_t i = 32; i < state.size(); ++i) state[i] = x.data()[i % static_cast<std::size_t>(cols)];
      const auto results = [&](const ResultOps& of) {
        AlignedArray memory(static_cast<std::size_t>(4 * kRows * stride) * sizeof(float));
        auto* const out = reinterpret_cast<float*>(memory.data());
        std::fill_n(out, 4 * kRows * stride, 7.0F);
        float* to = out + offset;
        for (std::int64_t r = 0; r < kRows; ++r, to += stride)
          of.rms_norm(x.view().row(r), weight.data(), 1e-5F, to, cols);
        for (std::int64_t r = 0; r < kRows; ++r, to += stride) {
          of.layer_norm(x.view().row(r), weight.data(), bias.data(), 1e-5F, to, cols);
        }
        of.silu_mul(x.data(), x.data() + cols, 2 * cols, to, stride, kRows, cols);
        of.attention_end(state.data(), cols, to + kRows * stride);
        return std::vector<float>(out, out + 4 * kRows * stride);
      };
      EXPECT_EQ(results(ops.for_others), results(ops.kept)) << cols << " from " << offset << " on";
    }
  }
}

}  // namespace
}  // namespace specdec
