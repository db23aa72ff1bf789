#!/usr/bin/env python3
"""Forced acceptance (`acceptance: synthetic`) and an adaptive K, as a user runs them.

    acceptance_test.py [CASE ...] --program build/.../specdec_dist --ranks N
"""

import math
import os
import tempfile

import job

LABEL = "acceptance: synthetic (alpha 0.75)"
CONFIG = ("--config", os.path.join(job.ROOT, "configs", "chinchilla-like-native.yaml"))


def speculative(done):
    return next(run for run in done.report["runs"] if run["method"] == "speculative")


def yields(alpha, k):
    """Mean and variance of the tokens of a loop (Leviathan et al. 2023, eq. 1)."""
    weights = [alpha ** (n - 1) * ((1 - alpha) if n <= k else 1) for n in range(1, k + 2)]
    mean = sum(n * w for n, w in enumerate(weights, 1))
    return mean, sum(w * (n - mean) ** 2 for n, w in enumerate(weights, 1))


def label_is_everywhere(options):
    with tempfile.TemporaryDirectory() as directory:
        trace = os.path.join(directory, "trace")
        done = job.reported(options, options.ranks, [*CONFIG, "--trace", trace, *job.sets(
            "acceptance=synthetic", "synthetic.alpha=0.75", "decode.max_new_tokens=24", "decode.temperature=0")])
        done.expect(done.report["machine"]["acceptance"] == {"source": "synthetic", "label": LABEL, "alpha": 0.75}, "the JSON has no label")
        done.expect(done.report["comparison"]["identical"] is None, "texts are compared that need not agree")
        lines = done.err.splitlines()
        done.expect(any("note: " + LABEL in line for line in lines), "nothing says so before the text")
        done.expect(any(line.startswith(LABEL) for line in lines), "nor does the head of the report")
        columns = [line.split() for line in lines if line.startswith("acceptance  ")]
        done.expect(columns == [["acceptance", "synthetic", "(alpha", "0.75)", "-"]], f"nor does its column: {columns}")
        for begin in ("A loop of speculative", "Speed-up"):
            found = [line for line in lines if line.startswith(begin)]
            done.expect(len(found) == 1 and LABEL in found[0], f"nor does {begin!r}: {found}")
        done.expect(LABEL in job.load(os.path.join(trace, "trace.json"))["otherData"]["program"], "nor does the trace")


def tokens_per_loop_are_those_of_eq_1(options):
    for sampling in (("decode.temperature=0",), ("decode.temperature=1",), ("decode.temperature=0.8", "decode.top_p=0.95")):
        done = job.reported(options, options.ranks, [*CONFIG, *job.sets(
            "acceptance=synthetic", "synthetic.alpha=0.75", "compare=false", "decode.k=4", "decode.max_new_tokens=200", *sampling)])
        metrics = speculative(done)["metrics"]
        mean, variance = yields(0.75, 4)
        interval = 4 * math.sqrt(variance / metrics["full_loops"])
        done.expect(abs(metrics["tokens_per_loop"] - mean) < interval, f"{metrics['tokens_per_loop']} tokens a loop, expected {mean} +- {interval}")
        done.expect(abs(metrics["acceptance_rate"] - 0.75) < 1e-9, f"the rate is {metrics['acceptance_rate']}")
        done.expect(abs(metrics["expected_tokens_per_loop"] - mean) < 1e-9, "eq. 1 is of another rate")


def adaptive_k_keeps_the_greedy_text(options):
    texts = []
    for rule in ("fixed", "heuristic", "optimal"):
        settings = ("decode.temperature=0", "decode.k=8", f"decode.draft_length={rule}", "decode.max_new_tokens=64")
        done = job.reported(options, options.ranks, [*CONFIG, *job.sets(*settings)])
        done.expect(done.report["comparison"]["identical"] is True, f"{rule}: texts differ")
        run = speculative(done)
        done.expect(run["draft_length"] == rule and run["k"] == 8, f"{rule}: the JSON says {run['draft_length']}, {run['k']}")
        done.expect(("K<=8, " + rule in done.err) == (rule != "fixed"), f"{rule}: the table does not say so")
        metrics = run["metrics"]
        done.expect(rule == "fixed" or 0 < metrics["drafted"] < 8 * metrics["loops"], f"{rule}: K was 8 throughout")
        texts.append([output["token_ids"] for output in run["outputs"]])
    assert texts[0] == texts[1] == texts[2], texts


def adaptive_k_can_be_repeated(options):
    for rule in ("heuristic", "optimal"):
        runs = [speculative(job.reported(options, options.ranks, [*CONFIG, *job.sets(
            "decode.k=8", f"decode.draft_length={rule}", "compare=false", "decode.max_new_tokens=48")])) for _ in range(2)]
        tokens = [[output["token_ids"] for output in run["outputs"]] for run in runs]
        assert tokens[0] == tokens[1], f"{rule}: a second run of one seed says something else"
        assert runs[0]["metrics"]["drafted"] == runs[1]["metrics"]["drafted"], f"{rule}: and drafts something else"


def hardware_is_looked_up(options):
    settings = ("decode.draft_length=optimal", "decode.max_new_tokens=16", "compare=false")
    done = job.reported(options, options.ranks, [*CONFIG, *job.sets(*settings, "decode.hardware=h100x8")])
    done.expect(speculative(done)["draft_length"] == "optimal", "hardware by name is not taken")
    done = job.run(options, options.ranks, [*CONFIG, *job.sets(*settings, "decode.hardware=h100x9")])
    done.expect(done.code == 2 and len(done.error_lines()) == 1 and "decode.hardware" in done.err, "hardware that is not there is taken")


CASES = {case.__name__: case for case in (
    label_is_everywhere, tokens_per_loop_are_those_of_eq_1, adaptive_k_keeps_the_greedy_text, adaptive_k_can_be_repeated, hardware_is_looked_up)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
