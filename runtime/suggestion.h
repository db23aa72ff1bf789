#pragma once

#include <span>
#include <string>
#include <string_view>

/// What somebody who mistyped a name may have meant.
namespace specdec {

/// "; did you mean 'shm'?", or nothing when no candidate is near.
std::string suggestion(std::string_view name, std::span<const std::string> candidates);
/// The same among keys such as 'decode.k'; one that was written in the wrong section is found by its last part.
std::string key_suggestion(std::string_view name, std::span<const std::string> keys);

}  // namespace specdec
