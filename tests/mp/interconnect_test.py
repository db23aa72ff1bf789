#!/usr/bin/env python3
"""Runs specdec_dist under modelled interconnects: the tokens are the native ones, the time is the model's at least, and every output says so.

    interconnect_test.py [CASE ...] --program build/.../specdec_dist [--ranks N]
"""

import os
import tempfile

import job

GREEDY = ["decode.temperature=0"]
SAMPLED = ["decode.temperature=0.8", "decode.top_p=0.95", "decode.seed=3"]
PLAIN = ["decode.temperature=1", "decode.seed=4"]
LAYERS = 12  # of manpy-11m
SLOW_SECONDS = 0.002

SLOW = f"""\
source: a test
algorithm: one-shot
latency_us: {SLOW_SECONDS * 1e6:.0f}
bandwidth_GBps: 100
"""


def run(options, *settings, interconnect=None, tokens=16, ranks=None, more=()):
    """Two prompts; the job with its report, and its runs by (interconnect, method)."""
    common = (f"decode.max_new_tokens={tokens}", "decode.ignore_eos=true", *([f"interconnect={interconnect}"] if interconnect else []))
    done = job.reported(options, options.ranks if ranks is None else ranks,
                        [*job.shipped_pair(options), "--prompt", "def read_lines(path):\n", "--prompt", "NAME\n       ls", *more,
                         *job.sets(*common, *settings)])
    runs = {(r["interconnect"]["name"], r["method"]): r for r in done.report["runs"]}
    done.expect(len(runs) == len(done.report["runs"]), "two runs of one interconnect and method")
    return done, runs


def tokens_of(a_run):
    return [output["token_ids"] for output in a_run["outputs"]]


def same_tokens(options, settings, **more):
    """In one job side by side, and in a job that knows nothing of models."""
    done, runs = run(options, *settings, interconnect="[native, tpu-v4-chen]", **more)
    alone, native = run(options, *settings, **more)
    alone.expect(set(native) == {("native", "speculative"), ("native", "autoregressive")}, f"the runs are {set(native)}")
    for method in ("speculative", "autoregressive"):
        expected = tokens_of(native["native", method])
        done.expect(all(len(tokens) == 16 for tokens in expected), "not as many tokens as asked for")
        for interconnect in ("native", "tpu-v4-chen"):
            found = tokens_of(runs[interconnect, method])
            done.expect(found == expected, f"{interconnect}, {method}: {found}, without a model {expected}")
    done.expect(done.out == alone.out, "another text on stdout")


def greedy_tokens_are_the_native_ones(options):
    same_tokens(options, GREEDY)


def sampled_tokens_are_the_native_ones(options):
    same_tokens(options, SAMPLED)
    same_tokens(options, PLAIN)


def on_every_transport(options):
    for transport in ("shm", "hier", "mpi"):
        same_tokens(options, [*GREEDY, f"parallel.transport={transport}"])


def one_rank_waits_for_nobody(options):
    done, runs = run(options, *GREEDY, interconnect="tpu-v4-chen", ranks=0)
    counts = runs["tpu-v4-chen", "speculative"]["collectives"]
    done.expect(counts == {"total": 0, "late": 0, "late_seconds": 0, "modelled_seconds": 0}, f"the collectives of one rank are {counts}")


def both_side_by_side(options):
    done, runs = run(options, *GREEDY, interconnect="[tpu-v4-chen, native]")
    report = done.report
    order = [(r["interconnect"]["name"], r["interconnect"]["modelled"], r["method"]) for r in report["runs"]]
    done.expect(order == [("tpu-v4-chen", True, "speculative"), ("tpu-v4-chen", True, "autoregressive"),
                          ("native", False, "speculative"), ("native", False, "autoregressive")], f"the runs are {order}")
    for method in ("speculative", "autoregressive"):
        counts = runs["tpu-v4-chen", method]["collectives"]
        done.expect(counts["total"] > 2 * LAYERS * runs["tpu-v4-chen", method]["metrics"]["loops"], f"the collectives are {counts}")
        done.expect(0 <= counts["late"] <= counts["total"] and (counts["late"] > 0) == (counts["late_seconds"] > 0), f"late: {counts}")
        done.expect(runs["native", method]["collectives"] is None, "a native run counts modelled collectives")
    chen, native = report["machine"]["interconnects"]
    total = sum(runs["tpu-v4-chen", method]["collectives"]["total"] for method in ("speculative", "autoregressive"))
    done.expect(chen["modelled"] and chen["collectives"]["total"] == total, f"the machine's interconnect is {chen}")
    done.expect(chen["model"]["overhead_seconds"] > 0 and chen["model"]["source"], "the model's parameters are missing")
    done.expect(native == {"name": "native", "modelled": False, "model": None, "collectives": None}, f"native is {native}")
    names = [c["interconnect"]["name"] for c in report["comparisons"]]
    done.expect(names == ["tpu-v4-chen", "native"], f"the comparisons are of {names}")
    done.expect(report["comparison"] == report["comparisons"][0], "comparison is not the first one")
    done.expect(all(c["identical"] is True for c in report["comparisons"]), "the methods' texts differ")
    heading = [line.split() for line in done.err.splitlines() if line.split()[:1] == ["modelled"]]
    done.expect(heading == [["modelled", "tpu-v4-chen"] * 2 + ["native"] * 2], f"the columns are headed {heading}")
    for label in ("Interconnect modelled tpu-v4-chen, on top of the ", "decoding, modelled tpu-v4-chen, mean of", "decoding, native, mean of",
                  "Speed-up, modelled tpu-v4-chen: ", "Speed-up, native: "):
        done.expect(label in done.err, f"the report has no {label!r}")


def a_trace_says_so(options):
    with tempfile.TemporaryDirectory() as directory:
        run(options, *GREEDY, interconnect="[native, tpu-v4-chen]", more=["--trace", directory])
        trace = job.load(os.path.join(directory, "trace.json"))
    about = trace["otherData"]["program"]
    if about != "specdec_dist (interconnect: native, modelled tpu-v4-chen)":
        raise job.Failed(f"the trace calls itself {about!r}")
    spans = [event for event in trace["traceEvents"] if event["name"] == "modelled interconnect 1"]
    # On rank 0: two methods for warm-up and for each of two prompts.
    if len(spans) != 6:
        raise job.Failed(f"{len(spans)} stretches of the trace are modelled")


def nothing_is_faster_than_its_model(options):
    """A lower bound that the model promises on any machine: two all-reduces a layer and pass."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "slow.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(SLOW)
        done, runs = run(options, *GREEDY, interconnect=path, tokens=4)
    done.expect({name for name, _ in runs} == {"slow"}, f"the runs are {set(runs)}")
    for (_, method), a_run in runs.items():
        metrics = a_run["metrics"]
        a_loop = metrics["split"]["score_all_reduce"]["seconds"] / metrics["loops"]
        done.expect(a_loop >= 2 * LAYERS * SLOW_SECONDS * 0.999, f"{method}: the all-reduces of a loop took {a_loop} s")
        prefill = min(output["prefill_ms"] for output in a_run["outputs"]) / 1e3
        done.expect(prefill >= 2 * LAYERS * SLOW_SECONDS * 0.999, f"{method}: the prefill took {prefill} s: it is modelled too")


CASES = {case.__name__: case for case in (
    greedy_tokens_are_the_native_ones, sampled_tokens_are_the_native_ones, on_every_transport, one_rank_waits_for_nobody, both_side_by_side,
    a_trace_says_so, nothing_is_faster_than_its_model)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
