#pragma once

#include <filesystem>
#include <string>

/// Where configs and models are looked up, so that a bare name works from any directory, in a build tree and installed.
namespace specdec {

/// ../share/specdec beside the folder of this executable: configs/ and assets/ are in it, installed or (as links) in a build tree.
std::filesystem::path share_directory();

/// A name in `.`, `configs/` and the share directory's configs/, "gpu/llama-3-8b.yaml" too; one that begins with a slash or a dot as it stands.
/// Throws kBadInput listing the places that were looked at, and for a bare name the nearest found there.
std::filesystem::path find_config(const std::string& name);

/// The file of an interconnect. A relative path, which has a slash or ends with .yaml, is looked up in `config_dir` (empty: skipped) and
/// in the current directory; a path without a slash and the name of a preset, to which .yaml is added, in the current directory,
/// configs/interconnects/ and the share directory's. `place` begins the error, which lists these places and the nearest name.
std::filesystem::path find_interconnect(const std::string& name, const std::filesystem::path& config_dir,
                                        const std::string& place);

/// The file of a description of hardware: as find_interconnect, in configs/hardware/.
std::filesystem::path find_hardware(const std::string& name, const std::string& place);
/// That of published figures: the same in configs/published/.
std::filesystem::path find_published(const std::string& name, const std::string& place);

/// The directory of a model, absolute. A relative path is looked up in `config_dir` (empty: skipped), the current directory, the
/// share directory and its assets/. `place` begins the error ("F: target"), which lists the places that were looked at.
std::filesystem::path find_model(const std::filesystem::path& path, const std::filesystem::path& config_dir,
                                 const std::string& place);

}  // namespace specdec
