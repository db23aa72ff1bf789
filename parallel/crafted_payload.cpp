#include "parallel/crafted_payload.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace specdec {
namespace {

// A prime: no piece, cache line or slice of a transport is a whole number of periods.
constexpr std::size_t kPeriod = 4093;
constexpr std::size_t kStep = 1009;  // from one iteration to the next

// bf16 counts exactly up to 256: 16 ranks give 1 to 13 each to an element, and with more ranks they take turns.
constexpr int kGivers = 16;
constexpr std::uint64_t kValues = 13;

int given_by(int rank, int ranks, std::size_t place) {
  const int turns = (ranks + kGivers - 1) / kGivers;
  if (static_cast<int>((place + rank) % turns) != 0) {
    return 0;
  }
  std::uint64_t word = (static_cast<std::uint64_t>(rank) << 32) + place + 1;  // mixed as by splitmix64
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<int>(1 + (word >> 32) % kValues);
}

template <typename T>
T element(int value) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    return {float_to_bf16(static_cast<float>(value))};
  }
}

std::uint32_t bits_of(float element) { return std::bit_cast<std::uint32_t>(element); }
std::uint32_t bits_of(BF16 element) { return element.bits; }

std::size_t begin_of(std::uint64_t number) { return number * kStep % kPeriod; }

/// Calls piece(part of data, where it stands in the period) for the runs of `data` that lie whole in the period.
template <typename T, typename Piece>
void for_runs(std::span<T> data, std::uint64_t number, Piece&& piece) {
  std::size_t at = begin_of(number);
  while (!data.empty()) {
    const std::size_t count = std::min(data.size(), kPeriod - at);
    piece(data.first(count), at);
    data = data.subspan(count);
    at = 0;
  }
}

}  // namespace

template <typename T>
CraftedPayload<T>::CraftedPayload(int rank, int ranks) : mine_(kPeriod), sum_(kPeriod) {
  for (std::size_t i = 0; i < kPeriod; ++i) {
    int sum = 0;
    for (int r = 0; r < ranks; ++r) {
      sum += given_by(r, ranks, i);
    }
    mine_[i] = element<T>(given_by(rank, ranks, i));
    sum_[i] = element<T>(sum);
  }
}

template <typename T>
void CraftedPayload<T>::repeat(const std::vector<T>& table, std::span<T> data, std::uint64_t number) {
  for_runs(data, number, [&](std::span<T> run, std::size_t at) {
    std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(at), run.size(), run.begin());
  });
}

template <typename T>
std::size_t CraftedPayload<T>::count_wrong(std::span<const T> data, std::uint64_t number) const {
  std::size_t wrong = 0;
  for_runs(data, number, [&](std::span<const T> run, std::size_t at) {
    const std::span<const T> sum = std::span(sum_).subspan(at, run.size());
    if (std::memcmp(std::as_bytes(run).data(), std::as_bytes(sum).data(), run.size_bytes()) != 0) {
      for (std::size_t i = 0; i < run.size(); ++i) {
        wrong += bits_of(run[i]) != bits_of(sum[i]) ? 1 : 0;
      }
    }
  });
  return wrong;
}

template class CraftedPayload<float>;
template class CraftedPayload<BF16>;

}  // namespace specdec
