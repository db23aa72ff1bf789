#pragma once

#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/kv_kernels.h"
#include "backend/dtype.h"
#include "backend/elementary.h"
#include "backend/tensor.h"

/// What is done to every row by itself, with the bits of backend/cpu/norm_inl.h and elementwise_inl.h. One block a row.
namespace specdec::cuda {

using elementary::fused;

/// x[r] = row index[r] of a table [rows, cols] of `type`, aligned to its elements; zeros for -1.
template <class Gpu>
SPECDEC_DEVICE void embed(Gpu& gpu, const std::byte* table, DType type, const std::int32_t* index, Rows x) {
  const std::int64_t first = index[gpu.block_x()] * x.cols;
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    float value = 0;
    if (first < 0) {
      value = 0;
    } else if (type == DType::kF32) {
      value = reinterpret_cast<const float*>(table)[first + i];
    } else {
      const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(table)[first + i];
      value = type == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
    }
    x.row(gpu.block_x())[i] = value;
  }
}

/// x = y + x; y with a stride of 0 is one row for all.
template <class Gpu>
SPECDEC_DEVICE void add(Gpu& gpu, Rows x, ConstRows y) {
  float* row = x.row(gpu.block_x());
  const float* other = y.row(gpu.block_x());
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    row[i] = other[i] + row[i];
  }
}

/// Elements of a row that a block keeps in its memory, at most: with their sum just under the 48 KB that need not be asked for.
inline constexpr std::int64_t kFoldedFloats = 12'272;
static_assert(kFoldedFloats % kRowLanes == 0, "a part of a row begins with lane 0");
inline constexpr int kFoldThreads = 512;

/// For as much of a row as fits, and its sum.
constexpr std::size_t fold_shared_bytes(std::int64_t cols) {
  return static_cast<std::size_t>((cols < kFoldedFloats ? cols : kFoldedFloats) + 1) * sizeof(float);
}

/// A row that is folded and then read again, for one block of threads: it comes to the block's memory once, where it fits. fold() first: it waits until all of
/// it is there. fold_shared_bytes().
template <class Gpu>
class FoldedRow {
 public:
  SPECDEC_DEVICE FoldedRow(Gpu& gpu, const float* row, std::int64_t cols)
      : memory_(reinterpret_cast<float*>(gpu.shared())), row_(row), cols_(cols) {
    if (fits()) {
      bring(gpu, 0, cols, [row](std::int64_t i) { return row[i]; });
    }
  }
  /// Of row = branch + row.
  SPECDEC_DEVICE FoldedRow(Gpu& gpu, float* row, const float* branch, std::int64_t cols)
      : memory_(reinterpret_cast<float*>(gpu.shared())), row_(row), cols_(cols) {
    if (fits()) {
      bring(gpu, 0, cols, [&](std::int64_t i) { return branch[i] + row[i]; });
      // By the threads that have brought them.
      for (std::int64_t i = gpu.thread(); i < cols; i += gpu.threads()) {
        row[i] = memory_[i];
      }
    } else {
      for (std::int64_t i = gpu.thread(); i < cols; i += gpu.threads()) {
        row[i] = branch[i] + row[i];
      }
    }
    gpu.sync();
  }

  /// Element i goes to lane i mod 16, fold(sum, element) in order, then the lanes in their tree. Every thread gets it.
  template <typename Fold>
  SPECDEC_DEVICE float fold(Gpu& gpu, const Fold& fold) {
    float sum = 0;
    for (std::int64_t first = 0; first < cols_; first += kFoldedFloats) {
      const std::int64_t count = cols_ - first < kFoldedFloats ? cols_ - first : kFoldedFloats;
      if (!fits()) {
        gpu.sync();
        bring(gpu, first, count, [this](std::int64_t i) { return row_[i]; });
      }
      gpu.sync();
      if (gpu.thread() < kRowLanes) {
        sum = fold_lane(memory_ + gpu.thread(), share_of(count, gpu.thread(), kRowLanes), sum, fold);
      }
    }
    sum = tree_sum(gpu, sum);
    // From the first warp to the others, outside of what they may still read.
    float* const whole = memory_ + (fits() ? cols_ : kFoldedFloats);
    if (gpu.thread() == 0) {
      *whole = sum;
    }
    gpu.sync();
    return *whole;
  }

  SPECDEC_DEVICE float operator[](std::int64_t i) const { return fits() ? memory_[i] : row_[i]; }

 private:
  SPECDEC_DEVICE bool fits() const { return cols_ <= kFoldedFloats; }

  template <typename Element>
  SPECDEC_DEVICE void bring(Gpu& gpu, std::int64_t first, std::int64_t count, const Element& element) {
    constexpr int kLoads = 8;
    const int threads = gpu.threads();
    const int thread = gpu.thread();
    in_batches<kLoads>(
        share_of(count, thread, threads), [&](int i) { return element(first + thread + i * threads); },
        [&](int i, float value) { memory_[thread + i * threads] = value; });
  }

  /// Elements are read from the block's memory while those before them are folded.
  template <typename Fold>
  SPECDEC_DEVICE static float fold_lane(const float* elements, int count, float sum, const Fold& fold) {
    constexpr int kAhead = 8;
    const int batches = count / kAhead;
    float next[kAhead] = {};
    const auto read = [&](int batch) {
      SPECDEC_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        next[a] = elements[(batch * kAhead + a) * kRowLanes];
      }
    };
    if (batches > 0) {
      read(0);
    }
    for (int batch = 0; batch < batches; ++batch) {
      float now[kAhead];
      SPECDEC_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        now[a] = next[a];
      }
      read(batch + 1 < batches ? batch + 1 : batch);
      SPECDEC_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        sum = fold(sum, now[a]);
      }
    }
    for (int at = batches * kAhead; at < count; ++at) {
      sum = fold(sum, elements[at * kRowLanes]);
    }
    return sum;
  }

  float* memory_;
  const float* row_;
  std::int64_t cols_;
};

/// Of a norm: what comes once for every column, asked for before the row is folded. What is beyond it is read when it is needed.
template <class Gpu>
class HeldColumns {
 public:
  SPECDEC_DEVICE HeldColumns(Gpu& gpu, const float* values, std::int64_t cols)
      : values_(values), share_(share_of(cols, gpu.thread(), gpu.threads())) {
    load_or_zero(held_, share_, [&](int h) { return values[gpu.thread() + h * gpu.threads()]; });
  }
  /// act(i, value) for every column of this thread.
  template <typename Act>
  SPECDEC_DEVICE void each(Gpu& gpu, const Act& act) const {
    SPECDEC_UNROLL
    for (int h = 0; h < kHeld; ++h) {
      if (h < share_) {
        act(gpu.thread() + h * gpu.threads(), held_[h]);
      }
    }
    for (int h = kHeld; h < share_; ++h) {
      const int i = gpu.thread() + h * gpu.threads();
      act(i, values_[i]);
    }
  }

 private:
  static constexpr int kHeld = 8;

  const float* values_;
  int share_;
  float held_[kHeld];
};

template <class Gpu>
SPECDEC_DEVICE void write_rms_norm(Gpu& gpu, FoldedRow<Gpu>& row, const HeldColumns<Gpu>& weight, std::int64_t cols,
                                   float eps, float* to) {
  const float squares = row.fold(gpu, [](float sum, float value) { return fused(value, value, sum); });
  const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(cols) + eps);
  weight.each(gpu, [&](int i, float by) { to[i] = row[i] * inverse * by; });
}

template <class Gpu>
SPECDEC_DEVICE void write_layer_norm(Gpu& gpu, FoldedRow<Gpu>& row, const HeldColumns<Gpu>& weight, const float* bias,
                                     std::int64_t cols, float eps, float* to) {
  const float mean = row.fold(gpu, [](float sum, float value) { return sum + value; }) / static_cast<float>(cols);
  const float squares = row.fold(gpu, [mean](float sum, float value) {
    const float centred = value - mean;
    return fused(centred, centred, sum);
  });
  const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(cols) + eps);
  weight.each(gpu, [&](int i, float by) { to[i] = fused((row[i] - mean) * inverse, by, bias[i]); });
}

template <class Gpu>
SPECDEC_DEVICE void rms_norm(Gpu& gpu, ConstRows x, const float* weight, float eps, Rows y) {
  const HeldColumns<Gpu> held(gpu, weight, x.cols);
  FoldedRow<Gpu> row(gpu, x.row(gpu.block_x()), x.cols);
  write_rms_norm(gpu, row, held, x.cols, eps, y.row(gpu.block_x()));
}

template <class Gpu>
SPECDEC_DEVICE void layer_norm(Gpu& gpu, ConstRows x, const float* weight, const float* bias, float eps, Rows y) {
  const HeldColumns<Gpu> held(gpu, weight, x.cols);
  FoldedRow<Gpu> row(gpu, x.row(gpu.block_x()), x.cols);
  write_layer_norm(gpu, row, held, bias, x.cols, eps, y.row(gpu.block_x()));
}

/// x = y + x and its norm in one kernel.
template <class Gpu>
SPECDEC_DEVICE void add_rms_norm(Gpu& gpu, Rows x, ConstRows y, const float* weight, float eps, Rows z) {
  const HeldColumns<Gpu> held(gpu, weight, x.cols);
  FoldedRow<Gpu> row(gpu, x.row(gpu.block_x()), y.row(gpu.block_x()), x.cols);
  write_rms_norm(gpu, row, held, x.cols, eps, z.row(gpu.block_x()));
}

template <class Gpu>
SPECDEC_DEVICE void add_layer_norm(Gpu& gpu, Rows x, ConstRows y, const float* weight, const float* bias, float eps,
                                   Rows z) {
  const HeldColumns<Gpu> held(gpu, weight, x.cols);
  FoldedRow<Gpu> row(gpu, x.row(gpu.block_x()), y.row(gpu.block_x()), x.cols);
  write_layer_norm(gpu, row, held, bias, x.cols, eps, z.row(gpu.block_x()));
}

/// Pair i of a head, (i, i + head_dim / 2), rotated in the "rotate half" form.
struct RotatedPair {
  float low;
  float high;

  SPECDEC_DEVICE RotatedPair(float a, float b, float cos, float sin)
      : low(fused(-b, sin, a * cos)), high(fused(a, sin, b * cos)) {}
};

template <class Gpu>
SPECDEC_DEVICE void rope(Gpu& gpu, Rows x, std::int64_t head_dim, const float* cos, const float* sin,
                         const std::int32_t* position) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t table = position[gpu.block_x()] * half;
  for (std::int64_t pair = gpu.thread(); pair < x.cols / 2; pair += gpu.threads()) {
    const std::int64_t i = pair % half;
    float* low = x.row(gpu.block_x()) + pair / half * head_dim + i;
    float* high = low + half;
    const RotatedPair rotated(*low, *high, cos[table + i], sin[table + i]);
    *low = rotated.low;
    *high = rotated.high;
  }
}

inline constexpr int kRopeThreads = 64;

/// rope() of queries and keys, and kv_append() of those keys and of values: one block a row (x) and head (y), query heads first.
template <class Gpu>
SPECDEC_DEVICE void rope_append(Gpu& gpu, Rows query, ConstRows keys, ConstRows values, const float* cos,
                                const float* sin, const std::int32_t* position, KvView kv, std::int64_t layer,
                                const std::int32_t* first_slot) {
  const std::int64_t dim = kv.shape.head_dim;
  const std::int64_t half = dim / 2;
  const std::int64_t row = gpu.block_x();
  const std::int64_t table = position[row] * half;
  const std::int64_t slot = *first_slot + row;
  const std::int64_t head = gpu.block_y() - query.cols / dim;
  float* const rotated_query = query.row(row) + gpu.block_y() * dim;
  for (std::int64_t i = gpu.thread(); i < half; i += gpu.threads()) {
    const float c = cos[table + i];
    const float s = sin[table + i];
    if (head < 0) {
      const RotatedPair rotated(rotated_query[i], rotated_query[i + half], c, s);
      rotated_query[i] = rotated.low;
      rotated_query[i + half] = rotated.high;
    } else {
      const float* const key = keys.row(row) + head * dim + i;
      const float* const value = values.row(row) + head * dim + i;
      const RotatedPair rotated(key[0], key[half], c, s);
      *kv.key(layer, head, slot, i) = rotated.low;
      *kv.key(layer, head, slot, i + half) = rotated.high;
      kv.value(layer, head, slot)[i] = value[0];
      kv.value(layer, head, slot)[i + half] = value[half];
    }
  }
}

template <class Gpu>
SPECDEC_DEVICE void silu_mul(Gpu& gpu, ConstRows gate_up, Rows out) {
  const float* gate = gate_up.row(gpu.block_x());
  for (std::int64_t i = gpu.thread(); i < out.cols; i += gpu.threads()) {
    out.row(gpu.block_x())[i] = elementary::silu(gate[i]) * gate[out.cols + i];
  }
}

template <class Gpu>
SPECDEC_DEVICE void gelu_tanh(Gpu& gpu, Rows x) {
  float* row = x.row(gpu.block_x());
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    row[i] = elementary::gelu_tanh(row[i]);
  }
}

/// out = x rounded to bf16, as fp32: what a product with bf16 weights takes.
template <class Gpu>
SPECDEC_DEVICE void round_to_bf16(Gpu& gpu, ConstRows x, Rows out) {
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    out.row(gpu.block_x())[i] = bf16_to_float(float_to_bf16(x.row(gpu.block_x())[i]));
  }
}

}  // namespace specdec::cuda
