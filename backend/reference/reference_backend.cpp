#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/host_buffer.h"
#include "backend/host_table.h"

namespace specdec {

std::unique_ptr<Buffer> ReferenceBackend::allocate(std::size_t bytes) { return std::make_unique<HostBuffer>(bytes); }

void ReferenceBackend::upload(std::byte* device, std::span<const std::byte> host, Stream) {
  std::copy(host.begin(), host.end(), device);
}

void ReferenceBackend::download(std::span<std::byte> host, const std::byte* device, Stream) {
  std::copy_n(device, host.size(), host.begin());
}

void ReferenceBackend::synchronize(Stream) {}

std::unique_ptr<RowTable> ReferenceBackend::make_table(const WeightView& weight) {
  return std::make_unique<HostTable>(weight);
}

void ReferenceBackend::embed(const RowTable& table, const std::int32_t* index, Rows x, Stream) {
  dynamic_cast<const HostTable&>(table).read(index, x);
}

void ReferenceBackend::rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    float squares = 0;
    for (std::int64_t i = 0; i < x.cols; ++i) {
      squares += x.row(r)[i] * x.row(r)[i];
    }
    const float root = std::sqrt(squares / static_cast<float>(x.cols) + eps);
    for (std::int64_t i = 0; i < x.cols; ++i) {
      y.row(r)[i] = x.row(r)[i] / root * weight[i];
    }
  }
}

void ReferenceBackend::layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const auto cols = static_cast<float>(x.cols);
    float sum = 0;
    for (std::int64_t i = 0; i < x.cols; ++i) {
      sum += x.row(r)[i];
    }
    const float mean = sum / cols;
    float squares = 0;
    for (std::int64_t i = 0; i < x.cols; ++i) {
      squares += (x.row(r)[i] - mean) * (x.row(r)[i] - mean);
    }
    const float root = std::sqrt(squares / cols + eps);
    for (std::int64_t i = 0; i < x.cols; ++i) {
      y.row(r)[i] = (x.row(r)[i] - mean) / root * weight[i] + bias[i];
    }
  }
}

void ReferenceBackend::rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, const RowChain& chain,
                            Stream) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const std::int64_t table = chain.position[r] * half;
    for (std::int64_t head = 0; head < x.cols / head_dim; ++head) {
      float* v = x.row(r) + head * head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = v[i];
        const float b = v[i + half];
        v[i] = a * cos[table + i] - b * sin[table + i];
        v[i + half] = b * cos[table + i] + a * sin[table + i];
      }
    }
  }
}

void ReferenceBackend::silu_mul(ConstRows gate_up, Rows out, Stream) {
  for (std::int64_t r = 0; r < out.rows; ++r) {
    for (std::int64_t i = 0; i < out.cols; ++i) {
      const float gate = gate_up.row(r)[i];
      const float up = gate_up.row(r)[out.cols + i];
      out.row(r)[i] = gate / (1.0F + std::exp(-gate)) * up;
    }
  }
}

void ReferenceBackend::gelu_tanh(Rows x, Stream) {
  const float root = std::sqrt(2.0F / static_cast<float>(M_PI));
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t i = 0; i < x.cols; ++i) {
      const float v = x.row(r)[i];
      x.row(r)[i] = 0.5F * v * (1.0F + std::tanh(root * (v + 0.044715F * v * v * v)));
    }
  }
}

void ReferenceBackend::add_bias(Rows y, const float* bias, Stream) {
  for (std::int64_t r = 0; r < y.rows; ++r) {
    for (std::int64_t i = 0; i < y.cols; ++i) {
      y.row(r)[i] += bias[i];
    }
  }
}

void ReferenceBackend::add(Rows x, ConstRows y, Stream) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t i = 0; i < x.cols; ++i) {
      x.row(r)[i] = y.row(r)[i] + x.row(r)[i];
    }
  }
}

void ReferenceBackend::slice_max(ConstRows logits, std::span<const Range> slices, std::span<SliceMax> out, Stream) {
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    for (std::size_t s = 0; s < slices.size(); ++s) {
      SliceMax best{-std::numeric_limits<float>::infinity(), -1};
      for (std::int64_t i = slices[s].begin; i < slices[s].end; ++i) {
        if (best.index < 0 || logits.row(r)[i] > best.value) {
          best = {logits.row(r)[i], static_cast<std::int32_t>(i)};
        }
      }
      out[r * slices.size() + s] = best;
    }
  }
}

void ReferenceBackend::slice_sum(ConstRows logits, float temperature, std::span<const Range> slices,
                                 std::span<SliceSum> out, Stream) {
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    for (std::size_t s = 0; s < slices.size(); ++s) {
      SliceSum result{-std::numeric_limits<float>::infinity(), 0};
      for (std::int64_t i = slices[s].begin; i < slices[s].end; ++i) {
        result.max = std::max(result.max, logits.row(r)[i] / temperature);
      }
      for (std::int64_t i = slices[s].begin; i < slices[s].end; ++i) {
        result.sum += std::exp(logits.row(r)[i] / temperature - result.max);
      }
      out[r * slices.size() + s] = result;
    }
  }
}

}  // namespace specdec
