#!/usr/bin/env python3
"""Percentiles of a loop, of the simulator and of the real program, under one modelled interconnect with jitter.

    simulator_vs_program.py [--ranks 2] [--k 0,4] [--latency-us 300] [--loops 100] [--repeats 9] [--json F]   (after `source build/release/env.sh`)

What is asked is how the jitter of many collectives adds up in a loop. So the machine is described by jobs whose interconnect has no jitter: what a loop takes beside its
collectives, and how the machine itself disturbs it, as delays between two collectives that come with some probability and are exponential, the two figures for which the
simulator gives those jobs' own percentiles. Then it predicts the jobs whose interconnect has jitter, which come in turn with the others. A calibration of jobs that do not
wait would say too little: weights leave the caches of a machine that mostly waits. An all-reduce is modelled to take many times
what a real one does; ranks that have a core each wait for it awake (parallel/alarm.cpp): after a sleep a virtual core comes back now and then when it is too late. All K have as many loops, since a percentile is as good as their number.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

INTERCONNECT = """source: an example {name} jitter
ranks: 16
algorithm: one-shot
latency_us: {latency}
bandwidth_GBps: 100
"""
JITTER = """jitter:
  sigma: 0.3
  tail_probability: 0.01
  tail_mean_us: {tail}
"""
HARDWARE = """source: jobs without jitter
ranks: {ranks}
read_GBps: 1000000
rows_cost: [1]
cache: {{MB: 0.001, read_GBps: 1000000}}
drafted_us: {drafted}
loop_us: {rest}
jitter: {{sigma: 0, tail_probability: {probability}, tail_mean_us: {mean}}}
interconnect: ./{interconnect}.yaml
"""
PERCENTILES = ("p50", "p90", "p99")
ALPHA = 0.8  # of the shipped pair
STEPS = 14
FIT_LOOPS = 20000


def run(words, directory):
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")


def load(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def job_of(options, directory, k, interconnect, seed):
    tokens = round(options.loops * sum(ALPHA**i for i in range(k + 1)))  # Leviathan et al. 2023, eq. 1
    run(["mpirun", "-np", str(options.ranks), "specdec_dist", "--config", options.config, "--no-stream", "--quiet", "--json", "real.json",
         *sets(f"interconnect=./{interconnect}.yaml", "compare=false", f"decode.k={k}", f"decode.seed={seed}",
               "decode.method=" + ("speculative" if k else "autoregressive"), f"decode.max_new_tokens={tokens}")], directory)
    return load(directory, "real.json")["runs"][0]


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def total(jobs, *path):
    """Sum over jobs of one metric."""
    def at(job):
        for name in path:
            job = job[name]
        return job
    return sum(at(job["metrics"]) for job in jobs)


def percentile(jobs, name):
    """Of the job in the middle: one that the machine disturbed for its own reasons is not what is asked about."""
    return statistics.median(job["metrics"]["loop_ms"][name] for job in jobs)


def by_pairs(jobs, name):
    """Of the jobs with jitter, as far over that of those without as the pair in the middle is: a machine's minutes differ by more than what is asked about, and the two of a pair have the same one."""
    ratios = [with_it["metrics"]["loop_ms"][name] / without["metrics"]["loop_ms"][name] for with_it, without in zip(jobs["jitter"], jobs["steady"])]
    return statistics.median(ratios) * percentile(jobs["steady"], name)


class Simulator:
    """Of one K, described by jobs without jitter."""

    def __init__(self, options, directory, k, steady):
        self.options, self.directory, self.k = options, directory, k
        self.drafted_us = 1e6 * total(steady, "split", "draft", "seconds") / total(steady, "drafted") if k else 0
        self.rest_us = self.probability = self.mean_us = 0
        self.fit({name: percentile(steady, name) for name in PERCENTILES})

    def play(self, interconnect, loops):
        with open(os.path.join(self.directory, "here.yaml"), "w", encoding="utf-8") as file:
            # A pass of the draft costs drafted_us alone: pass_us would count for it too.
            file.write(HARDWARE.format(ranks=self.options.ranks, drafted=self.drafted_us, rest=self.rest_us, probability=self.probability,
                                       mean=self.mean_us, interconnect=interconnect))
        run(["specdec_study", "--predict", "--config", self.options.config, "--hardware", "./here.yaml", "--alpha", str(ALPHA), "--k", str(self.k),
             "--simulate", str(loops), "--json", "simulated.json"], self.directory)
        found = load(self.directory, "simulated.json")["rows"][0]["simulated"]
        return {name: found[f"loop_{name}_ms"] for name in PERCENTILES}

    def fit(self, wanted):
        """The delays by which P90 and P99 lie as far above P50 as wanted: the more often they come the nearer together, so their number is found by halves and their size by scale.
        So many that they alone would be longer than what a loop has beside its collectives are too many."""
        def over(found):
            return found["p90"] - found["p50"], found["p99"] - found["p50"]
        near, far = over(wanted)
        low, high = 1e-5, 1.0
        for _ in range(STEPS):
            self.probability = math.sqrt(low * high)
            self.mean_us = 1000.0
            found = over(self.play("steady", FIT_LOOPS))
            self.mean_us *= far / found[1] if found[1] > 0 else 1
            too_many = self.play("steady", FIT_LOOPS)["p50"] > wanted["p50"]
            if too_many or found[0] * far > near * found[1]:
                high = self.probability
            else:
                low = self.probability
        self.rest_us = max(1e3 * (wanted["p50"] - self.play("steady", FIT_LOOPS)["p50"]), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="chinchilla-like-native.yaml")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--k", default="0,4", help="drafted tokens a loop, one table line each")
    parser.add_argument("--latency-us", type=float, default=300)
    parser.add_argument("--loops", type=int, default=100, help="of a prompt, about")
    parser.add_argument("--repeats", type=int, default=9, help="jobs of each K without and with jitter")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for name in ("steady", "jitter"):
            with open(os.path.join(directory, f"{name}.yaml"), "w", encoding="utf-8") as file:
                file.write(INTERCONNECT.format(latency=options.latency_us, name="with" if name == "jitter" else "without"))
                if name == "jitter":
                    file.write(JITTER.format(tail=2 * options.latency_us))
        for k in map(int, options.k.split(",")):
            jobs = {"steady": [], "jitter": []}
            for repeat in range(options.repeats):
                for name in ("steady", "jitter") if repeat % 2 == 0 else ("jitter", "steady"):
                    jobs[name].append(job_of(options, directory, k, name, repeat))
            machine = Simulator(options, directory, k, jobs["steady"])
            found = machine.play("jitter", 100000)
            of_steady = machine.play("steady", 100000)
            for name in PERCENTILES:
                rows.append({"k": k, "loops": total(jobs["jitter"], "loops"), "percentile": name, "real_ms": by_pairs(jobs, name), "median_job_ms": percentile(jobs["jitter"], name),
                             "simulated_ms": found[name], "steady_ms": percentile(jobs["steady"], name), "fitted_ms": of_steady[name],
                             "delays": {"probability": machine.probability, "mean_us": machine.mean_us}})
    print(f"{options.ranks} ranks, {options.latency_us:g} us an all-reduce, sigma 0.3, 1 % of all later by {2 * options.latency_us:g} us in the mean\n")
    print(f"{'K':>3} {'loops':>7} {'':>5} {'real, ms':>10} {'simulated':>10} {'error':>8} {'without jitter':>16} {'fitted':>8}")
    for row in rows:
        error = row["simulated_ms"] / row["real_ms"] - 1
        print(f"{row['k']:>3} {row['loops']:>7} {row['percentile'].upper():>5} {row['real_ms']:>10.2f} {row['simulated_ms']:>10.2f} {100 * error:>+7.1f} % "
              f"{row['steady_ms']:>14.2f} {row['fitted_ms']:>8.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"latency_us": options.latency_us, "ranks": options.ranks, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
