#include "backend/random_elements.h"

namespace specdec {
namespace {

/// The elements that some words are the halves of. `elements` is a copy: of what lies behind a reference each store to `out` might change a part.
template <std::size_t kWords>
void put(const RandomElements elements, const std::array<std::uint32_t, kWords>& words, float* out) {
  for (std::size_t i = 0; i < kWords; ++i) {
    out[2 * i] = elements.value(words[i] & 0xffffU);
    out[2 * i + 1] = elements.value(words[i] >> 16);
  }
}

/// Blocks that go through Philox side by side, so that the compiler makes vectors of them.
constexpr std::int64_t kSideBySide = 16;
constexpr std::int64_t kBatch = kSideBySide * RandomElements::kBlock;

/// The elements of kSideBySide blocks from `number` on.
void fill_batch(const RandomElements& elements, std::uint64_t number, float* out) {
  std::uint32_t counters[4][kSideBySide];
  for (std::int64_t j = 0; j < kSideBySide; ++j) {
    const std::array<std::uint32_t, 4> counter = elements.counter(number + static_cast<std::uint64_t>(j));
    for (std::int64_t w = 0; w < 4; ++w) {
      counters[w][j] = counter[w];
    }
  }
  std::array<std::uint32_t, 2> key = elements.key();
  for (int round = 0; round < kPhiloxRounds; ++round, key = next_philox_key(key)) {
    for (std::int64_t j = 0; j < kSideBySide; ++j) {
      philox_round(counters[0][j], counters[1][j], counters[2][j], counters[3][j], key);
    }
  }
  std::array<std::uint32_t, 4 * kSideBySide> words;
  for (std::int64_t j = 0; j < kSideBySide; ++j) {
    for (std::int64_t w = 0; w < 4; ++w) {
      words[4 * j + w] = counters[w][j];
    }
  }
  put(elements, words, out);
}

}  // namespace

void fill_random(const RandomElements& elements, std::int64_t begin, std::span<float> out) {
  constexpr std::int64_t kBlock = RandomElements::kBlock;
  const auto count = static_cast<std::int64_t>(out.size());
  const std::int64_t misaligned = (elements.first + begin) % kBlock;
  std::int64_t i = 0;
  for (; i < count && (misaligned + i) % kBlock != 0; ++i) {
    out[i] = elements[begin + i];
  }
  auto number = static_cast<std::uint64_t>((elements.first + begin + i) / kBlock);
  for (; i + kBatch <= count; i += kBatch, number += kSideBySide) {
    fill_batch(elements, number, out.data() + i);
  }
  for (; i + kBlock <= count; i += kBlock, ++number) {
    put(elements, elements.block(number), out.data() + i);
  }
  for (; i < count; ++i) {
    out[i] = elements[begin + i];
  }
}

}  // namespace specdec
