#!/usr/bin/env python3
"""Runs specdec_dist on several numbers of ranks and transports and compares what comes out, bit for bit where docs/numerics.md says so.

    agreement_test.py [CASE ...] --program build/.../specdec_dist [--transport T]
"""

import json
import os
import tempfile

import job
import tiny_model

PROMPT = "def read_lines(path):\n    \"\"\"Return"
GREEDY = ["decode.temperature=0"]
SAMPLED = ["decode.temperature=0.8", "decode.top_p=0.95", "decode.seed=3"]
PLAIN = ["decode.temperature=1", "decode.seed=4"]
SAME_BITS = (0, 1, 2, 4, 8)  # 0: without mpirun
OTHERS = (3, 5, 6, 7)


class Run:
    """A run that has ended well, with its JSON report."""

    def __init__(self, options, ranks, settings=(), more=(), prompt=("--prompt", PROMPT), target=None, draft=None, tokens=32):
        models = ["--target", target, "--draft", draft] if target else job.shipped_pair(options)
        common = (f"decode.max_new_tokens={tokens}", "decode.ignore_eos=true", f"parallel.transport={options.transport}")
        self.job = job.reported(options, ranks, [*models, *prompt, *job.sets(*common, *settings), *more])
        self.report = self.job.report
        machine = self.report["machine"]
        self.expect(machine["ranks"] == max(1, ranks), "the JSON has another number of ranks")
        if ranks > 1 and options.transport != "auto":
            self.expect(options.transport in machine["transport"], f"went over {machine['transport']}")

    def expect(self, holds, why):
        self.job.expect(holds, why)

    def outputs(self, method):
        found = [run["outputs"] for run in self.report["runs"] if run["method"] == method]
        self.expect(len(found) == 1, f"{len(found)} runs of method {method}")
        return found[0]

    def tokens(self, method="speculative"):
        return [output["token_ids"] for output in self.outputs(method)]

    def text(self, method="speculative"):
        return self.outputs(method)[0]["text"]


def same_on_all_ranks(options, settings):
    first = None
    for ranks in SAME_BITS:
        run = Run(options, ranks, [*settings, "compare=false"])
        first = first or run
        run.expect(len(run.tokens()[0]) == 32, "not as many tokens as asked for")
        run.expect(run.tokens() == first.tokens(), f"{ranks} ranks give {run.tokens()}, one gives {first.tokens()}")
        run.expect(run.job.out == first.job.out, "another text on stdout")


def greedy_on_all_ranks(options):
    same_on_all_ranks(options, GREEDY)


def truncated_sampling_on_all_ranks(options):
    same_on_all_ranks(options, SAMPLED)


def plain_sampling_on_all_ranks(options):
    """The residual row travels in slices."""
    same_on_all_ranks(options, PLAIN)


def greedy_is_identical_to_autoregressive(options):
    for ranks, k in ((1, 4), (2, 1), (4, 7), (3, 4)):
        run = Run(options, ranks, [*GREEDY, f"decode.k={k}", "compare=true"])
        run.expect(run.tokens("speculative") == run.tokens("autoregressive"), "speculative and autoregressive tokens differ")
        run.expect(run.report["comparison"]["identical"] is True, "the report does not say so")


def sampling_is_not_compared_by_text(options):
    run = Run(options, 2, [*PLAIN, "compare=true"])
    run.expect(run.report["comparison"]["identical"] is None, "comparison.identical is not null")


def seeds_differ(options):
    """Or the equality of sampled runs would say nothing."""
    a, b = (Run(options, 0, ["decode.temperature=1", f"decode.seed={seed}", "compare=false"]) for seed in (4, 5))
    b.expect(a.tokens() != b.tokens(), "two seeds give one text")


def any_number_of_ranks(options):
    """Their sums associate differently, so their tokens need not be those of one rank; their two methods agree all the same."""
    for ranks in OTHERS:
        run = Run(options, ranks, [*GREEDY, "compare=true"])
        run.expect(run.tokens("speculative") == run.tokens("autoregressive"), "speculative and autoregressive tokens differ")


def int8_on_all_ranks(options):
    """Of both models, and of one alone; the report says which."""
    first = None
    for ranks in (0, 2, 4):
        run = Run(options, ranks, [*GREEDY, "dtype=int8", "compare=true"])
        first = first or run
        machine = run.report["machine"]
        run.expect((machine["dtype"], machine["draft_dtype"]) == ("int8", "int8"), "the JSON has other types")
        run.expect("weights in int8\n" in run.job.err, "the report does not name the type")
        run.expect(run.tokens("speculative") == run.tokens("autoregressive"), "the methods differ")
        run.expect(run.tokens() == first.tokens(), f"{ranks} ranks give {run.tokens()}, one gives {first.tokens()}")
    draft = Run(options, 2, [*GREEDY, "dtype=f32", "draft_dtype=int8", "compare=true"])
    machine = draft.report["machine"]
    draft.expect((machine["dtype"], machine["draft_dtype"]) == ("f32", "int8"), "the JSON has other types")
    draft.expect("weights in f32, the draft's in int8\n" in draft.job.err, "the report does not name both types")
    plain = Run(options, 2, [*GREEDY, "dtype=f32", "compare=false"])
    draft.expect(draft.tokens() == plain.tokens(), "the draft's type changes the text")


def fast_transport(options):
    for settings in (GREEDY, SAMPLED):
        run = Run(options, 4, [*settings, "parallel.transport=mpi-fast", "compare=true"])
        run.expect("fast" in run.report["machine"]["transport"], "the report names another transport")
        run.expect(len(run.tokens()[0]) == 32, "not as many tokens as asked for")


def two_threads_a_rank(options):
    one, two = (Run(options, 2, [*GREEDY, f"parallel.threads={threads}", "compare=false"]) for threads in (1, 2))
    two.expect(one.tokens() == two.tokens(), "two threads give other tokens")


def reference_backend(options):
    """The same kind of report; other kernels, so the tokens may differ, between its two methods they may not."""
    cpu = Run(options, 2, [*GREEDY, "compare=true"], tokens=6)
    reference = Run(options, 2, [*GREEDY, "compare=true", "backend=reference"], tokens=6)
    reference.expect("reference" in reference.report["machine"]["backend"], "the report names another backend")
    reference.expect(reference.tokens("speculative") == reference.tokens("autoregressive"), "the methods differ")

    def keys(value):
        if isinstance(value, dict):
            return {name: keys(item) for name, item in value.items()}
        return [keys(item) for item in value[:1]] if isinstance(value, list) and value and isinstance(value[0], dict) else None

    reference.expect(keys(reference.report) == keys(cpu.report), "the report has other keys")


def no_drafting(options):
    run = Run(options, 2, [*GREEDY, "decode.k=0", "compare=true"])
    metrics = [r["metrics"] for r in run.report["runs"] if r["method"] == "speculative"][0]
    run.expect(metrics["drafted"] == 0 and metrics["loops"] == 32, "K = 0 drafts")
    run.expect(run.report["comparison"]["identical"] is True, "K = 0 gives another text")


def stop_string(options):
    """Cut from the middle of what comes without it."""
    whole = Run(options, 2, [*GREEDY, "compare=false"]).text()
    word = whole[10:14]
    run = Run(options, 2, [*GREEDY, f"decode.stop={json.dumps([word])}", "compare=true"])
    for method in ("speculative", "autoregressive"):
        output = run.outputs(method)[0]
        run.expect(output["text"] == whole[:whole.index(word)], f"{method}: the text does not end before {word!r}")
        run.expect(output["finish_reason"] == "stop", f"{method}: finish_reason is {output['finish_reason']}")
    run.expect(run.job.out.decode() == whole[:whole.index(word)] + "\n", "stdout has another text")


def a_pipe_gets_text_alone(options):
    run = Run(options, 2, [*GREEDY, "compare=true"])
    run.expect(run.job.out.decode() == run.text() + "\n", "stdout is not the text of the JSON and a line end")
    run.expect("Greedy texts identical: yes" in run.job.err, "no report on stderr")
    quiet = Run(options, 0, [*GREEDY, "compare=false"], more=["--quiet", "--no-stream"])
    quiet.expect(quiet.job.out == b"" and quiet.job.err == "", "--quiet --no-stream writes something")


def several_prompts(options):
    """One after another, each as if it were alone when nothing is drawn."""
    prompts = ["class Stack:\n", "NAME\n       ls"]
    both = Run(options, 2, [*GREEDY, "compare=false"], prompt=["--prompt", prompts[0], "--prompt", prompts[1]])
    alone = [Run(options, 2, [*GREEDY, "compare=false"], prompt=["--prompt", prompt]) for prompt in prompts]
    both.expect(both.tokens() == alone[0].tokens() + alone[1].tokens(), "prompts change each other")
    both.expect([o["prompt"] for o in both.outputs("speculative")] == prompts, "the JSON has other prompts")
    both.expect(both.job.out == alone[0].job.out + alone[1].job.out, "stdout has other texts")


def ids_without_a_tokenizer(options):
    with tempfile.TemporaryDirectory() as directory:
        target, _ = tiny_model.write(os.path.join(directory, "target"), tokenizer=False)
        draft, _ = tiny_model.write(os.path.join(directory, "draft"), seed=1, tokenizer=False, num_hidden_layers=1)
        for ranks in (0, 4):
            run = Run(options, ranks, [*GREEDY, "compare=true"], prompt=["--prompt-ids", "3 14 15"], target=target, draft=draft, tokens=9)
            output = run.outputs("speculative")[0]
            run.expect(output["prompt_ids"] == [3, 14, 15], "the JSON has other prompt_ids")
            run.expect([int(word) for word in run.job.out.split()] == output["token_ids"], "stdout does not have the ids")
            run.expect(len(output["token_ids"]) == 9, "not as many tokens as asked for")


def to_the_end_of_the_context(options):
    with tempfile.TemporaryDirectory() as directory:
        target, _ = tiny_model.write(os.path.join(directory, "target"))
        draft, _ = tiny_model.write(os.path.join(directory, "draft"), seed=1, max_position_embeddings=40)
        run = Run(options, 2, [*GREEDY, "compare=true", "decode.k=7"], prompt=["--prompt", "abc"], target=target, draft=draft, tokens=500)
        for method in ("speculative", "autoregressive"):
            output = run.outputs(method)[0]
            run.expect(output["finish_reason"] == "context", f"{method}: finish_reason is {output['finish_reason']}")
            run.expect(len(output["token_ids"]) == tiny_model.CONTEXT - 3, f"{method}: {len(output['token_ids'])} tokens")
        run.expect(run.report["comparison"]["identical"] is True, "the texts differ")


def more_threads_than_cores_get_a_word(options):
    run = Run(options, 2, ["compare=false", "parallel.threads=64"], tokens=4)
    words = [line for line in run.job.err.splitlines() if "note: parallel.threads: found 64, expected at most" in line]
    run.expect(len(words) == 1, f"{len(words)} words about the threads")
    run = Run(options, 2, ["compare=false", "parallel.threads=1"], tokens=4)
    run.expect("note: parallel.threads" not in run.job.err, "a word about one thread a rank")


CASES = {case.__name__: case for case in (
    greedy_on_all_ranks, truncated_sampling_on_all_ranks, plain_sampling_on_all_ranks, greedy_is_identical_to_autoregressive,
    sampling_is_not_compared_by_text, seeds_differ, any_number_of_ranks, int8_on_all_ranks, fast_transport, two_threads_a_rank, reference_backend,
    no_drafting, stop_string, a_pipe_gets_text_alone, several_prompts, more_threads_than_cores_get_a_word, ids_without_a_tokenizer, to_the_end_of_the_context)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
