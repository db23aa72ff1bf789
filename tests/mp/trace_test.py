#!/usr/bin/env python3
"""Reads the traces of real runs (docs/tracing.md) and holds them against the model's shape, the protocol and the report.

    trace_test.py [CASE ...] --program build/.../specdec_dist --ranks N
"""

import collections
import os
import signal
import tempfile

import job

COMPUTE, COMMUNICATION = 0, 1
TARGET, DRAFT = "manpy-2m", "manpy-0.5m"

Event = collections.namedtuple("Event", "name rank lane begin end args")  # begin and end in whole nanoseconds


def nanoseconds(microseconds):
    return round(microseconds * 1000)


def read(path):
    """(otherData, spans) of one file."""
    trace = job.load(path)
    spans = []
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            begin = nanoseconds(event["ts"])
            spans.append(Event(event["name"], event["pid"], event["tid"], begin, begin + nanoseconds(event["dur"]),
                               event.get("args", {})))
    return trace["otherData"], spans


def arguments(options, directory, *settings):
    return ["--target", os.path.join(options.assets, TARGET), "--draft", os.path.join(options.assets, DRAFT), "--trace", directory,
            *job.sets("decode.ignore_eos=true", *settings)]


def inside(spans, outer):
    return [s for s in spans if s.rank == outer.rank and outer.begin <= s.begin and s.end <= outer.end and s is not outer]


def check_nesting(run, spans):
    """On one lane two spans are apart, or one contains the other; in the file the outer one stands first."""
    lanes = collections.defaultdict(list)
    for span in spans:
        lanes[span.rank, span.lane].append(span)
    for lane in lanes.values():
        open_spans = []
        for span in lane:
            while open_spans and open_spans[-1].end <= span.begin and open_spans[-1].begin < span.begin:
                open_spans.pop()
            for outer in open_spans[-1:]:
                run.expect(outer.begin <= span.begin and span.end <= outer.end or span.begin >= outer.end,
                           f"{span} is neither in nor after {outer}")
            open_spans.append(span)


def check_round(run, spans, whole, shape):
    """One round of one rank; returns K."""
    found = inside(spans, whole)
    names = collections.Counter((s.lane, s.name) for s in found)

    def only(name, lane=COMPUTE):
        run.expect(names[lane, name] == 1, f"{names[lane, name]} times {name} in {whole}, expected once")
        return next(s for s in found if (s.lane, s.name) == (lane, name))

    only("broadcast", COMMUNICATION)
    only("commit")
    only("head")
    only("decide")
    score = only("score")
    rows = score.args["rows"]
    if whole.rank == 0:
        only("broadcast")
        draft = only("draft")
        run.expect(draft.args["tokens"] == rows - 1, f"{draft} before {score}")
        passes = [s for s in inside(spans, draft) if s.name == "draft pass"]
        run.expect(len(passes) == rows - 1, f"{len(passes)} draft passes for {rows - 1} tokens")
    else:
        only("wait for round")
    parts = inside(spans, score)
    for layer in range(shape["num_hidden_layers"]):
        span = next((s for s in parts if s.name == f"layer {layer}"), None)
        run.expect(span is not None, f"no layer {layer} in {score}")
        for name in ("attention", "mlp"):
            branch = [s for s in inside(spans, span) if s.name == name]
            run.expect(len(branch) == 1, f"{len(branch)} times {name} in {span}")
            reduced = [s for s in inside(spans, branch[0]) if s.name == "all_reduce"]
            run.expect(len(reduced) == 1, f"{len(reduced)} all-reduces in {branch[0]}")
            bytes_ = rows * shape["hidden_size"] * 4
            run.expect(reduced[0].args["bytes"] == bytes_, f"{reduced[0]}: expected {bytes_} bytes")
    total = sum(s.name == "all_reduce" for s in parts)
    run.expect(total == 2 * shape["num_hidden_layers"], f"{total} all-reduces in {score}")
    return rows - 1


def check_collectives(run, spans, ranks):
    """Of each kind all ranks have equally many, and nobody leaves one before all have come whom it needs."""
    for name in ("all_reduce", "all_gather", "broadcast"):
        per_rank = [[s for s in spans if s.rank == r and s.lane == COMMUNICATION and s.name == name] for r in range(ranks)]
        counts = {len(events) for events in per_rank}
        run.expect(len(counts) == 1, f"{name}: {counts} on different ranks")
        for events in zip(*per_rank):
            run.expect(len({e.args["bytes"] for e in events}) == 1, f"sizes differ: {events}")
            needed = events[:1] if name == "broadcast" else events
            last = max(needed, key=lambda e: e.begin)
            for event in events:
                run.expect(event.end >= last.begin, f"{event} ended before {last} began")
                if last.begin > event.begin:
                    waits = [s for s in spans if s.rank == event.rank and s.name == "wait" and s.begin == event.begin]
                    run.expect(len(waits) == 1 and waits[0].end == last.begin and waits[0].args["for_rank"] == last.rank,
                               f"{event} waited for {last}, found {waits}")


def check_report(run, spans, report):
    """Rank 0's spans add up to what the report says; both have the same readings of the clock, to the nanosecond."""
    warm_up = next(s for s in spans if s.name == "warm up")
    for part in report["runs"]:
        prompts = [s for s in spans if s.name == part["method"] and s.rank == 0 and not s.begin < warm_up.end]
        run.expect(len(prompts) == 2, f"{len(prompts)} spans {part['method']}, expected one a prompt")
        rounds = [s for p in prompts for s in inside(spans, p) if s.name.startswith("round ")]
        run.expect(len(rounds) == part["metrics"]["loops"], f"{len(rounds)} rounds, the report has {part['metrics']['loops']}")
        sums = collections.Counter()
        for whole in rounds:
            sums["total"] += whole.end - whole.begin
            for span in inside(spans, whole):
                if span.lane == COMPUTE and span.name in ("draft", "broadcast", "score", "decide"):
                    sums[span.name] += span.end - span.begin
                    if span.name == "score":
                        sums["score_all_reduce"] += sum(s.end - s.begin for s in inside(spans, span) if s.name == "all_reduce")
        sums["score_compute"] = sums["score"] - sums["score_all_reduce"]
        split = part["metrics"]["split"]
        for name in ("total", "draft", "broadcast", "score_compute", "score_all_reduce", "decide"):
            reported = round(split[name]["seconds"] * 1e9)
            run.expect(abs(reported - sums[name]) <= 1, f"{name}: {sums[name]} ns in the trace, {reported} in the report")


def check_all(run, spans, ranks, shape, report):
    check_nesting(run, spans)
    drafted = []
    for rank in range(ranks):
        own = [s for s in spans if s.rank == rank]
        drafted.append([check_round(run, own, whole, shape) for whole in own if whole.name.startswith("round ")])
        run.expect(drafted[rank] == drafted[0], "ranks saw different rounds")
    run.expect(4 in drafted[0] and 0 in drafted[0], f"expected rounds with and without drafts, found {drafted[0]}")
    check_collectives(run, spans, ranks)
    check_report(run, spans, report)


def expect_faults_are_found(run, spans, ranks, shape, report):
    """One fault at a time in a trace that is right: each must be found."""
    at = {}
    for i, span in enumerate(spans):
        at[span.rank, span.lane, span.name] = i  # the last one

    def planted(fault, index, **change):
        bad = list(spans)
        bad[index] = bad[index]._replace(**change)
        must_fail(fault, bad)

    def must_fail(fault, bad):
        try:
            check_all(run, bad, ranks, shape, report)
        except (job.Failed, StopIteration):
            return
        run.expect(False, f"nothing is said of {fault}")

    last = ranks - 1
    reduce = at[last, COMMUNICATION, "all_reduce"]
    planted("an all-reduce of half the bytes", reduce, args={"bytes": spans[reduce].args["bytes"] // 2})
    must_fail("an all-reduce that is missing", spans[:reduce] + spans[reduce + 1:])
    draft = at[0, COMPUTE, "draft"]
    planted("a draft that is 5 ns shorter than reported", draft, end=spans[draft].end - 5)
    layer = at[0, COMPUTE, "layer 0"]
    planted("a layer that ends after its pass", layer, end=spans[layer].end + 10**9)
    begins = {s.rank: s.begin for s in spans if s.lane == COMMUNICATION and s.name == "all_reduce"}
    shift = 10**7 + max(begins.values()) - min(begins.values())
    must_fail("a clock that is wrong", [s._replace(begin=s.begin + shift, end=s.end + shift) if s.rank == last else s for s in spans])


def complete(options):
    shape = job.load(os.path.join(options.assets, TARGET, "config.json"))
    with tempfile.TemporaryDirectory() as parent:
        directory = os.path.join(parent, "a", "trace")
        settings = ("decode.max_new_tokens=12", "compare=true", "decode.temperature=0")
        run = job.reported(options, options.ranks,
                           [*arguments(options, directory, *settings), "--prompt", "def f(n):\n", "--prompt", "class A:\n"])
        run.expect(sorted(os.listdir(directory)) == [f"rank{r}.json" for r in range(options.ranks)] + ["trace.json"],
                   f"found {os.listdir(directory)}")
        about, spans = read(os.path.join(directory, "trace.json"))
        run.expect(about["status"] == "ok" and about["size"] == options.ranks, f"found {about}")
        run.expect([r["rank"] for r in about["ranks"]] == list(range(options.ranks)), f"found {about}")
        run.expect(all(r["dropped"] == 0 and r["clock"]["start"] == {"offset_ns": 0, "uncertainty_ns": 0} for r in about["ranks"]),
                   f"one host has one clock: {about}")
        for rank in range(options.ranks):
            _, own = read(os.path.join(directory, f"rank{rank}.json"))
            run.expect(own == [s for s in spans if s.rank == rank], f"rank{rank}.json is not what the merged file has")
        check_all(run, spans, options.ranks, shape, run.report)
        expect_faults_are_found(run, spans, options.ranks, shape, run.report)


def struck(options, strike):
    """Strikes a job that has far more to do. Whatever happens, the files of all ranks are whole; {rank: its status}, without ranks whose file
    has no round."""
    with tempfile.TemporaryDirectory() as directory:
        with job.Job(options, options.ranks, [*arguments(options, directory, "decode.max_new_tokens=400", "compare=false"),
                                              *["--prompt", "def f(n):\n"] * 100]) as run:
            run.expect(run.read_until(lambda out: len(out) > 20), "ended before it was struck")
            strike(run)
            run.wait()
            run.expect(run.code != 0, "ended as if nothing had been")
            found = {}
            for rank in range(options.ranks):
                about, spans = read(os.path.join(directory, f"rank{rank}.json"))
                check_nesting(run, spans)
                if any(span.name.startswith("round ") for span in spans):
                    found[rank] = about["status"]
            return found


def expect_traces(options, strike, statuses):
    """Those in `statuses` {rank: its begin} hold the job up to the strike, in three of five jobs. Not in all: mpirun kills the ranks a second
    after the first has died, and where others use the machine that can be too little for what a rank has to write; such a file says
    "running". A rank that forgets to complete its file does so every time."""
    tried, good = [], 0
    while good < 3 and len(tried) - good < 3:
        tried.append(struck(options, strike))
        good += all(tried[-1].get(rank, "").startswith(begin) for rank, begin in statuses.items())
    if good < 3:
        raise job.Failed(f"expected {statuses} in 3 of 5 jobs, found {tried}")


def interrupted(options):
    expect_traces(options, lambda run: os.kill(run.ranks()[0], signal.SIGTERM), dict.fromkeys(range(options.ranks), "interrupted"))


def lost_rank(options):
    last = options.ranks - 1
    expect_traces(options, lambda run: os.kill(run.ranks()[last], signal.SIGKILL),
                  {0: f"rank {last} ", **dict.fromkeys(range(1, last), "rank 0 has ended the job")})


def unwritable(options):
    with tempfile.TemporaryDirectory() as parent:
        path = os.path.join(parent, "file")
        with open(path, "w", encoding="utf-8"):
            pass
        run = job.run(options, options.ranks, [*arguments(options, path), "--prompt", "x"])
        run.expect(run.code == 2 and run.out == b"", "expected exit code 2 and no text")
        run.expect(len(run.error_lines()) == 1 and f"--trace: '{path}" in run.error_lines()[0], "expected one line that names it")


def ranges_asked_for(options):
    """NVTX is in builds for GPUs; elsewhere, and for a word that is none, one line says so."""
    for word, line in (("yes", "SPECDEC_NVTX: found 'yes', expected 0 or 1"), ("1", "SPECDEC_NVTX: found 1, but this program was built without CUDA"),
                       ("0", None)):
        os.environ["SPECDEC_NVTX"] = word
        try:
            run = job.run(options, options.ranks, ["--target", os.path.join(options.assets, DRAFT), "--prompt", "x",
                                                   *job.sets("decode.max_new_tokens=4")])
        finally:
            del os.environ["SPECDEC_NVTX"]
        if line is None or (word == "1" and run.code == 0):
            run.expect(run.code == 0, "is refused")
        else:
            run.expect(run.code == 2 and len(run.error_lines()) == 1 and line in run.error_lines()[0], f"expected one line with {line!r}")


CASES = {case.__name__: case for case in (complete, interrupted, lost_rank, unwritable, ranges_asked_for)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
