#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/dtype.h"
#include "parallel/bench_turns.h"
#include "runtime/decode_shape.h"
#include "runtime/interconnect_choice.h"

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
  std::string interconnect = kNativeInterconnect;  ///< as load_choice (interconnect_load.h) takes it
  std::filesystem::path json;
  std::filesystem::path csv;
  double deadline = 30;              ///< seconds (watchdog.h)
  bool share_gpus = false;           ///< CudaOptions::share
  std::optional<std::string> print;  ///< --help and --version: nothing else is done
};

/// Throws kBadInput naming the flag.
BenchCommand parse_bench_command(int argc, const char* const* argv);

}  // namespace specdec
