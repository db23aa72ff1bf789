#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace specdec {

/// GPT-2's spelling of bytes in vocabulary files: one printable character per byte (Radford et al. 2019), U+0120 for a
/// space, say.

/// The bytes that `spelled` stands for; nothing when a character of it stands for none.
std::optional<std::string> bytes_of_spelling(std::string_view spelled);
/// How vocabulary files write `bytes`.
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace specdec
