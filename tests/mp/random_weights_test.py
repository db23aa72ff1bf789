#!/usr/bin/env python3
"""Runs shapes without a checkpoint (`weights: random`) as a user does, and looks for the label in everything that comes out.

    random_weights_test.py [CASE ...] --program build/.../specdec_dist --ranks N
"""

import glob
import os
import tempfile

import job
import tiny_model

LABEL = "weights: random (seed 5)"
SEED = ("weights=random", "weights_seed=5")


def shape(directory, name, **changes):
    """A folder with a config.json and nothing else."""
    path = os.path.join(directory, name)
    os.makedirs(path)
    tiny_model.write_text(os.path.join(path, "config.json"), job.json.dumps(tiny_model.config(**changes)))
    return path


def smaller(directory, folder, by):
    """A shipped shape with widths and heads divided by `by`, two layers and a small vocabulary; the same family, ratios and flags."""
    values = job.load(os.path.join(folder, "config.json"))
    for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
        values[key] //= by
    values["head_dim"] = values["hidden_size"] // values["num_attention_heads"] // 8 * 2
    values.update(num_hidden_layers=2, vocab_size=2048, max_position_embeddings=512, bos_token_id=None, eos_token_id=None)
    path = os.path.join(directory, os.path.basename(folder))
    os.makedirs(path)
    tiny_model.write_text(os.path.join(path, "config.json"), job.json.dumps(values))
    return path


def label_is_everywhere(options):
    with tempfile.TemporaryDirectory() as directory:
        target = shape(directory, "target")
        draft = shape(directory, "draft", num_hidden_layers=1)
        trace = os.path.join(directory, "trace")
        done = job.reported(options, options.ranks, [
            "--target", target, "--draft", draft, "--prompt-random", "20", "--trace", trace,
            *job.sets(*SEED, "compare=true", "decode.max_new_tokens=12", "decode.ignore_eos=true")])
        done.expect(done.report["machine"]["weights"] == {"source": "random", "label": LABEL, "seed": 5}, "the JSON has no label")
        done.expect(done.report["config"]["weights"] == "random" and done.report["config"]["weights_seed"] == 5, "nor has its config")
        prompt = done.report["runs"][0]["outputs"][0]["prompt_ids"]
        done.expect(len(prompt) == 20 and len(set(prompt)) > 5, f"the prompt is {prompt}")
        lines = done.err.splitlines()
        done.expect(any("note: " + LABEL in line for line in lines), "nothing says so before the text")
        done.expect(any(line.startswith(LABEL) and "target and draft" in line for line in lines), "nor does the head of the report")
        columns = [line for line in lines if line.startswith("weights ")]
        done.expect(len(columns) == 1 and columns[0].count("random (seed 5)") == 2, f"nor does each column: {columns}")
        for begin in ("A loop of speculative", "A loop of autoregressive", "Speed-up"):
            found = [line for line in lines if line.startswith(begin)]
            done.expect(len(found) == 1 and LABEL in found[0], f"nor does {begin!r}: {found}")
        done.expect(done.out.strip() and all(word.isdigit() for word in done.out.split()), "the text is not ids")
        for file in ["trace.json", *(f"rank{rank}.json" for rank in range(max(options.ranks, 1)))]:
            program = job.load(os.path.join(trace, file))["otherData"]["program"]
            done.expect(LABEL in program, f"{file} is of {program!r}")


def scores_are_labelled(options):
    with tempfile.TemporaryDirectory() as directory:
        model = shape(directory, "model")
        ids = os.path.join(directory, "ids")
        tiny_model.write_text(ids, "3 14 15 92 65")
        arguments = ["--model", model, "--ids", ids]
        scorer = job.with_program(options, "specdec_score")
        done = job.run(scorer, options.ranks, [*arguments, "--weights", "random", "--weights-seed", "5"])
        done.expect(done.code == 0 and done.out.decode().startswith(LABEL + "\n"), "the score has no label")
        done = job.run(scorer, options.ranks, arguments)
        done.expect(done.code == 2 and len(done.error_lines()) == 1 and "or weights: random" in done.err, "no hint at what could be done")


def a_checkpoint_has_no_label(options):
    with tempfile.TemporaryDirectory() as directory:
        model, _ = tiny_model.write(os.path.join(directory, "model"))
        done = job.reported(options, options.ranks, ["--target", model, "--prompt", "a", *job.sets("decode.max_new_tokens=4")])
        done.expect(done.report["machine"]["weights"] == {"source": "checkpoint", "label": None, "seed": None}, "the JSON has one")
        done.expect("random" not in done.err, "the report has one")
        one = done.report["runs"][0]["outputs"][0]["token_ids"]
        done = job.reported(options, options.ranks, ["--target", model, "--prompt", "a", *job.sets(*SEED, "decode.max_new_tokens=4")])
        done.expect(LABEL in done.err, "a folder with a checkpoint and a tokenizer cannot have random weights")
        done.expect(done.report["runs"][0]["outputs"][0]["token_ids"] != one, "the checkpoint is used")


def tokens_of(options, ranks, arguments, *settings):
    done = job.reported(options, ranks, [*arguments, *job.sets(*settings)])
    return {run["method"]: [output["token_ids"] for output in run["outputs"]] for run in done.report["runs"]}, done


def text_is_that_of_any_number_of_ranks(options):
    with tempfile.TemporaryDirectory() as directory:
        # Enough of everything for eight ranks.
        wide = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 1024}
        arguments = ["--target", shape(directory, "target", **wide),
                     "--draft", shape(directory, "draft", num_hidden_layers=1, **wide),
                     "--prompt-random", "33", "--prompt-ids", "1 2 3"]
        settings = (*SEED, "compare=true", "decode.temperature=0", "decode.max_new_tokens=24", "decode.ignore_eos=true")
        one, _ = tokens_of(options, 1, arguments, *settings)
        for ranks in (2, 4, 8):
            several, done = tokens_of(options, ranks, arguments, *settings)
            done.expect(several == one, f"{ranks} ranks write {several}, one writes {one}")
            done.expect(several["speculative"] == several["autoregressive"], "methods differ")
        other, done = tokens_of(options, 2, arguments, *settings, "backend=reference")
        done.expect(other == one, f"the reference writes {other}, expected {one}")
        other, done = tokens_of(options, 2, arguments, *settings, "weights_seed=6")
        done.expect(other != one, "another seed writes the same")


def a_model_that_drafts_for_itself_is_always_right(options):
    with tempfile.TemporaryDirectory() as directory:
        model = shape(directory, "model")
        done = job.reported(options, options.ranks, ["--target", model, "--draft", model, "--prompt-random", "8", *job.sets(
            *SEED, "decode.temperature=0", "decode.k=3", "decode.max_new_tokens=24", "decode.ignore_eos=true")])
        run = next(run for run in done.report["runs"] if run["method"] == "speculative")
        done.expect(run["metrics"]["accepted"] == run["metrics"]["reached"] > 0, "target and draft of one folder are not one model")


def configs_for_gpus_in_small(options):
    """Every configs/gpu/*.yaml as it stands but for the backend, the transport and the size of its models."""
    files = sorted(glob.glob(os.path.join(job.ROOT, "configs", "gpu", "*.yaml")))
    assert len(files) >= 3, files
    for file in files:
        with tempfile.TemporaryDirectory() as directory:
            arguments = ["--config", file]
            with open(file, encoding="utf-8") as text:
                for line in text:
                    key, _, value = line.strip().partition(": ")
                    if key in ("target", "draft"):
                        folder = os.path.join(job.ROOT, value)
                        arguments += [f"--{key}", smaller(directory, folder, 16 if "chinchilla" in value else 8)]
            done = job.reported(options, options.ranks, [*arguments, *job.sets("backend=cpu", "parallel.transport=auto", "decode.max_new_tokens=8")])
            done.expect("weights: random (seed 0)" in done.err, f"{file} has no label")
            for run in done.report["runs"]:
                for output in run["outputs"]:
                    done.expect(len(output["token_ids"]) == 8, f"{file} writes {output['token_ids']}")


def wrong_prompts(options):
    with tempfile.TemporaryDirectory() as directory:
        model = shape(directory, "model")
        for arguments, named in (
                (["--prompt", "text"], ["prompts[0]: found text", "--prompt-random"]),
                (["--prompt-random", "0"], ["--prompt-random: found '0', expected an integer from 1 to"]),
                (["--prompt-random", "many"], ["--prompt-random: found 'many'"]),
                (["--prompt-random", str(tiny_model.CONTEXT)], ["prompts[0]: found 64 tokens, expected fewer than the 64 positions"]),
                (["--set", "prompts=[{random: -3}]"], ["prompts[0].random: found '-3'"])):
            done = job.run(options, options.ranks, ["--target", model, *arguments, *job.sets(*SEED)])
            done.expect(done.code == 2 and len(done.error_lines()) == 1, "not one line and exit code 2")
            for text in named:
                done.expect(text in done.error_lines()[0], f"the line does not contain {text!r}")


CASES = {case.__name__: case for case in (
    label_is_everywhere, scores_are_labelled, a_checkpoint_has_no_label, text_is_that_of_any_number_of_ranks,
    a_model_that_drafts_for_itself_is_always_right, configs_for_gpus_in_small, wrong_prompts)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
