#!/usr/bin/env python3
"""Gives specdec_dist what it cannot work with and checks how it says so (README, "Exit codes").

    bad_input_test.py [CASE ...] --program build/.../specdec_dist [--ranks N]

In every case: exit code 2, exactly one line that names the file, key, tensor or flag with what was found, nothing on stdout, an end by
itself, no process left; on several ranks the others do not wait for the one that failed.
"""

import json
import os
import struct
import tempfile

import job
import tiny_model
from place import ALONE, TENSOR, TOGETHER, Place, case

# The command line

@case(together=True)
def nothing_given(place):
    place.refuses([], "--config", "--target")


@case(together=True)
def unknown_flag(place):
    place.refuses_run("'--promt'", "--prompt", more=["--promt", "x"])


@case()
def flag_without_value(place):
    place.refuses_run("--json", more=["--json"])


@case()
def assignment_without_value(place):
    place.refuses_run("--set", "decode.k", "key=value", more=["--set", "decode.k"])


@case(together=True)
def json_in_missing_directory(place):
    place.refuses_run("--json", "nowhere/out.json", more=["--json", place.path("nowhere/out.json")])


@case()
def json_is_a_directory(place):
    place.refuses_run("--json", place.target, more=["--json", place.target])


# The config

@case(together=True)
def missing_config(place):
    place.refuses(["--config", place.path("none.yaml")], "--config", "none.yaml")


@case()
def misspelt_config(place):
    place.write("minimal.yaml", "compare: false\n")
    place.refuses(["--config", "minmal.yaml"], "--config", "'minmal.yaml'", "'minimal.yaml'")


@case()
def config_is_a_directory(place):
    place.refuses(["--config", place.target], "--config", place.target)


@case(together=True)
def broken_yaml(place):
    place.refuses_config("target: x\nprompts: [a\ndecode: {\n", "run.yaml:")


@case(together=True)
def misspelt_interconnect(place):
    place.refuses_set("interconnect=tpu-v4-chem", "interconnect", "'tpu-v4-chem'", "'tpu-v4-chen'")


@case()
def interconnect_twice(place):
    place.refuses_set("interconnect=[tpu-v4-chen, native, tpu-v4-chen]", "interconnect", "'tpu-v4-chen' twice")


@case()
def missing_interconnect_file(place):
    place.refuses_set("interconnect=./nowhere.yaml", "interconnect", "nowhere.yaml")


@case()
def interconnect_that_calls_itself_native(place):
    place.write("wires.yaml", "name: native\nsource: a test\nalgorithm: ring\nlatency_us: 1\nbandwidth_GBps: 1\n")
    place.refuses_set("interconnect=./wires.yaml", "interconnect", "wires.yaml", "'native'")


@case()
def broken_interconnect_file(place):
    place.write("wires.yaml", "source: a test\nalgorithm: telepathy\nlatency_us: 1\nbandwidth_GBps: 1\n")
    place.refuses_set("interconnect=./wires.yaml", "interconnect", "wires.yaml:2", "telepathy")


@case()
def binary_config(place):
    place.refuses_config(b"target: x\n\0\xff", "run.yaml:2", "NUL")


@case()
def config_not_utf8(place):
    place.refuses_config(b"target: x\nprompts: ['\xff']\n", "run.yaml:2", "UTF-8")


@case()
def empty_config(place):
    place.refuses_config("", "a map of keys")


@case(together=True)
def unknown_key(place):
    place.refuses_config("target: x\ndecode:\n  temprature: 1\n", "run.yaml:3", "'decode.temprature'", "decode.temperature")


@case()
def duplicate_key(place):
    place.refuses_config("target: x\ncompare: true\ncompare: false\n", "run.yaml:3", "'compare'")


@case()
def mistyped_value(place):
    place.refuses_config("target: x\ndecode:\n  k: four\n", "run.yaml:3", "decode.k", "'four'", "an integer from 0 to 256")


@case()
def no_prompts(place):
    place.refuses(["--target", place.target], "prompts", "--prompt")


@case()
def wrong_values(place):
    for assignment, *named in (
            ("decode.k=-1", "decode.k", "'-1'"), ("decode.k=257", "decode.k", "'257'"), ("decode.k=2.5", "decode.k", "'2.5'"),
            ("decode.k=99999999999999999999", "decode.k"),
            ("decode.temperature=-1", "decode.temperature", "'-1'"), ("decode.temperature=nan", "decode.temperature", "'nan'"),
            ("decode.temperature=inf", "decode.temperature", "'inf'"),
            # So small that logit / T would overflow fp32.
            ("decode.temperature=1e-38", "decode.temperature", "'1e-38'", "0 (greedy), or a number from 0.001"),
            ("decode.top_p=0", "decode.top_p", "'0'"), ("decode.top_p=1.5", "decode.top_p", "'1.5'"),
            ("decode.top_k=-1", "decode.top_k", "'-1'"), ("decode.seed=-1", "decode.seed", "'-1'"),
            ("decode.max_new_tokens=0", "decode.max_new_tokens", "'0'"), ("decode.stop=['']", "decode.stop", "an empty string"),
            ("decode.method=greedy", "decode.method", "'greedy'"), ("compare=maybe", "compare", "'maybe'"),
            ("weights_cache=cache", "weights_cache", "'cache'", "absolute path"), ("weights_cache=", "weights_cache", "off, auto"),
            ("dtype=f61", "dtype", "'f61'"), ("parallel.deadline=0", "parallel.deadline", "'0'"),
            ("parallel.threads=0", "parallel.threads", "'0'"), ("backend=cpuu", "backend", "'cpuu'", "cpu, reference"),
            ("parallel.isa=sse2", "parallel.isa", "'sse2'", "avx2")):
        place.refuses_set(assignment, *named)


@case(together=True)
def unknown_transport(place):
    place.refuses_set("parallel.transport=tcp", "parallel.transport", "'tcp'", "mpi-fast")


@case(together=True)
def halves_on_a_cpu(place):
    place.refuses_run('dtype: found "f16" with the backend "cpu"', "bf16", more=["--set", "dtype=f16"])


@case(together=True)
def cache_that_cannot_be_made(place):
    file = os.path.join(place.target, "config.json")
    for folder in (file, os.path.join(file, "below")):
        place.refuses_run(f"weights_cache: {folder}: found ", "expected a folder", more=["--set", f"weights_cache={folder}"])


@case(together=True)
def backend_without_a_gpu(place):
    """In a build without CUDA, and in one for CUDA where no GPU is to be seen."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    place.refuses_run('backend: found "cuda"', more=["--set", "backend=cuda"])


@case(together=True)
def transport_on_gpus_without_the_backend(place):
    for transport in ("nccl", "nccl-fast", "ipc"):
        place.refuses_run(f"parallel.transport: found {transport} with backend cpu", "expected backend cuda",
                          more=["--set", f"parallel.transport={transport}"])


@case(together=True)
def transport_on_gpus_without_gpus(place):
    """In a build without CUDA or NCCL, and in one for them where no GPU is to be seen."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for transport in ("nccl", "nccl-fast", "ipc"):
        place.refuses_run(f"parallel.transport: found {transport}" if place.ranks else "cuda",
                          more=["--set", "backend=cuda", "--set", f"parallel.transport={transport}"])


@case()
def modelled_interconnect_of_gpus(place):
    place.refuses_run("interconnect: found tpu-v4-chen with parallel.transport nccl", "expected native",
                      more=["--set", "backend=cuda", "--set", "parallel.transport=nccl", "--set", "interconnect=tpu-v4-chen"])


# The model's directory

@case(together=True)
def missing_model(place):
    place.refuses_run("--target", "'nowhere'", target="nowhere")


@case()
def model_is_a_file(place):
    place.refuses_run("--target", place.safetensors, target=place.safetensors)


@case(together=True)
def missing_config_json(place):
    os.remove(place.config_json)
    place.refuses_run("config.json")


@case()
def broken_config_json(place):
    place.write("target/config.json", '{"model_type": "llama", ')
    place.refuses_run("config.json", "JSON")


@case()
def config_json_is_no_object(place):
    place.write("target/config.json", "[1, 2]")
    place.refuses_run("config.json")


@case()
def deeply_nested_config_json(place):
    place.write("target/config.json", "[" * 1_000_000)
    place.refuses_run("config.json")


@case()
def config_json_values(place):
    for changes, *named in (
            ({"model_type": "bloom"}, "model_type", "bloom", "gpt2, llama or mistral"),
            ({"hidden_size": "32"}, "hidden_size"), ({"hidden_size": -32}, "hidden_size", "-32"), ({"hidden_size": None}, "hidden_size"),
            ({"num_attention_heads": 0}, "num_attention_heads", "0"), ({"num_attention_heads": 5}, "num_attention_heads", "5"),
            ({"num_key_value_heads": 3}, "num_key_value_heads", "3"), ({"head_dim": 7}, "head_dim", "7"),
            ({"hidden_act": "relu"}, "hidden_act", "relu"), ({"rms_norm_eps": "small"}, "rms_norm_eps"),
            ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_type", "yarn"),
            ({"sliding_window": 8}, "sliding_window", "8"),
            # Sizes that must not be allocated, or multiplied into something small.
            ({"num_hidden_layers": 10**9}, "num_hidden_layers", "1000000000"), ({"vocab_size": 10**12}, "vocab_size", "1000000000000"),
            ({"hidden_size": 2**62}, "hidden_size"), ({"intermediate_size": 10**30}, "intermediate_size"),
            ({"max_position_embeddings": 10**12}, "max_position_embeddings")):
        place.refuses_model(changes, *named)


@case(together=True)
def more_declared_than_there_is(place):
    """Within every limit of its own, but not what the file holds."""
    for changes, *named in (
            ({"vocab_size": 2**24}, "[16777216, 32]", "[256, 32]"), ({"num_hidden_layers": 10_000}, "model.layers.2."),
            ({"num_hidden_layers": 1}, "model.layers.1."), ({"hidden_size": 2**20}, "1048576"),
            ({"tie_word_embeddings": False, "attention_bias": True}, "bias")):
        tiny_model.write_text(place.config_json, json.dumps(tiny_model.config(**changes)))
        place.refuses_run("target", *named)


# The weights

@case(together=True)
def missing_weights(place):
    os.remove(place.safetensors)
    place.refuses_run("target", "model.safetensors")


@case()
def empty_weights(place):
    place.write("target/model.safetensors", b"")
    place.refuses_run("model.safetensors", "an empty file")


@case()
def weights_are_a_directory(place):
    os.remove(place.safetensors)
    os.mkdir(place.safetensors)
    place.refuses_run("model.safetensors", "a directory")


@case(together=True)
def truncated_weights(place):
    whole = place.weights.bytes()
    for length in (4, 100, len(whole) // 2, len(whole) - 1):
        place.write("target/model.safetensors", whole[:length])
        place.refuses_run("model.safetensors")


@case()
def bytes_after_the_weights(place):
    place.write("target/model.safetensors", place.weights.bytes() + b"\0")
    place.refuses_run("model.safetensors", "header")


@case()
def huge_header(place):
    for length in (2**63, 2**64 - 1, 2**64 - 8, 10**9):
        place.write("target/model.safetensors", struct.pack("<Q", length) + place.weights.bytes()[8:])
        place.refuses_run("model.safetensors", "header", str(length))


@case()
def broken_header(place):
    place.write("target/model.safetensors", struct.pack("<Q", 16) + b'{"a": [1, 2, 3  ')
    place.refuses_run("model.safetensors", "header", "JSON")


@case()
def deeply_nested_header(place):
    deep = b"[" * 1_000_000
    place.write("target/model.safetensors", struct.pack("<Q", len(deep)) + deep)
    place.refuses_run("model.safetensors", "header")


@case(together=True)
def overlapping_offsets(place):
    begin, end = place.weights.header[TENSOR]["data_offsets"]
    place.refuses_weights("overlaps", data_offsets=[begin - 64, end - 64])


@case()
def hole_between_tensors(place):
    del place.weights.header[TENSOR]
    place.weights.write(place.safetensors)
    place.refuses_run("model.safetensors", "bytes of no tensor")


@case(together=True)
def offsets_out_of_range(place):
    begin, end = place.weights.header[TENSOR]["data_offsets"]
    place.refuses_weights("data_offsets", data_offsets=[begin + 10**9, end + 10**9])


@case()
def offsets_of_every_wrong_kind(place):
    begin, end = place.weights.header[TENSOR]["data_offsets"]
    for offsets in ([end, begin], [-8, end], [begin], [begin, 2**64], ["0", "8"], None, [2**63, 2**63 + 8192], [begin, end - 4]):
        place.refuses_weights(data_offsets=offsets)


@case(together=True)
def wrong_shape(place):
    place.refuses_weights("[32, 64]", "[64, 32]", shape=[32, 64])


@case()
def shapes_of_every_wrong_kind(place):
    for shape in ([2**32, 2**32], [2**63, 2], [-64, -32], [64.5, 32], [], [2**61], "64x32", [64, 32, 1], [0, 2**40]):
        place.refuses_weights(shape=shape)


@case()
def unknown_dtype(place):
    place.refuses_weights("F12", "F32, F16 or BF16", dtype="F12")


@case()
def integer_dtype(place):
    place.refuses_weights("F32, F16 or BF16", dtype="I32")


@case()
def missing_tensor(place):
    renamed = {("extra" if name == TENSOR else name): entry for name, entry in place.weights.header.items()}
    place.weights.header = renamed
    place.weights.write(place.safetensors)
    place.refuses_run("target", TENSOR)


def split_weights(place, second="model-2.safetensors"):
    """The target in two files with an index; the second of another name where the index is to be wrong."""
    names = list(place.weights.header)
    for number, part in enumerate((names[:5], names[5:]), start=1):
        shard = tiny_model.Safetensors({name: place.weights.header[name]["shape"] for name in part})
        shard.write(os.path.join(place.target, f"model-{number}.safetensors"))
    os.remove(place.safetensors)
    index = {"weight_map": {name: "model-1.safetensors" if i < 5 else second for i, name in enumerate(names)}}
    tiny_model.write_text(os.path.join(place.target, "model.safetensors.index.json"), json.dumps(index))


@case(together=True)
def missing_shard(place):
    split_weights(place, second="model-3.safetensors")
    place.refuses_run("model-3.safetensors", "No such file")


@case()
def wrong_index(place):
    split_weights(place, second="model-1.safetensors")
    place.refuses_run("index.json", "model-1.safetensors")


@case()
def index_out_of_the_directory(place):
    split_weights(place, second="../draft/model.safetensors")
    place.refuses_run("index.json", "a file name inside the directory")


@case()
def broken_index(place):
    os.remove(place.safetensors)
    for content in ("{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}'):
        place.write("target/model.safetensors.index.json", content)
        place.refuses_run("index.json")


# The draft

@case(together=True)
def draft_of_another_vocabulary(place):
    draft, _ = tiny_model.write(place.path("draft"), seed=1, tokenizer=False, vocab_size=192)
    place.refuses_run("draft", "192", "256", more=["--draft", draft])


@case(together=True)
def draft_of_another_tokenizer(place):
    draft, _ = tiny_model.write(place.path("draft"), seed=1, swapped=("a", "b"))
    place.refuses_run("draft tokenizer", "'a'", "'b'", more=["--draft", draft])


@case(together=True)
def truncated_draft(place):
    draft, weights = tiny_model.write(place.path("draft"), seed=1)
    place.write("draft/model.safetensors", weights.bytes()[:-1])
    place.refuses_run("draft/model.safetensors", more=["--draft", draft])


@case()
def missing_draft(place):
    place.refuses_run("--draft", "'nowhere'", more=["--draft", "nowhere"])


@case()
def speculation_without_a_draft(place):
    place.refuses_run("decode.method", "--draft", more=["--set", "decode.method=speculative"])


# Tokenizers and prompts

@case()
def broken_tokenizer(place):
    for content in ("{", "[]", "{}", '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
                    '{"model": {"type": "BPE", "vocab": {"a": 4000000000}, "merges": []}}'):
        place.write("target/tokenizer.json", content)
        place.refuses_run("tokenizer.json")


@case()
def broken_vocabulary(place):
    for content in ("{", "[]", '{"a": 1099511627776}', '{"a": 0, "b": 0}', '{"a": "0"}'):
        place.write("target/vocab.json", content)
        place.refuses_run("vocab.json")


@case()
def broken_merges(place):
    place.write("target/merges.txt", "#version: 0.2\na b c\n")
    place.refuses_run("merges.txt", "line 2")


@case(together=True)
def text_without_a_tokenizer(place):
    bare, _ = tiny_model.write(place.path("bare"), tokenizer=False)
    place.refuses_run("prompts[0]", "no tokenizer", "--prompt-ids", target=bare)


@case(together=True)
def prompt_longer_than_the_context(place):
    place.refuses_run("prompts[0]", "100 tokens", "64", prompt=["--prompt", "x" * 100])


@case()
def prompt_that_fills_the_context(place):
    place.refuses_run("prompts[0]", "64 tokens", prompt=["--prompt", "x" * 64])


@case(together=True)
def empty_prompt(place):
    place.refuses_run("--prompt", "empty", prompt=["--prompt", ""])


@case()
def empty_prompt_file(place):
    place.refuses_run("--prompt-file", "empty.txt", "empty", prompt=["--prompt-file", place.write("empty.txt", b"")])


@case(together=True)
def prompt_file_not_utf8(place):
    place.refuses_run("--prompt-file", "bad.txt", "UTF-8", "3",
                      prompt=["--prompt-file", place.write("bad.txt", b"abc\xff\xfe")])


@case()
def prompt_not_utf8(place):
    place.refuses_run("--prompt", "UTF-8", prompt=["--prompt", b"a\xc3("])


@case()
def missing_prompt_file(place):
    place.refuses_run("--prompt-file", "nothing.txt", prompt=["--prompt-file", "nothing.txt"])


@case()
def bad_ids(place):
    for ids, *named in (("1 x 2", "'x'"), ("1 -2", "'-2'"), ("", "empty"), ("1.5", "'1.5'"), ("99999999999999", "'99999999999999'")):
        place.refuses_run("--prompt-ids", *named, prompt=["--prompt-ids", ids])


@case(together=True)
def ids_out_of_range(place):
    place.refuses_run("prompts[0]", "256", "0 to 255", prompt=["--prompt-ids", "3 256"])


@case()
def the_second_prompt_counts_too(place):
    place.refuses_run("prompts[1]", "0 to 255", prompt=["--prompt", "fine", "--prompt-ids", "300"])


@case(together=True)
def text_of_tokens_that_the_model_lacks(place):
    small, _ = tiny_model.write(place.path("small"), vocab_size=192)
    place.refuses_run("prompts[0]", "id 195", "0 to 191", target=small, prompt=["--prompt", "\u00e9"])


@case(together=True)
def weights_that_are_no_numbers(place):
    """What rank 0 alone finds out while it decodes stands in its report too."""
    begin, end = place.weights.header["lm_head.weight"]["data_offsets"]
    place.weights.data = place.weights.data[:begin] + b"\xff" * (end - begin) + place.weights.data[end:]
    place.weights.write(place.safetensors)
    report = place.path("report.json")
    for sampling in ("decode.top_k=0", "decode.top_k=3"):
        place.refuses_run("logits are not finite", "weights in the checkpoint", more=["--json", report, "--set", sampling])
        with open(report, encoding="utf-8") as file:
            found = json.load(file)
        assert found["status"] == "failed" and "logits are not finite" in found["error"], found


# The ranks themselves

@case(alone=False, together=True)
def too_many_ranks(place):
    place.ranks = 17
    place.refuses_run("17 ranks", "at most 16")


@case(alone=False, together=True)
def rank_with_nothing_to_do(place):
    narrow, _ = tiny_model.write(place.path("narrow"), vocab_size=64, hidden_size=8, intermediate_size=32, num_attention_heads=1,
                                 num_key_value_heads=1, tokenizer=False)
    place.refuses_run("ranks leave rank", "use fewer ranks", target=narrow, prompt=["--prompt-ids", "1"])


@case(alone=False, together=True)
def self_transport_on_several_ranks(place):
    place.refuses_run("parallel.transport", "self", more=["--set", "parallel.transport=self"])


def the_good_model_runs(options):
    """Or else every refusal above might have another reason."""
    with tempfile.TemporaryDirectory() as directory:
        place = Place(options, directory)
        done = job.run(options, options.ranks, ["--target", place.target, "--prompt", "abc", "--set", "decode.max_new_tokens=4"])
        done.expect(done.code == 0 and not done.error_lines(), "a good model is refused")
        split_weights(place)
        done = job.run(options, options.ranks, ["--target", place.target, "--prompt", "abc", "--set", "decode.max_new_tokens=4"])
        done.expect(done.code == 0, "a good model in two files is refused")


if __name__ == "__main__":
    options = job.parse(__doc__)
    job.run_cases(options, {"the_good_model_runs": the_good_model_runs, **(TOGETHER if options.ranks else ALONE)})
