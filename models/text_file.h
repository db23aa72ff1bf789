#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace specdec {

/// A whole regular file, byte for byte. Throws kBadInput "FILE: found ..., expected ..." when it cannot be read or is larger than `limit`
/// bytes.
std::string read_text_file(const std::filesystem::path& file, std::uint64_t limit);

}  // namespace specdec
