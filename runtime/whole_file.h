#pragma once

#include <filesystem>
#include <string_view>

namespace specdec {

/// Writes `text` to `path`.tmp and renames that, so that a reader never finds half a file. What a killed run leaves there the next one
/// writes over. Throws kBadInput "FLAG: 'PATH' ..."; also for a directory, device or pipe, whose name the new file would take.
void write_whole_file(const std::filesystem::path& path, std::string_view text, std::string_view flag);

}  // namespace specdec
