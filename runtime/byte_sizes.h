#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Numbers as they are written on a command line. Errors are kBadInput and begin with `flag`.
namespace specdec {

/// Of an all-reduce.
inline constexpr std::size_t kLargestPayload = std::size_t{1} << 32;

/// "4096", "16K", "1M", "2G" (powers of 1024), lists of these with commas, and "1K..64M": from the first, doubling, up to
/// the second. In the order in which they stand.
std::vector<std::size_t> parse_byte_sizes(std::string_view text, std::string_view flag);

/// A whole number from 1 to `limit`.
std::int64_t parse_count(std::string_view text, std::int64_t limit, std::string_view flag);
/// Such numbers with commas between them, "1,2,4".
std::vector<std::int64_t> parse_counts(std::string_view text, std::int64_t limit, std::string_view flag);

/// Whole numbers from 0 to `limit`: "0..7", "1,2,4", "0..4,8", in the order in which they stand.
std::vector<std::int64_t> parse_range(std::string_view text, std::int64_t limit, std::string_view flag);

/// One word of `known`.
std::string parse_word(std::string_view text, const std::vector<std::string>& known, std::string_view flag);
/// Words of `known` with commas between them, each once.
std::vector<std::string> parse_words(std::string_view text, const std::vector<std::string>& known,
                                     std::string_view flag);

/// "16 KiB" and "96 B": as short as it is exact.
std::string format_bytes(std::size_t bytes);

}  // namespace specdec
