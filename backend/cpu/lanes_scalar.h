#pragma once

#include <cstdint>

#include "backend/elementary.h"

/// Sixteen float lanes in plain C++: what the vector forms (lanes_avx2.h, lanes_avx512.h) must equal in every bit.
namespace specdec::scalar {

struct Mask {
  bool lane[16];
};

struct Lanes {
  /// Blocking of attention_inl.h, which no result depends on: the most queries that share one read of a block of keys, the most that
  /// leave it to the machine to read ahead, the vectors of a value row that are summed at a time, and how many Lanes the registers hold.
  static constexpr int kQueryTile = 1;
  static constexpr int kMostUnasked = 0;
  static constexpr int kValueTile = 1;
  static constexpr int kRegisters = 16;

  float lane[16];

  Lanes() = default;
  explicit Lanes(float value) {
    for (float& x : lane) {
      x = value;
    }
  }

  static Lanes load(const float* from) { return load_first(from, 16); }
  /// The first `count` lanes; the others are 0.
  static Lanes load_first(const float* from, std::int64_t count) {
    Lanes result(0.0F);
    for (std::int64_t i = 0; i < count; ++i) {
      result.lane[i] = from[i];
    }
    return result;
  }
  void store(float* to) const { store_first(to, 16); }
  void store_first(float* to, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = lane[i];
    }
  }
  /// True in the first `count` lanes.
  static Mask first(std::int64_t count) {
    Mask result{};
    for (std::int64_t i = 0; i < 16; ++i) {
      result.lane[i] = i < count;
    }
    return result;
  }
};

template <typename Function>
Lanes each(Function function) {
  Lanes result;
  for (int i = 0; i < 16; ++i) {
    result.lane[i] = function(i);
  }
  return result;
}

inline Lanes operator+(const Lanes& a, const Lanes& b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Lanes operator-(const Lanes& a, const Lanes& b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Lanes operator*(const Lanes& a, const Lanes& b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Lanes operator/(const Lanes& a, const Lanes& b) {
  return each([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Lanes operator-(const Lanes& a) {
  return each([&](int i) { return -a.lane[i]; });
}
inline Mask operator<(const Lanes& a, const Lanes& b) {
  Mask result{};
  for (int i = 0; i < 16; ++i) {
    result.lane[i] = a.lane[i] < b.lane[i];
  }
  return result;
}
inline Lanes fused(const Lanes& a, const Lanes& b, const Lanes& c) {
  return each([&](int i) { return elementary::fused(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Lanes select(const Mask& mask, const Lanes& if_true, const Lanes& if_false) {
  return each([&](int i) { return mask.lane[i] ? if_true.lane[i] : if_false.lane[i]; });
}
inline Lanes scale_by_low_bits(const Lanes& value, const Lanes& shifter) {
  return each([&](int i) { return elementary::scale_by_low_bits(value.lane[i], shifter.lane[i]); });
}
/// b where a < b, else a: a NaN in b never wins.
inline Lanes max(const Lanes& a, const Lanes& b) { return select(a < b, b, a); }

/// Lane i takes lane i + 8, then i + 4, i + 2, i + 1.
inline float tree_sum(Lanes a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      a.lane[i] = a.lane[i] + a.lane[i + half];
    }
  }
  return a.lane[0];
}
inline float tree_max(Lanes a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      a.lane[i] = a.lane[i] < a.lane[i + half] ? a.lane[i + half] : a.lane[i];
    }
  }
  return a.lane[0];
}
/// Lowest lane in which a == value, or 16.
inline int find_equal(const Lanes& a, float value) {
  int i = 0;
  while (i < 16 && a.lane[i] != value) {
    ++i;
  }
  return i;
}

/// Sixteen double accumulators.
struct DoubleLanes {
  double lane[16] = {};

  void add(const Lanes& x) {
    for (int i = 0; i < 16; ++i) {
      lane[i] += static_cast<double>(x.lane[i]);
    }
  }
  double total() const {
    double sum[16];
    for (int i = 0; i < 16; ++i) {
      sum[i] = lane[i];
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        sum[i] += sum[i + half];
      }
    }
    return sum[0];
  }
};

}  // namespace specdec::scalar
