#include "parallel/agree.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel/value_bytes.h"

namespace specdec {
namespace {

/// What one rank tells the others about its attempt; zero-initialised means success.
struct Outcome {
  std::int32_t failed = 0;
  ErrorKind kind = ErrorKind::kInternal;
};

}  // namespace

void throw_if_any(Communicator& group, const std::exception_ptr& mine) {
  Outcome outcome;
  std::string message;
  std::source_location where = std::source_location::current();
  if (mine != nullptr) {
    outcome.failed = 1;
    try {
      std::rethrow_exception(mine);
    } catch (const Error& error) {
      outcome.kind = error.kind();
      message = error.what();
      where = error.where();
    } catch (const std::exception& error) {
      message = error.what();
    } catch (...) {
      message = "an exception of unknown type";
    }
  }
  std::vector<Outcome> all(group.size());
  group.all_gather(value_bytes(outcome), std::as_writable_bytes(std::span(all)), {});
  const auto first = std::find_if(all.begin(), all.end(), [](const Outcome& o) { return o.failed != 0; });
  if (first != all.end()) {
    broadcast_string(group, message, static_cast<int>(first - all.begin()));
    throw AgreedError(first->kind, message, where);
  }
}

void broadcast_string(Communicator& group, std::string& text, int root) {
  std::uint64_t length = text.size();
  group.broadcast(value_bytes(length), root, {});
  text.resize(length);
  group.broadcast(std::as_writable_bytes(std::span(text)), root, {});
}

}  // namespace specdec
