#include "runtime/bench_cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/error.h"
#include "runtime/byte_sizes.h"
#include "runtime/round.h"
#include "tests/support/bad_input.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchCommand parse_bench(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "allreduce_bench");
  return parse_bench_command(static_cast<int>(arguments.size()), arguments.data());
}

/// The one line that refuses these arguments.
std::string refusal(const std::vector<const char*>& arguments) {
  return tests::bad_input([&] { parse_bench(arguments); });
}

std::vector<std::size_t> sizes(std::string_view text) { return parse_byte_sizes(text, "--bytes"); }

TEST(ByteSizes, NumbersUnitsListsAndRanges) {
  EXPECT_THAT(sizes("4096"), ElementsAre(4096));
  EXPECT_THAT(sizes("1K,3k,2M,1G"), ElementsAre(1024, 3072, 2 << 20, 1 << 30));
  EXPECT_THAT(sizes("1K..8K"), ElementsAre(1024, 2048, 4096, 8192));
  EXPECT_THAT(sizes("24..100"), ElementsAre(24, 48, 96));
  EXPECT_THAT(sizes("64,1K..2K"), ElementsAre(64, 1024, 2048));
  EXPECT_EQ(sizes("1K..64M").size(), 17U);
  EXPECT_THAT(sizes("4G"), ElementsAre(std::size_t{1} << 32));
}

TEST(ByteSizes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "x", "1KB", "1 K", "K", "-1", "0", "1.5K", "1K,", ",1K", "5G", "99999999999999999999",
                           "1K..", "..1K", "1K...2K", "8K..1K"}) {
    EXPECT_THROW(sizes(text), Error) << text;
  }
}

TEST(BenchCommand, TransportsOfGpusAreForPlainAllReduces) {
  EXPECT_THAT(parse_bench({"--transport", "nccl,nccl-fast,ipc,shm"}).transports,
              ElementsAre("nccl", "nccl-fast", "ipc", "shm"));
  EXPECT_TRUE(parse_bench({"--share-gpus"}).share_gpus);
  EXPECT_THAT(refusal({"--transport", "shm,ipc", "--decode", "layers=2,d_model=64"}),
              HasSubstr("--transport: found ipc with --decode"));
  EXPECT_THAT(refusal({"--transport", "nccl", "--interconnect", "tpu-v4-chen"}),
              HasSubstr("--transport: found nccl with --interconnect"));
}

TEST(BenchCommand, TheDefaultIsTheWholeCurveOfWhatAutoPicks) {
  const BenchCommand command = parse_bench({});
  EXPECT_THAT(command.transports, ElementsAre("auto"));
  ASSERT_EQ(command.payloads.size(), 17U);
  EXPECT_EQ(command.payloads.front().bytes, 1024U);
  EXPECT_EQ(command.payloads.back().bytes, std::size_t{64} << 20);
  EXPECT_EQ(command.payloads.front().dtype, DType::kF32);
  EXPECT_FALSE(command.effort.iterations);
  EXPECT_FALSE(command.effort.warmup);
  EXPECT_FALSE(command.decode);
  EXPECT_EQ(command.interconnect, "native");
  EXPECT_FALSE(command.print);
}

TEST(BenchCommand, TokensTimesWidthTimesSizeOfType) {
  const BenchCommand command = parse_bench({"--d-model", "8192", "--tokens", "1,5", "--dtype", "bf16,fp32"});
  ASSERT_EQ(command.payloads.size(), 4U);
  EXPECT_EQ(command.payloads[0].bytes, 8192U * 2);
  EXPECT_EQ(command.payloads[1].bytes, 5 * 8192U * 2);
  EXPECT_EQ(command.payloads[1].tokens, 5);
  EXPECT_EQ(command.payloads[2].dtype, DType::kF32);
  EXPECT_EQ(command.payloads[3].bytes, 5 * 8192U * 4);
  EXPECT_EQ(parse_bench({"--d-model", "64"}).payloads.size(), 6U) << "1,2,4,5,8,16";
}

TEST(BenchCommand, Effort) {
  const BenchCommand command =
      parse_bench({"--iterations", "30", "--warmup", "0", "--seconds", "0.5", "--deadline", "3"});
  EXPECT_EQ(command.effort.iterations, 30);
  EXPECT_EQ(command.effort.warmup, 0);
  EXPECT_EQ(command.effort.seconds, 0.5);
  EXPECT_EQ(command.deadline, 3);
}

TEST(BenchCommand, EachTransportOnce) {
  EXPECT_THAT(parse_bench({"--transport", "shm,mpi,shm"}).transports, ElementsAre("shm", "mpi"));
}

TEST(BenchCommand, RefusesInOneLineThatNamesTheFlag) {
  EXPECT_THAT(refusal({"--bytes", "1K..x"}), HasSubstr("--bytes: found 'x'"));
  EXPECT_THAT(refusal({"--bytes", "6"}), HasSubstr("--bytes: found 6, expected a multiple of 4, the size of fp32"));
  EXPECT_THAT(refusal({"--bytes", ""}), HasSubstr("--bytes: found nothing"));
  EXPECT_THAT(refusal({"--transport", "smh"}), HasSubstr("did you mean 'shm'?"));
  EXPECT_THAT(refusal({"--dtype", "fp16"}), HasSubstr("--dtype: found 'fp16', expected some of fp32,bf16"));
  EXPECT_EQ(refusal({"--d-model", "8,0"}), "--d-model: found '0', expected a whole number from 1 to 1048576");
  EXPECT_EQ(refusal({"--bytes", "5G"}),
            "--bytes: found '5G', expected bytes from 1 to 4G, such as 4096, 16K, 1K,1M or 1K..64M");
  const std::string limit = "expected at most 4G bytes and 2147483647 elements";
  EXPECT_EQ(refusal({"--d-model", "1048576", "--tokens", "65536"}),
            "--tokens: found 65536 rows of 1048576 elements of fp32, " + limit);
  EXPECT_EQ(refusal({"--decode", "layers=1,d_model=1048576", "--tokens", "1,65536"}),
            "--tokens: found 65536 rows of 1048576 elements of fp32, " + limit);
  EXPECT_EQ(refusal({"--d-model", "65536", "--tokens", "32768", "--dtype", "bf16"}),
            "--tokens: found 32768 rows of 65536 elements of bf16, " + limit)
      << "2^31 elements";
  EXPECT_EQ(refusal({"--bytes", "4G", "--dtype", "bf16"}), "--bytes: found 4294967296 of bf16, " + limit);
  EXPECT_EQ(parse_bench({"--bytes", "4G"}).payloads.size(), 1U);
  EXPECT_THAT(refusal({"--tokens", "4"}), HasSubstr("--tokens: found without --d-model"));
  EXPECT_THAT(refusal({"--d-model", "64", "--bytes", "1K"}), HasSubstr("both --d-model and --bytes"));
  EXPECT_THAT(refusal({"--decode", "layers=1,d_model=8", "--bytes", "1K"}), HasSubstr("both --decode and --bytes"));
  EXPECT_THAT(refusal({"--iterations", "0"}), HasSubstr("--iterations"));
  EXPECT_THAT(refusal({"--seconds", "nan"}), HasSubstr("--seconds"));
  EXPECT_THAT(refusal({"--json", ""}), HasSubstr("--json: found nothing"));
  EXPECT_THAT(refusal({"--byte", "1K"}), HasSubstr("unknown argument '--byte'; did you mean '--bytes'?"));
  EXPECT_THAT(refusal({"1K"}), HasSubstr("unknown argument '1K'"));
}

TEST(BenchCommand, HelpNamesEveryExitCode) {
  EXPECT_THAT(*parse_bench({"--help"}).print,
              HasSubstr("Exit codes: 0 done; 1 wrong sums or a bug; 2 bad input; 3 a rank was lost; "
                        "128 + signal interrupted."));
}

TEST(ModelShape, FromKeys) {
  const ModelShape shape = parse_model_shape("layers=32,d_model=4096,vocab=32000,gap_us=12.5", "--decode");
  EXPECT_EQ(shape.layers, 32);
  EXPECT_EQ(shape.d_model, 4096);
  EXPECT_EQ(shape.vocabulary, 32000);
  const DecodeShape given = shape.decode(5, 8);
  EXPECT_EQ(given.elements, 5U * 4096);
  EXPECT_EQ(given.round_bytes, RoundChannel::message_bytes(4));
  ASSERT_TRUE(given.gap);
  EXPECT_DOUBLE_EQ(*given.gap, 12.5e-6);

  const DecodeShape read = parse_model_shape("layers=2,d_model=64,vocab=100", "--decode").decode(1, 2);
  EXPECT_FALSE(read.gap);
  EXPECT_EQ(read.layer_bytes, 12U * 64 * 64 * 2 / 2) << "12 d_model^2 bf16 weights over two ranks";
  EXPECT_EQ(read.head_bytes, 100U * 64 * 2 / 2);
}

TEST(ModelShape, FromAModelsDirectory) {
  const ModelShape shape = parse_model_shape(SPECDEC_SOURCE_DIR "/assets/manpy-11m", "--decode");
  EXPECT_EQ(shape.layers, 12);
  EXPECT_EQ(shape.d_model, 256);
  EXPECT_EQ(shape.vocabulary, 4096);
  // 11 million parameters in all: the layers' matrices and the tied embedding.
  EXPECT_NEAR(static_cast<double>(shape.layers * shape.layer_parameters + shape.vocabulary * shape.d_model), 11e6, 1e6);
}

TEST(ModelShape, RefusesInOneLine) {
  EXPECT_THAT(refusal({"--decode", "layers=3"}), HasSubstr("--decode: found 'layers=3' without d_model"));
  EXPECT_EQ(refusal({"--decode", "layers=1,d_model=8,layers=2"}), "--decode: duplicate key 'layers', expected it once");
  EXPECT_EQ(refusal({"--decode", "layers=1,gap_us=1,d_model=8,gap_us=1"}),
            "--decode: duplicate key 'gap_us', expected it once");
  EXPECT_THAT(refusal({"--decode", "layer=3,d_model=8"}), HasSubstr("did you mean 'layers'?"));
  EXPECT_EQ(refusal({"--decode", "layers=0,d_model=8"}),
            "--decode: layers: found '0', expected a whole number from 1 to 10000");
  EXPECT_EQ(refusal({"--decode", "layers=1,d_model=1048577"}),
            "--decode: d_model: found '1048577', expected a whole number from 1 to 1048576");
  EXPECT_EQ(refusal({"--decode", "layers=1,d_model=8,vocab=+5"}),
            "--decode: vocab: found '+5', expected a whole number from 1 to 16777216");
  EXPECT_EQ(refusal({"--decode", "layers=1,d_model=8,gap_us=1e7"}),
            "--decode: gap_us: found '1e7', expected microseconds from 0 to 1000000");
  EXPECT_THAT(refusal({"--decode", "layers=1,d_model=8,gap_us=-1"}), HasSubstr("--decode: gap_us: found '-1'"));
  EXPECT_THAT(refusal({"--decode", "layers=1,d_model=8,gap_us=nan"}), HasSubstr("gap_us"));
  EXPECT_THAT(refusal({"--decode", "layers=1,d_model=8,gap_us="}), HasSubstr("gap_us"));
  EXPECT_THAT(refusal({"--decode", "nowhere"}), HasSubstr("--decode: found no directory 'nowhere'"));
}

}  // namespace
}  // namespace specdec
