#!/usr/bin/env python3
"""Runs allreduce_bench with small sizes and checks what it prints and writes, never how fast it was.

    allreduce_bench_test.py [CASE ...] --program build/.../allreduce_bench [--ranks N]
"""

import csv
import os
import signal
import tempfile

import job

# What users of the JSON and the CSV rely on.
FIELDS = ("transport", "ranks", "bytes", "dtype", "p50_us", "p90_us", "p99_us", "max_us", "mean_us", "algbw_GBps", "busbw_GBps",
          "wrong")
BASELINE = "MPI_Allreduce"
FEW = ["--iterations", "6", "--warmup", "1"]


class Bench:
    """A run that has ended, with its files."""

    def __init__(self, options, arguments, directory):
        table = os.path.join(directory, "out.csv")
        self.run = job.reported(options, options.ranks, [*arguments, "--csv", table])
        self.expect(self.run.err == "", "it is not quiet in a pipe")
        self.report = self.run.report
        with open(table, encoding="utf-8", newline="") as file:
            self.table = list(csv.DictReader(file))
        self.rows = self.report["rows"]

    def expect(self, holds, why):
        self.run.expect(holds, why)


def bench(options, *arguments):
    with tempfile.TemporaryDirectory() as directory:
        return Bench(options, arguments, directory)


def close(a, b):
    return abs(a - b) <= 1e-4 * max(abs(a), abs(b))


def check_rows(done, ranks):
    """What holds of every row."""
    done.expect(done.rows, "there are no rows")
    done.expect(len(done.table) == len(done.rows), "CSV and JSON differ in rows")
    for row, line in zip(done.rows, done.table):
        for field in FIELDS:
            done.expect(field in row and field in line, f"no field {field}")
        for field, value in row.items():
            same = line[field] == "" if value is None else line[field] == value if isinstance(value, str) else close(float(line[field]), value)
            done.expect(same, f"{field} is {value!r} in JSON, {line[field]!r} in CSV")
        done.expect(row["ranks"] == ranks, f"ranks is {row['ranks']}")
        done.expect(row["wrong"] == 0, f"{row['wrong']} elements were wrong: {row}")
        done.expect(0 < row["p50_us"] <= row["p90_us"] <= row["p99_us"] <= row["max_us"], f"percentiles out of order: {row}")
        done.expect(0 < row["mean_us"] <= row["max_us"], f"the mean is above the maximum: {row}")
        if row["what"] == "all_reduce":
            done.expect(close(row["algbw_GBps"], row["bytes"] / row["p50_us"] / 1e3), f"algbw is not bytes / time: {row}")
            done.expect(close(row["busbw_GBps"], row["algbw_GBps"] * 2 * (ranks - 1) / ranks), f"busbw: {row}")
        else:
            done.expect(row["algbw_GBps"] is None, f"a bandwidth of no single all-reduce: {row}")


def sizes_types_and_transports(options):
    ranks = max(options.ranks, 1)
    done = bench(options, "--bytes", "1K..4K,40", "--dtype", "fp32,bf16", "--transport", "auto,mpi,mpi-fast", *FEW)
    check_rows(done, ranks)
    auto = "shm" if ranks > 1 else "self"
    found = {(row["transport"], row["bytes"], row["dtype"]) for row in done.rows}
    expected = {(t, b, d) for t in (BASELINE, auto, "mpi", "mpi-fast") for b in (40, 1024, 2048, 4096) for d in ("fp32", "bf16")}
    done.expect(found == expected and len(done.rows) == len(expected), f"the rows are {sorted(found)}")
    for row in done.rows:
        done.expect(row["iterations"] == 6 and row["interconnect"] == "native", f"not as asked: {row}")
        done.expect(row["transport"] != BASELINE or row["over_mpi"] == 1, f"the baseline's ratio to itself: {row}")
        done.expect(row["over_mpi"] > 0, f"no ratio: {row}")
    library = {row["operation"] for row in done.rows if row["transport"] == BASELINE and row["dtype"] == "bf16"}
    done.expect(len(library) == 1 and "UINT16" in library.pop(), "it is not said how MPI adds bf16")


def header(options):
    ranks = max(options.ranks, 1)
    done = bench(options, "--bytes", "64", *FEW)
    report = done.report
    done.expect(report["error"] is None, "there is an error")
    done.expect(report["interconnect"] == {"kind": "native"}, "the interconnect is not native")
    done.expect("allreduce_bench" in report["program"] and "mpi: " in report["program"], "versions are missing")
    done.expect("commit" in report, "the commit is missing")
    done.expect([place["rank"] for place in report["ranks"]] == list(range(ranks)), "not every rank has a place")
    for place in report["ranks"]:
        done.expect(place["host"] == os.uname().nodename and os.uname().release in place["kernel"], f"{place}")
        done.expect(place["cpu"] and place["cores"] and 0 < place["core_count"] <= place["host_cores"], f"{place}")
    text = done.run.out.decode()
    for part in ("# mpi: ", "# interconnect: native", "P50 us", "wrong", "/MPI", BASELINE):
        done.expect(part in text, f"the table does not contain {part!r}")


def shared_cores(options):
    """More ranks than cores: one core each, in turn, unless somebody else is to see to it."""
    cores = len(os.sched_getaffinity(0))
    for pin in ("auto", "none"):
        os.environ["SPECDEC_PIN"] = pin
        done = bench(options, "--bytes", "64", *FEW)
        places = [place["cores"] for place in done.report["ranks"]]
        if options.ranks > cores and pin == "auto":
            done.expect(len(set(places)) == cores and places == (places[:cores] * options.ranks)[:options.ranks], f"on cores {places}")
        else:
            done.expect(len(set(places)) == 1 and done.report["ranks"][0]["core_count"] == cores, f"on cores {places}, of {cores}")


def default_effort(options):
    done = bench(options, "--bytes", "256,1M", "--seconds", "0.02")
    check_rows(done, max(options.ranks, 1))
    for row in done.rows:
        done.expect(10 <= row["iterations"] <= 5000, f"iterations: {row}")


def rows_of_a_model(options):
    done = bench(options, "--d-model", "96", "--tokens", "1,5", "--dtype", "bf16,fp32", *FEW)
    check_rows(done, max(options.ranks, 1))
    found = {(row["tokens"], row["dtype"], row["bytes"]) for row in done.rows}
    done.expect(found == {(1, "bf16", 192), (5, "bf16", 960), (1, "fp32", 384), (5, "fp32", 1920)}, f"found {found}")


def decode(options):
    gap, layers, tokens = 200, 3, 4
    shape = f"layers={layers},d_model=64,vocab=100,gap_us={gap}"
    done = bench(options, "--decode", shape, "--tokens", "2", "--iterations", str(tokens), "--warmup", "1")
    check_rows(done, max(options.ranks, 1))
    for transport in {row["transport"] for row in done.rows}:
        rows = {row["what"]: row for row in done.rows if row["transport"] == transport}
        done.expect(set(rows) == {"token", "all_reduces", "all_reduce", "broadcast"}, f"rows of {transport}: {set(rows)}")
        done.expect(rows["token"]["p50_us"] >= 2 * layers * gap, "a token takes less than its gaps")
        done.expect(rows["token"]["gap_us"] >= gap, "a gap is shorter than asked for")
        done.expect(rows["token"]["iterations"] == tokens, "not so many tokens")
        done.expect(rows["all_reduce"]["iterations"] == 2 * layers * tokens, "not two all-reduces a layer")
        done.expect(rows["all_reduce"]["bytes"] == 2 * 64 * 4, "not two rows of d_model elements")
        done.expect(rows["token"]["max_us"] >= rows["all_reduces"]["max_us"] >= rows["all_reduce"]["max_us"], "parts above the whole")
    done.expect(shape in done.report["decode"], "the report does not name the shape")


def decode_a_shipped_model(options):
    done = bench(options, "--decode", os.path.join(options.assets, "manpy-0.5m"), "--iterations", "3", "--warmup", "1")
    check_rows(done, max(options.ranks, 1))


def modelled(options):
    with tempfile.TemporaryDirectory() as directory:
        wire = os.path.join(directory, "wire.yaml")
        with open(wire, "w", encoding="utf-8") as file:
            file.write("source: a test\nranks: 8\nalgorithm: tree\nlatency_us: 300\nbandwidth_GBps: 10\n")
        done = bench(options, "--bytes", "1K", "--interconnect", wire, *FEW)
    check_rows(done, options.ranks)
    done.expect(done.report["interconnect"] == {"kind": "modelled", "name": "wire", "source": "a test"}, "the header does not say so")
    for row in done.rows:
        if row["transport"] == BASELINE:
            done.expect(row["interconnect"] == "native" and row["modelled_us"] is None, f"the baseline is not plain: {row}")
        else:
            done.expect(row["interconnect"] == "modelled wire", f"not labelled: {row}")
            done.expect(row["p50_us"] >= row["modelled_us"] >= 600, f"faster than the model: {row}")
            done.expect(row["over_mpi"] is None, f"modelled over measured: {row}")
    text = done.run.out.decode()
    measured, _, rest = text.partition("\n# modelled wire\n")
    done.expect(BASELINE in measured and " shm " not in measured and " shm " in rest and BASELINE not in rest,
                "modelled and measured rows share a table")


def bad_input(options):
    cases = (
        (["--bytes", "1KB"], "--bytes", "'1KB'"), (["--json", "nowhere/out.json"], "--json", "nowhere/out.json"),
        (["--interconnect", "nowhere"], "--interconnect", "'nowhere'"), (["--bytes", "6"], "--bytes", "multiple of 4"),
        (["--csv", "nowhere/out.csv"], "--csv", "nowhere/out.csv"),
        (["--transport", "smh"], "--transport", "'shm'"), (["--transport", "nccl", "--decode", "layers=2,d_model=64"], "nccl", "--decode"), (["--dtype", "f16"], "--dtype", "'f16'"),
        (["--tokens", "1"], "--tokens", "--d-model"), (["--decode", "layers=1"], "--decode", "d_model"),
        (["--iteration", "1"], "'--iteration'", "'--iterations'"))
    # mpirun takes seconds to end a job that failed: with ranks only what fails in different places.
    for arguments, *named in cases if options.ranks == 0 else cases[:3]:
        done = job.run(options, options.ranks, arguments)
        lines = done.error_lines()
        done.expect(done.code == 2, "exit code is not 2")
        done.expect(len(lines) == 1, f"{len(lines)} lines say why, expected 1")
        for text in named:
            done.expect(text in lines[0], f"the line does not contain {text!r}")
        done.expect(done.out == b"", "something is on stdout")


def without_gpus(options):
    """In a build without CUDA or NCCL, and in one for them where no GPU is to be seen."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for transport in ("nccl", "nccl-fast", "ipc"):
        done = job.run(options, options.ranks, ["--bytes", "1K", "--transport", transport])
        lines = done.error_lines()
        done.expect(done.code == 2 and len(lines) == 1, f"exit code {done.code}, lines {lines}")
        done.expect(f"--transport: found {transport}" in lines[0], lines[0])
        done.expect(done.out == b"", "something is on stdout")


def expect_struck(options, strike, status):
    """A long run that is struck once it has begun to print rows."""
    run = job.reported(options, options.ranks, ["--bytes", ",".join(["4K"] * 500), "--seconds", "0.05"], strike,
                       when=lambda out: out.count(b"all_reduce ") >= 4)
    run.expect(len(run.report["rows"]) >= 4 and run.report["error"], "what was measured is not in the JSON")
    run.expect(run.report["status"] == status, f"the status is {run.report['status']!r}")


def lost_rank(options):
    expect_struck(options, lambda run: os.kill(run.ranks()[options.ranks - 1], signal.SIGKILL), "failed")


def interrupted(options):
    expect_struck(options, lambda run: run.process.send_signal(signal.SIGTERM), "interrupted")


CASES = {case.__name__: case for case in (sizes_types_and_transports, header, shared_cores, default_effort, rows_of_a_model, decode,
                                          decode_a_shipped_model, bad_input)}
TOGETHER = {case.__name__: case for case in (modelled, without_gpus, lost_rank, interrupted)}

if __name__ == "__main__":
    parsed = job.parse(__doc__)
    job.run_cases(parsed, {**CASES, **(TOGETHER if parsed.ranks > 1 else {})})
