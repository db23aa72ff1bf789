#!/usr/bin/env python3
"""A small study as a user runs it: killed and gone on with, with jobs that fail, and its report.

    study_test.py [CASE ...] --program build/.../specdec_study --ranks 2
"""

import collections
import csv
import json
import os
import signal
import subprocess
import tempfile

import job

SMALL = """
config: {config}
set: {{decode.max_new_tokens: 12{set}}}
ranks: [1, 2]
k: [0, 3]
interconnect: [native, tpu-v4-chen]
all_reduce_bytes: 1K,4K
repeats: 2
timeout: 90
published: chen-humaneval
launcher: {launcher}
{more}"""
# What makes a report draw all that it can.
ALL_KINDS = """
hardware: h100x8
placement: [rank0, sharded]
methods:
  nucleus: {}
  optimal: {decode.k: 4, decode.draft_length: optimal}
"""
# As the program looks for one that has matplotlib.
PYTHONS = [*filter(None, [os.environ.get("SPECDEC_PYTHON")]), "python3", "/usr/bin/python3"]
CONFIG = os.path.join(job.ROOT, "configs", "chinchilla-like-native.yaml")


class Study:
    def __init__(self, options, directory, **changes):
        self.program = options.program
        self.out = os.path.join(directory, "out")
        self.file = os.path.join(directory, "small.yaml")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(SMALL.format(**{"config": CONFIG, "launcher": f"{options.mpirun} -np {{ranks}}", "set": "", "more": "", **changes}))

    def words(self, *more):
        return [self.program, "--config", self.file, "--out", self.out, *more]

    def run(self, *more):
        return subprocess.run(self.words(*more), capture_output=True, text=True, timeout=6 * job.LIMIT, check=False)

    def rows(self):
        with open(os.path.join(self.out, "results.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def text(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return file.read()


def expect(condition, what):
    if not condition:
        raise job.Failed(what)


def jobs_of(rows):
    return sorted((row["label"], row["repeat"]) for row in rows if row["status"] == "ok")


def a_killed_study_goes_on_where_it_was(options):
    with tempfile.TemporaryDirectory() as directory:
        study = Study(options, directory)
        plan = study.run("--plan")
        expect(plan.returncode == 0 and "10 points, 18 jobs, 0 done" in plan.stdout, f"the plan is {plan.stdout}{plan.stderr}")
        expect("Estimated time of the 18 jobs" in plan.stdout and "a guess" in plan.stdout, f"the plan is {plan.stdout}")
        with subprocess.Popen(study.words(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as killed:
            results = os.path.join(study.out, "results.jsonl")
            expect(job.until(lambda: os.path.exists(results) and len(study.text("results.jsonl").splitlines()) >= 3), "no job ends")
            killed.send_signal(signal.SIGKILL)
        before = study.rows()
        plan = study.run("--plan")
        expect(f"18 jobs, {len(before)} done" in plan.stdout and "Estimated time" in plan.stdout, f"the plan is {plan.stdout}")
        for stop in (signal.SIGTERM, signal.SIGINT):  # of a batch system whose time is over, and of a user
            ran = len(study.text("results.jsonl").splitlines())
            with subprocess.Popen(study.words(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopped:
                expect(job.until(lambda already=ran: len(study.text("results.jsonl").splitlines()) > already), "it does not go on")
                stopped.send_signal(stop)
                out, err = stopped.communicate(timeout=job.LIMIT)
            expect(stopped.returncode == 128 + stop and "goes on where it was" in err, f"{stop.name}: {stopped.returncode}, {err}")
            expect("not run" in out, f"{stop.name}: what has run is not reported")
            expect(os.path.exists(os.path.join(study.out, "report.html")), f"{stop.name}: there is no report of what has run")
            os.remove(os.path.join(study.out, "report.html"))
        done = study.run()
        expect(done.returncode == 0, f"{done.returncode}: {done.stderr}")
        rows = study.rows()
        expect(len(jobs_of(rows)) == len(set(jobs_of(rows))) == 18, f"jobs: {jobs_of(rows)}")
        expect(rows[:len(before)] == before, "finished jobs were touched")

        whole = Study(options, os.path.join(directory), launcher=f"{options.mpirun} -np {{ranks}}")
        whole.out = os.path.join(directory, "whole")
        expect(whole.run().returncode == 0, "a study in one go fails")
        expect(jobs_of(whole.rows()) == jobs_of(rows), "its points are others")
        points = json.loads(study.text("study.json"))["points"], json.loads(whole.text("study.json"))["points"]
        for one, other in zip(*points):
            for key in ("label", "kind", "tokens", "alpha", "tokens_per_loop", "finished"):
                expect(one[key] == other[key], f"{one['label']}: {key} is {one[key]} and {other[key]}")


def the_report_comes_out(options):
    with tempfile.TemporaryDirectory() as directory:
        study = Study(options, directory, set=", acceptance: synthetic, synthetic.alpha: 0.8", more=ALL_KINDS)
        label = "acceptance: synthetic (alpha 0.8)"
        expect(f", and not what models say: {label}" in study.run("--plan").stdout, "the plan does not say what is forced")
        done = study.run()
        expect(done.returncode == 0 and done.stderr == "", f"{done.returncode}: {done.stderr}")
        expect(done.stdout == study.text("summary.md"), "the text is not the summary")
        expect({row["forced"] for row in study.rows() if row["kind"] == "run"} == {label}, "the results do not say what is forced")
        with open(os.path.join(study.out, "points.csv"), encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        expect(len(table) >= 16 and all(float(row["ms_per_token"]) > 0 for row in table), f"the CSV is {table}")
        expect(all("synthetic (alpha 0.8)" in row["forced"] for row in table), "the CSV does not say what is forced")
        expect(all(float(row["theorem_3_8_speedup"]) > 0 for row in table if row["k"] == "3"), "theorem 3.8 is missing")
        expect({row["kind"] for row in table} == {"measured", "measured under a modelled interconnect"}, "kinds are not told apart")
        page = study.text("report.html")
        expect(page.count("<svg") >= 25 and page.count("<svg") == page.count("</svg>"), f"{page.count('<svg')} pictures")
        for part in ("measured under a modelled interconnect", "Chen et al. 2023, figure 1, HumanEval", "XSum, greedy", "predicted of their machine: at alpha", "the row contradicts itself", "Where speculation pays", "All-reduce",
                     "Where a loop's time goes", "Percentiles of a token", "Predicted against measured", "K adapts: optimal", "their machine", "tpu-v4x16",
                     "acceptance: synthetic (alpha 0.8)", "theorem 3.11", "sharded", "chinchilla-like-native.yaml", "specdec_dist 0."):
            expect(part in page, f"the report has no {part!r}")
        for row in table:
            expect(f"{float(row['ms_per_token']):.3f}" in page, f"the report has no {row['ms_per_token']} ms a token")
        for outside in ("http:", "src=", "<link", "@import"):
            expect(outside not in page.replace("http://www.w3.org", ""), f"the report needs {outside!r}")
        expect(os.listdir(os.path.join(study.out, "jobs")) == [], "files of jobs are left")
        again = study.run("--report")
        expect(again.returncode == 0 and again.stdout == done.stdout, "--report says something else")
        adaptive = json.loads(study.text("study.json"))
        adapting = [point for point in adaptive["points"] if point["method"] == "optimal"]
        expect(adapting and all(point["undisturbed_ms_per_token"] is None for point in adapting), "loops of many lengths have a time undisturbed")
        for point in adaptive["points"]:
            if point["k"] > 0:
                point["undisturbed_ms_per_token"] = point["predicted"] = None
        with open(os.path.join(directory, "study.json"), "w", encoding="utf-8") as file:
            json.dump(adaptive, file)
        script = [os.path.join(job.ROOT, "launch", "report", "study_report.py"), directory]
        drawn = any(subprocess.run([python, *script], capture_output=True, timeout=job.LIMIT, check=False).returncode == 0 for python in PYTHONS)
        expect(drawn, "a study whose points all adapt has no report")
        with open(os.path.join(directory, "report.html"), encoding="utf-8") as file:
            expect("nothing here to lay beside it" in file.read(), "the report does not say that nothing stands beside the paper")


def script(directory, name, text):
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def failures_are_rows(options):
    with tempfile.TemporaryDirectory() as directory:
        launcher = script(directory, "launch.sh",
                          f'ranks=$1; shift\n[ "$ranks" = 2 ] && {{ echo "no such host" >&2; exit 3; }}\nexec {options.mpirun} -np "$ranks" "$@"\n')
        study = Study(options, directory, launcher=f"{launcher} {{ranks}}", set=", acceptance: synthetic, synthetic.alpha: 0.8")
        done = study.run()
        expect(done.returncode == 1, f"the code is {done.returncode}: {done.stderr}")
        failed = [row for row in study.rows() if row["status"] == "failed"]
        expect(len(failed) == 10 and all(row["error"] == "exit code 3: no such host" for row in failed), f"failed: {failed}")
        expect(all("alpha 0.8" in row["forced"] for row in failed if row["kind"] == "run"), "jobs that failed do not say what was forced")
        expect("no such host" in done.stdout and "no such host" in study.text("report.html"), "the report does not say so")
        expect(len([row for row in study.rows() if row["status"] == "ok"]) == 8, "the others did not run")

        slow = Study(options, directory, launcher=script(directory, "sleep.sh", "exec sleep 600\n") + " {ranks}")
        slow.out = os.path.join(directory, "slow")
        with open(slow.file, encoding="utf-8") as file:
            text = file.read().replace("timeout: 90", "timeout: 1").replace("repeats: 2", "repeats: 1").replace("ranks: [1, 2]", "ranks: [1]")
        with open(slow.file, "w", encoding="utf-8") as file:
            file.write(text)
        done = slow.run()
        expect(done.returncode == 1 and [row["status"] for row in slow.rows()] == ["timeout"] * 4, f"{done.returncode}: {slow.rows()}")
        expect("took longer than 1 s (timeout)" in slow.text("report.html"), "the report does not say so")


def this_machine_is_described(options):
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "here")
        forced = os.path.join(directory, "forced.yaml")
        with open(CONFIG, encoding="utf-8") as config, open(forced, "w", encoding="utf-8") as file:
            file.write(config.read() + "\nacceptance: synthetic\nsynthetic.alpha: 0.8\n")
        done = subprocess.run([options.program, "--calibrate", "1,2", "--repeats", "1", "--config", forced, "--out", out, "--launcher", f"{options.mpirun} -np {{ranks}}"],
                              capture_output=True, text=True, timeout=6 * job.LIMIT, check=False)
        expect(done.returncode == 0, f"{done.returncode}: {done.stderr}")
        with open(f"{out}.jobs/results.jsonl", encoding="utf-8") as file:
            kinds = collections.Counter(json.loads(line)["kind"] for line in file)
        expect(kinds == {"run": 4 * 3, "passes": 1, "link": 1}, f"jobs of one repetition: {kinds}")
        for ranks in (1, 2):
            file = f"{out}-{ranks}.yaml"
            predicted = subprocess.run([options.program, "--predict", "--hardware", file, "--config", CONFIG, "--alpha", "0.8"],
                                       capture_output=True, text=True, timeout=job.LIMIT, check=False)
            expect(predicted.returncode == 0 and "cpu (" in predicted.stdout, f"{file} is not taken: {predicted.stderr}")
            expect("acceptance: synthetic (alpha 0.8)" in predicted.stdout, f"{file} does not say what was forced")


CASES = {case.__name__: case for case in (a_killed_study_goes_on_where_it_was, the_report_comes_out, failures_are_rows, this_machine_is_described)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
