#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/dtype.h"
#include "backend/error.h"
#include "parallel/bench_turns.h"
#include "runtime/decode_shape.h"

namespace specdec {

/// One size of all-reduce.
struct BenchPayload {
  DType dtype = DType::kF32;
  std::size_t bytes = 0;
  std::optional<std::int64_t> tokens;
};

/// "fp32", "bf16".
std::string bench_name(DType dtype);

/// The command line of allreduce_bench.
struct BenchCommand {
  std::vector<std::string> transports;
  std::vector<BenchPayload> payloads;  ///< empty with `decode`
  std::vector<DType> dtypes;
  std::vector<std::int64_t> tokens;  ///< with `decode`: rows of a pass
  std::optional<ModelShape> decode;
  BenchEffort effort;
  std::string interconnect;  ///< a preset or file; empty: native
  std::filesystem::path json;
  std::filesystem::path csv;
  double deadline = 30;              ///< seconds (watchdog.h)
  std::optional<std::string> print;  ///< --help and --version: nothing else is done
};

/// What f returns; an error that begins with the `key` of a config begins with `flag` instead, which is where it was written here.
template <std::invocable F>
auto naming_the_flag(std::string_view key, std::string_view flag, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (!message.starts_with(key)) throw;
    throw Error(error.kind(), std::string(flag) + message.substr(key.size()), error.where());
  }
}

/// Throws kBadInput naming the flag.
BenchCommand parse_bench_command(int argc, const char* const* argv);

}  // namespace specdec
