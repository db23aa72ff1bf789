#pragma once

#include <functional>
#include <string_view>

#include "parallel/progress.h"

namespace specdec {

/// Writes all of `text` to standard output with write(2), so that what was accepted is out even if the process is killed the next
/// moment. While the reader does not read, `waiting` is called some times a second. False once the reader is gone (a closed pipe); the job
/// then goes on without it. Throws kBadInput where text is lost though somebody wants it: on a full disk.
bool write_text(std::string_view text, const std::function<void()>& waiting);
/// The same in a program whose ranks are watched: a paused pager is no hang.
bool write_text(std::string_view text, Progress& progress);

}  // namespace specdec
