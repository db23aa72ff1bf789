#pragma once

#include <concepts>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "backend/error.h"
#include "parallel/communicator.h"

namespace specdec {

/// An error that every rank of the job has thrown together: main prints it on rank 0 and all ranks leave through
/// MPI_Finalize.
class AgreedError final : public Error {
 public:
  using Error::Error;
};

/// Throws AgreedError on every rank of `group` if `mine` is set on any: kind and message of the lowest such rank.
/// Collective.
void throw_if_any(Communicator& group, const std::exception_ptr& mine);

/// Runs f on every rank of `group` and returns its result, or throws the same AgreedError everywhere if it threw on
/// any. For what may fail on one rank and not on another: opening files, parsing on rank 0, allocating. f must not
/// communicate over `group`.
template <std::invocable F>
auto agree(Communicator& group, F&& f) {
  using Result = std::invoke_result_t<F>;
  std::exception_ptr error;
  if constexpr (std::is_void_v<Result>) {
    try {
      std::forward<F>(f)();
    } catch (...) {
      error = std::current_exception();
    }
    throw_if_any(group, error);
  } else {
    std::optional<Result> result;
    try {
      result.emplace(std::forward<F>(f)());
    } catch (...) {
      error = std::current_exception();
    }
    throw_if_any(group, error);
    return std::move(*result);
  }
}

/// `text` of rank `root` on every rank.
void broadcast_string(Communicator& group, std::string& text, int root = 0);

}  // namespace specdec
