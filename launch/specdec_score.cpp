/// What a model thinks of a text: the logits of every position, its log-likelihood and perplexity.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/error.h"
#include "backend/factory.h"
#include "models/random_tensors.h"
#include "models/text_file.h"
#include "models/token_ids.h"
#include "models/tokenizer.h"
#include "models/transformer.h"
#include "parallel/agree.h"
#include "parallel/device_wait.h"
#include "parallel/host_cores.h"
#include "parallel/program.h"
#include "parallel/timed_communicator.h"
#include "parallel/value_bytes.h"
#include "runtime/agree_isa.h"
#include "runtime/agree_threads.h"
#include "runtime/byte_sizes.h"
#include "runtime/config.h"
#include "runtime/flags.h"
#include "runtime/npy.h"
#include "runtime/paths.h"
#include "runtime/program_trace.h"
#include "runtime/stdout_text.h"
#include "runtime/transport_choice.h"
#include "runtime/version.h"

namespace specdec {
namespace {

constexpr const char* kProgram = "specdec_score";
constexpr const char* kDescription =
    "Scores a text: logits of every position, log-likelihood and perplexity, alone or cut over ranks.\n"
    "The text is encoded as it stands; no BOS or other special token is added (as specdec_tokenize without\n"
    "--add-special), so the first token is not predicted by anything and counts nowhere.\n\n"
    "  specdec_score --model assets/manpy-11m --text-file NOTICE --logits logits.npy\n"
    "  mpirun -np 4 specdec_score --model assets/manpy-11m --ids ids.txt --dtype f32\n";

constexpr const char* kTransportFlag = "--transport";
constexpr std::int64_t kBlockRows = 64;

struct Options {
  std::filesystem::path model;
  std::filesystem::path text;
  std::filesystem::path ids;
  std::filesystem::path logits;
  std::string trace;
  std::string dtype = "bf16";
  WeightsChoice weights;
  std::string backend = "cpu";
  std::string transport = "auto";
  std::string isa = "auto";
  std::optional<int> threads;
  bool share_gpus = false;
  std::optional<std::string> print;  ///< --help and --version: nothing else is done
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app{kDescription, kProgram};
  app.set_version_flag(
      "--version", [] { return version_text(kProgram); }, "Print the version and exit");
  app.add_option("--model", options.model, "Model directory in Hugging Face's layout")->required();
  auto* input = app.add_option_group("input", "One of");
  input->add_option("--text-file", options.text, "Text in UTF-8; needs the model's tokenizer");
  input->add_option("--ids", options.ids, "Token ids with white space between them");
  input->require_option(1);
  app.add_option("--logits", options.logits, "Write all logits, float32 [tokens, vocabulary], as .npy");
  app.add_option("--trace", options.trace, "Write what every rank did when, as a timeline for Perfetto")
      ->type_name("DIR");
  app.add_option("--dtype", options.dtype, "Type of the packed weights")
      ->check(CLI::IsMember(weight_type_names()))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--weights", [&options](const std::string& source) { options.weights.random = source == "random"; },
         "checkpoint, or random: the shape of the model alone")
      ->check(CLI::IsMember({"checkpoint", "random"}))
      ->default_str("checkpoint");
  app.add_option("--weights-seed", options.weights.seed, "Of random weights")->capture_default_str();
  app.add_option("--backend", options.backend, "cpu, reference or cuda")->capture_default_str();
  app.add_option(
         "--transport", options.transport,
         fmt::format("How ranks talk, as parallel.transport of specdec_dist: {}", fmt::join(transport_names(), ", ")))
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Compute threads a rank, 1 to 256")
      ->check(CLI::Range(1, 256))
      ->default_str("as many as it has cores to itself");
  app.add_option("--isa", options.isa,
                 "auto, scalar, avx2, avx512, avx512_bf16 or amx_bf16; the weakest of all ranks counts")
      ->capture_default_str();
  app.add_flag("--share-gpus", options.share_gpus,
               "With cuda, more ranks of a host than it has GPUs take them in turn");
  options.print = parse_flags(app, argc, argv);
  if (options.print) return options;
  parse_word(options.transport, transport_names(), kTransportFlag);
  require_backend_for(options.transport, options.backend, kTransportFlag);
  return options;
}

std::vector<Token> read_ids(const std::filesystem::path& file, std::int64_t vocabulary) {
  constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 28;
  return parse_token_ids(read_text_file(file, kLargestFile), vocabulary, file.string());
}

std::vector<Token> encode_text(const Options& options, std::int64_t vocabulary) {
  constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 26;
  const std::string text = read_text_file(options.text, kLargestFile);
  const auto tokenizer = load_tokenizer(options.model);
  std::vector<Token> ids;
  try {
    ids = tokenizer->encode(text);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", options.text.string(), error.what()));
  }
  for (const Token id : ids) {
    if (id >= vocabulary) {
      throw_bad_input(fmt::format("{}: its tokenizer makes id {}, expected one below vocab_size = {}",
                                  options.model.string(), id, vocabulary));
    }
  }
  return ids;
}

std::vector<Token> read_tokens(const Options& options, const ModelConfig& config) {
  const bool is_text = !options.text.empty();
  std::vector<Token> tokens =
      is_text ? encode_text(options, config.vocabulary) : read_ids(options.ids, config.vocabulary);
  const auto size = static_cast<std::int64_t>(tokens.size());
  if (size < 1 || size > config.context) {
    throw_bad_input(fmt::format("{}: found {} tokens, expected 1 to {}, the positions of {}",
                                (is_text ? options.text : options.ids).string(), size, config.context,
                                options.model.string()));
  }
  return tokens;
}

/// Rank 0 reads the input; every rank gets it.
std::vector<Token> share_tokens(Communicator& world, const Options& options, const ModelConfig& config) {
  std::vector<Token> tokens =
      agree(world, [&] { return world.rank() == 0 ? read_tokens(options, config) : std::vector<Token>{}; });
  std::size_t count = tokens.size();
  world.broadcast(value_bytes(count), 0, Stream{});
  tokens.resize(count);
  world.broadcast(std::as_writable_bytes(std::span(tokens)), 0, Stream{});
  return tokens;
}

/// Log-likelihood of tokens 1, 2, ... given those before them; on rank 0 all logits go to `logits` where there is a file.
double score(Transformer& model, std::span<const Token> tokens, std::optional<NpyWriter>& logits_file, bool gather,
             bool root) {
  const Stream stream;
  KvCache cache = model.make_cache(static_cast<std::int64_t>(tokens.size()));
  double log_likelihood = 0;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kBlockRows) {
    const std::size_t count = std::min<std::size_t>(kBlockRows, tokens.size() - begin);
    std::vector<std::int32_t> position(count);
    std::vector<std::int32_t> parent(count);
    std::iota(position.begin(), position.end(), static_cast<std::int32_t>(begin));
    std::iota(parent.begin(), parent.end(), -1);
    const ConstRows logits =
        model.forward({tokens.subspan(begin, count), position, parent}, cache, LogitRows::kAll, stream);
    cache.commit_prefix(static_cast<std::int64_t>(count));

    const std::span<const Token> next = tokens.subspan(begin + 1, std::min(count, tokens.size() - begin - 1));
    std::vector<RowSum> sums(count);
    std::vector<float> z(next.size());
    model.head().sums(logits, 1.0F, next, sums, z, stream);
    for (std::size_t i = 0; i < next.size(); ++i) {
      log_likelihood += static_cast<double>(z[i]) - sums[i].max - std::log(static_cast<double>(sums[i].sum));
    }
    if (gather) {
      std::vector<float> rows(root ? count * model.config().vocabulary : 0);
      model.head().gather_rows(logits, rows, stream);
      if (logits_file) {
        logits_file->append(rows);
      }
    }
  }
  return log_likelihood;
}

int run(MpiSession& session, int argc, char** argv) {
  const std::unique_ptr<Communicator> world = session.world("auto");
  const bool root = world->rank() == 0;
  Options options = agree(*world, [&] { return parse(argc, argv); });
  if (options.print) {
    if (root) {
      write_text(*options.print + "\n", session.progress());
    }
    return 0;
  }
  const ModelConfig config = agree(*world, [&] {
    options.model = find_model(options.model, {}, "--model");
    return load_model_config(options.model);
  });
  const std::vector<Token> tokens = share_tokens(*world, options, config);
  const Isa isa = agree_on_isa(*world, options.isa, "--isa");
  const AgreedThreads threads = agree_on_threads(*world, options.threads, session.cores(), "--threads");
  const bool gather = !options.logits.empty();

  const std::string label = label_of(options.weights);
  ProgramTrace trace(session, options.trace, session.program() + (label.empty() ? "" : " (" + label + ")"), *world);
  const std::unique_ptr<Communicator> transport =
      session.world(options.transport, {.place = kTransportFlag, .gpu = {.share = options.share_gpus}});
  TimedCommunicator group(*transport, trace.tracer());

  DeviceWait device_wait(session.progress(), group);
  std::unique_ptr<Backend> backend;
  std::unique_ptr<TensorSource> weights;
  std::unique_ptr<Transformer> model;
  std::optional<NpyWriter> logits_file;
  agree(*world, [&] {
    const LocalRank local = session.local_rank();
    backend =
        make_backend({.name = options.backend,
                      .isa = isa,
                      .threads = threads.threads,
                      .pin = pinning_wanted(),
                      .cuda = {.local_rank = local.rank, .local_ranks = local.ranks, .share = options.share_gpus}});
    backend->observe_waits(&device_wait);
    weights = open_weights(options.model, options.weights);
    model = std::make_unique<Transformer>(
        config, *weights, *backend, group,
        TransformerOptions{.dtype = dtype_named(options.dtype), .max_rows = kBlockRows, .tracer = trace.tracer()});
    if (gather && root) {
      logits_file.emplace(options.logits, static_cast<std::int64_t>(tokens.size()), config.vocabulary);
    }
  });
  if (root && !threads.note.empty()) {
    fmt::print(stderr, "{}: note: {}\n", session.program(), threads.note);
  }
  const double log_likelihood = score(*model, tokens, logits_file, gather, root);
  agree(*world, [&] {
    if (logits_file) {
      logits_file->finish();
    }
  });
  if (root) {
    const std::size_t predicted = tokens.size() - 1;
    std::string result = label.empty() ? "" : label + "\n";
    result += fmt::format("weights         {}\n", options.dtype);
    result += fmt::format("tokens          {} ({} predicted)\nlog-likelihood  {:.4f} nats\n", tokens.size(), predicted,
                          log_likelihood);
    if (predicted > 0) {
      result += fmt::format("perplexity      {:.4f}\n", std::exp(-log_likelihood / static_cast<double>(predicted)));
    }
    write_text(result, session.progress());
  }
  trace.finish("ok", std::array<Communicator*, 1>{transport.get()});
  return 0;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  return specdec::run_program(argc, argv,
                              [&](specdec::MpiSession& session) { return specdec::run(session, argc, argv); });
}
