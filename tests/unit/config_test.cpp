#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/cli.h"
#include "runtime/config_keys.h"
#include "runtime/config_load.h"
#include "runtime/paths.h"
#include "tests/support/bad_input.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using tests::bad_input;

std::string parse_error(const std::string& yaml) {
  return bad_input([&] { parse_config(yaml, "f.yaml", "."); });
}

TEST(Config, ReadsEveryKey) {
  const RunConfig run =
      parse_config(
          "target: a/b\ndraft: c\nweights: random\nweights_seed: 18446744073709551615\nweights_cache: "
          "/var/cache\ndtype: f32\ndraft_dtype: int8\nbackend: "
          "reference\ncompare: true\nplacement: sharded\nacceptance: synthetic\nsynthetic: {alpha: 0.25}\n"
          "interconnect: [tpu-v4-chen, native]\n"
          "prompts: [one, {text: two}, {ids: [3, 14]}, {random: 12}]\n"
          "parallel: {transport: mpi-fast, threads: 2, deadline: 2.5, agreement: false, isa: avx2, share_gpus: true}\n"
          "cuda: {graphs: false, overlap: false, fuse: false, prefetch: 40, matmul: cublas}\n"
          "decode: {method: autoregressive, k: 6, draft_length: optimal, hardware: h100x8, temperature: 0.8, top_k: "
          "40, top_p: 0.95,\n"
          "  seed: 18446744073709551615, max_new_tokens: 7, ignore_eos: true, stop: [\"\\n\\n\"]}\n",
          "f.yaml", ".")
          .run;
  EXPECT_EQ(run.target, "a/b");
  EXPECT_EQ(run.draft, "c");
  EXPECT_TRUE(run.weights.random);
  EXPECT_EQ(run.weights.seed, 18446744073709551615U);
  EXPECT_EQ(run.weights_cache, "/var/cache");
  EXPECT_EQ(run.dtype, DType::kF32);
  EXPECT_EQ(run.type_of_draft(), DType::kInt8);
  EXPECT_EQ(run.backend, "reference");
  EXPECT_TRUE(run.compare);
  EXPECT_EQ(run.placement, Placement::kSharded);
  EXPECT_TRUE(run.acceptance.synthetic);
  EXPECT_EQ(run.acceptance.alpha, 0.25);
  EXPECT_EQ(run.decode.draft_length, DraftLengthRule::kOptimal);
  EXPECT_EQ(run.decode.hardware, "h100x8");
  ASSERT_EQ(run.interconnects.size(), 2U);
  EXPECT_EQ(label_of(run.interconnects[0]), "modelled tpu-v4-chen");
  EXPECT_GT(run.interconnects[0]->all_reduce(4096, 16), 0);
  EXPECT_EQ(label_of(run.interconnects[1]), "native");
  ASSERT_EQ(run.prompts.size(), 4U);
  EXPECT_EQ(run.prompts[1].text, "two");
  EXPECT_EQ(run.prompts[2].ids, (std::vector<Token>{3, 14}));
  EXPECT_EQ(run.prompts[3].random, 12);
  EXPECT_EQ(run.parallel.transport, "mpi-fast");
  EXPECT_EQ(run.parallel.threads, 2);
  EXPECT_EQ(run.parallel.deadline, 2.5);
  EXPECT_FALSE(run.parallel.agreement);
  EXPECT_EQ(run.parallel.isa, "avx2");
  EXPECT_TRUE(run.parallel.share_gpus);
  EXPECT_FALSE(run.cuda.graphs);
  EXPECT_FALSE(run.cuda.overlap);
  EXPECT_FALSE(run.cuda.fuse);
  EXPECT_EQ(run.cuda.prefetch, 40);
  EXPECT_EQ(run.cuda.matmul, CudaProducts::kCublas);
  EXPECT_EQ(run.decode.method, Method::kAutoregressive);
  EXPECT_EQ(run.decode.k, 6);
  EXPECT_EQ(run.decode.sampling.temperature, 0.8F);
  EXPECT_EQ(run.decode.sampling.top_k, 40);
  EXPECT_EQ(run.decode.sampling.top_p, 0.95F);
  EXPECT_EQ(run.decode.seed, 18446744073709551615U);
  EXPECT_EQ(run.decode.max_new_tokens, 7);
  EXPECT_TRUE(run.decode.ignore_eos);
  EXPECT_EQ(run.decode.stop, std::vector<std::string>{"\n\n"});
  // Every key differs from its default above, so a key that does not travel shows here.
  const RunConfig back = deserialise(serialise(run));
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(key.write(back).dump(), key.write(run).dump()) << key.name;
    EXPECT_NE(key.write(back).dump(), key.write(RunConfig{}).dump()) << key.name;
  }
}

TEST(Config, ErrorsNameLineKeyFoundAndExpected) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"target: a\ndecode:\n  temprature: 1\n",
       "f.yaml:3: unknown key 'decode.temprature'; did you mean 'decode.temperature'?"},
      {"tmperature: 1\n", "f.yaml:1: unknown key 'tmperature'; did you mean 'decode.temperature'?"},
      {"paralel: {}\n", "f.yaml:1: unknown key 'paralel'; did you mean 'parallel'?"},
      {"zzzzzzzzzzzz: 1\n", "f.yaml:1: unknown key 'zzzzzzzzzzzz'"},
      {"decode:\n  k: four\n", "f.yaml:2: decode.k: found 'four', expected an integer from 0 to 256"},
      {"decode:\n  k: \"4\"\n", "f.yaml:2: decode.k: found the string '4', expected an integer from 0 to 256"},
      {"decode:\n  k: 4.0\n", "f.yaml:2: decode.k: found '4.0', expected an integer from 0 to 256"},
      {"decode:\n  k: -1\n", "f.yaml:2: decode.k: found '-1', expected an integer from 0 to 256"},
      {"decode: {k: 99999999999999999999}\n",
       "f.yaml:1: decode.k: found '99999999999999999999', expected an integer from 0 to 256"},
      {"decode: {k: +-1}\n", "f.yaml:1: decode.k: found '+-1', expected an integer from 0 to 256"},
      {"decode: {k: 1.}\n", "f.yaml:1: decode.k: found '1.', expected an integer from 0 to 256"},
      {"decode: {decode: {k: 1}}\n", "f.yaml:1: unknown key 'decode.decode'; did you mean 'decode'?"},
      {"decode: {[k]: 1}\n", "f.yaml:1: decode: found a list, expected a name"},
      {"[k]: 1\n", "f.yaml:1: key: found a list, expected a name"},
      {"decode: {k: [4]}\n", "f.yaml:1: decode.k: found a list, expected an integer from 0 to 256"},
      {"decode: {temperature: .nan}\n",
       "f.yaml:1: decode.temperature: found '.nan', expected 0 (greedy), or a number from 0.001 to 100"},
      {"decode: {temperature: nan}\n",
       "f.yaml:1: decode.temperature: found 'nan', expected 0 (greedy), or a number from 0.001 to 100"},
      {"decode: {top_p: 0}\n", "f.yaml:1: decode.top_p: found '0', expected a number above 0, at most 1"},
      {"decode: {top_p: inf}\n", "f.yaml:1: decode.top_p: found 'inf', expected a number above 0, at most 1"},
      {"compare: maybe\n", "f.yaml:1: compare: found 'maybe', expected true or false"},
      {"dtype: bf61\n", "f.yaml:1: dtype: found 'bf61', expected one of bf16, f16, f32, int8; did you mean 'bf16'?"},
      {"target:\n", "f.yaml:1: target: found nothing, expected the directory of a model"},
      {"target: \"a\\0b\"\n", "f.yaml:1: target: found a path with a NUL byte, expected the directory of a model"},
      {"decode: 4\n", "f.yaml:1: decode: found '4', expected a map of keys"},
      {"target: a\ntarget: b\n", "f.yaml:2: duplicate key 'target', expected it once"},
      {"decode: {k: 1}\ndecode: {seed: 1}\n", "f.yaml:2: duplicate key 'decode', expected it once"},
      {"decode: {k: 1}\ndecode.k: 2\n", "f.yaml:2: duplicate key 'decode.k', expected it once"},
      {"prompts:\n  - a\n  - \"\"\n", "f.yaml:3: prompts[1]: found an empty prompt, expected text"},
      {"prompts: []\n", "f.yaml:1: prompts: found an empty list, expected a list of prompts"},
      {"prompts: text\n", "f.yaml:1: prompts: found 'text', expected a list of prompts"},
      {"prompts:\n  - txt: a\n", "f.yaml:2: unknown key 'prompts[0].txt'; did you mean 'text'?"},
      {"prompts: [{ids: [1, -2]}]\n", "f.yaml:1: prompts[0].ids: found '-2', expected a token id from 0 to 2147483647"},
      {"target: a\ninterconnect: []\n",
       "f.yaml:2: interconnect: found an empty list, expected native, a preset, the path of a file, or a list of them"},
      {"interconnect: {native: 1}\n",
       "f.yaml:1: interconnect: found a map, expected native, a preset, the path of a file, or a list of them"},
      {"interconnect:\n",
       "f.yaml:1: interconnect: found nothing, expected native, a preset, the path of a file, or a list of them"},
      {"interconnect:\n  - native\n  - tpu-v4-chen\n  - native\n",
       "f.yaml:4: interconnect: found 'native' twice, expected each interconnect once"},
      {"- a\n", "f.yaml: found a list, expected a map of keys"},
      {"", "f.yaml: found nothing, expected a map of keys"},
      {"target: a\n---\ntarget: b\n", "f.yaml: found 2 YAML documents, expected one"},
      {std::string("target: a\nx\0y: b\n", 17), "f.yaml:2: found a NUL byte, expected YAML text"},
      {"target: a\nx: \xff\n", "f.yaml:2: found a byte that is not UTF-8, expected YAML text"},
  };
  for (const auto& [yaml, expected] : cases) EXPECT_EQ(parse_error(yaml), expected) << yaml;
}

TEST(Config, InterconnectIsOneOrAList) {
  const auto read = [](const std::string& value) {
    std::vector<std::string> labels;
    for (const auto& choice : parse_config("interconnect: " + value + "\n", "f.yaml", ".").run.interconnects) {
      labels.push_back(label_of(choice));
    }
    return labels;
  };
  using Labels = std::vector<std::string>;
  ASSERT_EQ(RunConfig{}.interconnects.size(), 1U);
  EXPECT_EQ(label_of(RunConfig{}.interconnects[0]), "native");
  EXPECT_EQ(read("native"), Labels{"native"});
  EXPECT_EQ(read("tpu-v4-chen"), Labels{"modelled tpu-v4-chen"});
  EXPECT_EQ(read("[tpu-v4-chen, native]"), (Labels{"modelled tpu-v4-chen", "native"}));
  LoadedConfig config;
  set_key(config, "interconnect=[native, tpu-v4-chen]");
  EXPECT_EQ(config.run.interconnects.size(), 2U);
  const std::string unknown = parse_error("target: a\ninterconnect: [native, tpu-v4-chem]\n");
  EXPECT_THAT(unknown, testing::StartsWith("f.yaml:2: interconnect: "));
  EXPECT_THAT(unknown, HasSubstr("'tpu-v4-chem'"));
  EXPECT_THAT(unknown, HasSubstr("did you mean 'tpu-v4-chen'?"));
}

TEST(Config, BrokenYamlNamesItsLine) {
  EXPECT_THAT(parse_error("target: a\ndecode: {k: 1\n"), HasSubstr("found broken YAML"));
  EXPECT_THAT(parse_error("target: a\n\tdraft: b\n"), testing::StartsWith("f.yaml:2: found broken YAML"));
  EXPECT_THAT(parse_error(std::string(100000, '[')), HasSubstr("f.yaml:1: found broken YAML"));
}

TEST(Config, SetChangesOneKey) {
  LoadedConfig config = parse_config("target: a\ndecode: {k: 2}\n", "f.yaml", ".");
  set_key(config, "decode.k=+6");
  set_key(config, "target=b: c");
  set_key(config, "decode.stop=[\"x\", y]");
  EXPECT_EQ(config.run.decode.k, 6);
  EXPECT_EQ(config.run.target, "b: c");
  EXPECT_EQ(config.run.decode.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(bad_input([&] { set_key(config, "decode.k"); }), "--set: found 'decode.k', expected key=value");
  EXPECT_EQ(bad_input([&] { set_key(config, "decode={k: 3}"); }),
            "--set: 'decode' is a section, expected one of its keys, such as decode.k=4");
  EXPECT_EQ(bad_input([&] { set_key(config, "decode.kk=3"); }),
            "--set: unknown key 'decode.kk'; did you mean 'decode.k'?");
  EXPECT_EQ(bad_input([&] { set_key(config, "decode.k=x"); }),
            "--set: decode.k: found 'x', expected an integer from 0 to 256");
}

TEST(Config, DefaultsDependOnTheDraft) {
  const auto completed = [](const std::string& yaml) {
    LoadedConfig config = parse_config(yaml + "prompts: [a]\n", "f.yaml", ".");
    complete(config);
    return config.run;
  };
  EXPECT_EQ(completed("target: a\n").decode.method, Method::kAutoregressive);
  EXPECT_FALSE(completed("target: a\n").compare);
  EXPECT_EQ(completed("target: a\ndraft: b\n").decode.method, Method::kSpeculative);
  EXPECT_TRUE(completed("target: a\ndraft: b\n").compare);
  EXPECT_FALSE(completed("target: a\ndraft: b\ncompare: false\n").compare);
  EXPECT_THAT(bad_input([&] { completed("target: a\ndecode: {method: speculative}\n"); }),
              HasSubstr("without a draft"));
  EXPECT_THAT(bad_input([&] { completed("target: a\ncompare: true\n"); }), HasSubstr("without a draft"));
  EXPECT_THAT(bad_input([&] { completed("draft: a\n"); }), HasSubstr("target: found nothing"));
}

TEST(Config, MethodsOfARun) {
  RunConfig run;
  EXPECT_EQ(run.methods(), std::vector{Method::kSpeculative});
  run.compare = true;
  EXPECT_EQ(run.methods(), (std::vector{Method::kSpeculative, Method::kAutoregressive}));
  run.decode.method = Method::kAutoregressive;
  EXPECT_EQ(run.methods(), (std::vector{Method::kAutoregressive, Method::kSpeculative}));
}

TEST(Config, TypesOfWeights) {
  for (const std::string& name : weight_type_names()) {
    const RunConfig run = parse_config("dtype: " + name + "\n", "f.yaml", ".").run;
    EXPECT_EQ(name_of(run.dtype), name);
    EXPECT_EQ(run.type_of_draft(), run.dtype);
    EXPECT_EQ(name_of(parse_config("draft_dtype: " + name + "\n", "f.yaml", ".").run.type_of_draft()), name);
  }
  EXPECT_EQ(parse_config("dtype: int8\ndraft_dtype: as_target\n", "f.yaml", ".").run.type_of_draft(), DType::kInt8);
  EXPECT_THAT(parse_error("draft_dtype: int4\n"), HasSubstr("draft_dtype: found 'int4', expected one of bf16, f16"));
}

TEST(Config, PageIsTheCode) {
  std::ifstream file(SPECDEC_SOURCE_DIR "/docs/configuration.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(page, configuration_page()) << "specdec_dist --print-keys > docs/configuration.md";
}

TEST(Config, ShippedFilesLoad) {
  for (const char* name :
       {"chinchilla-like", "chinchilla-like-native", "chinchilla-like-both", "minimal", "gpt2-pair", "llama-pair"}) {
    LoadedConfig config = load_config(std::string(SPECDEC_SOURCE_DIR "/configs/") + name + ".yaml");
    complete(config);
    EXPECT_TRUE(config.run.compare) << name;
  }
}

/// They repeat the main job's prompts and settings, so that each file can be read as it stands.
TEST(Config, SiblingsOfTheMainJobDifferInTheirInterconnectAlone) {
  const auto load = [](const std::string& name) {
    return load_config(SPECDEC_SOURCE_DIR "/configs/" + name + ".yaml").run;
  };
  RunConfig main = load("chinchilla-like");
  EXPECT_EQ(label_of(main.interconnects.at(0)), "modelled tpu-v4-chen");
  EXPECT_EQ(load("chinchilla-like-both").interconnects.size(), 2U);
  for (const char* name : {"chinchilla-like-native", "chinchilla-like-both"}) {
    RunConfig sibling = load(name);
    EXPECT_NE(serialise(sibling), serialise(main)) << name;
    sibling.interconnects = main.interconnects;
    EXPECT_EQ(serialise(sibling), serialise(main)) << name;
  }
}

CommandLine parse_line(std::vector<const char*> args) {
  args.insert(args.begin(), "specdec_dist");
  return parse_command_line(static_cast<int>(args.size()), args.data());
}

TEST(CommandLine, KeepsTheOrderOfPrompts) {
  const CommandLine line = parse_line({"--prompt", "[1, 2]", "--prompt-ids", "3 14", "--prompt", "b", "--set", "a=1",
                                       "--set", "b=[2]", "--json", "o.json", "--quiet"});
  ASSERT_EQ(line.prompts.size(), 3U);
  EXPECT_EQ(line.prompts[0].value, "[1, 2]");
  EXPECT_EQ(line.prompts[1].kind, PromptArgument::Kind::kIds);
  EXPECT_EQ(line.prompts[2].value, "b");
  EXPECT_EQ(line.set, (std::vector<std::string>{"a=1", "b=[2]"}));
  EXPECT_EQ(line.json, "o.json");
  EXPECT_FALSE(line.report);
  EXPECT_TRUE(line.stream);
}

TEST(CommandLine, PrintsAndRefuses) {
  EXPECT_THAT(*parse_line({"--help"}).print, HasSubstr("Examples:"));
  EXPECT_THAT(*parse_line({"--version"}).print, HasSubstr("specdec_dist 0."));
  EXPECT_EQ(*parse_line({"--print-keys"}).print + "\n", configuration_page());
  EXPECT_EQ(bad_input([] { parse_line({"--json", ""}); }), "--json: found nothing, expected the name of a file");
  EXPECT_EQ(bad_input([] {
              parse_line({"--promt", "x"});
            }),
            "command line: unknown argument '--promt'; did you mean '--prompt'? (--help lists all)");
  EXPECT_THAT(bad_input([] { make_run_config(parse_line({})); }), HasSubstr("neither --config nor --target"));
}

TEST(CommandLine, GoesOverTheConfig) {
  const RunConfig run = make_run_config(parse_line({"--config", SPECDEC_SOURCE_DIR "/configs/minimal.yaml", "--set",
                                                    "decode.k=7", "--prompt-ids", "3 14 15", "--draft", "manpy-0.5m"}));
  EXPECT_EQ(run.decode.k, 7);
  ASSERT_EQ(run.prompts.size(), 1U);
  EXPECT_EQ(run.prompts[0].ids, (std::vector<Token>{3, 14, 15}));
  EXPECT_TRUE(run.target.is_absolute());
  EXPECT_EQ(run.draft.filename(), "manpy-0.5m");
  EXPECT_EQ(bad_input([] {
              make_run_config(parse_line({"--target", "manpy-11m", "--prompt", ""}));
            }),
            "--prompt: found an empty prompt, expected text");
}

TEST(Paths, ListsWhereItLooked) {
  EXPECT_TRUE(std::filesystem::is_regular_file(find_config("minimal.yaml")));
  const std::string config = bad_input([] { find_config("minimla.yaml"); });
  EXPECT_THAT(config, HasSubstr("'configs/minimla.yaml'"));
  EXPECT_THAT(config, HasSubstr("did you mean 'minimal.yaml'?"));
  EXPECT_TRUE(std::filesystem::is_regular_file(find_config("gpu/llama-3-8b.yaml")));
  EXPECT_THAT(bad_input([] { find_config("./gpu/llama-3-8b.yaml"); }),
              testing::EndsWith("looked at './gpu/llama-3-8b.yaml'"));
  const std::string model = bad_input([] { find_model("no-such", "conf", "f.yaml: target"); });
  EXPECT_THAT(model, testing::StartsWith("f.yaml: target: found no directory 'no-such'"));
  EXPECT_THAT(model, HasSubstr("'conf/no-such'"));
  EXPECT_THAT(model, HasSubstr("assets/no-such'"));
}

}  // namespace
}  // namespace specdec
