#include "backend/random_elements.h"

namespace specdec {

void fill_random(const RandomElements& elements, std::int64_t begin, std::span<float> out) {
  constexpr std::int64_t kBlock = RandomElements::kBlock;
  const auto count = static_cast<std::int64_t>(out.size());
  const std::int64_t misaligned = (elements.first + begin) % kBlock;
  std::int64_t i = 0;
  for (; i < count && (misaligned + i) % kBlock != 0; ++i) {
    out[i] = elements[begin + i];
  }
  auto number = static_cast<std::uint64_t>((elements.first + begin + i) / kBlock);
  for (; i + kBlock <= count; i += kBlock, ++number) {
    const std::array<std::uint32_t, 4> words = elements.block(number);
    for (std::int64_t w = 0; w < kBlock / 2; ++w) {
      out[i + 2 * w] = elements.value(words[w] & 0xffffU);
      out[i + 2 * w + 1] = elements.value(words[w] >> 16);
    }
  }
  for (; i < count; ++i) {
    out[i] = elements[begin + i];
  }
}

}  // namespace specdec
