#!/usr/bin/env python3
"""Percentiles of a loop, of the simulator and of the real program, under one modelled interconnect with jitter.

    simulator_vs_program.py [--ranks 2] [--k 0,4] [--latency-us 900] [--tokens 256] [--repeats 3] [--json F]   (after `source build/release/env.sh`)

What is asked is how the jitter of many collectives adds up in a loop. So what the ranks compute between them is given to the simulator as the mean of the very jobs that it
is compared with (weights leave the caches of a machine that mostly waits: a calibration of jobs that do not wait says too little), and an all-reduce is modelled to take
many times what a real one does. The machine's own disturbances are not in the simulation; "without" are the same percentiles of jobs whose interconnect has no jitter,
over their P50: what of the error at P90 and P99 is the machine's.
"""

import argparse
import json
import math
import os
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
HARDWARE = """source: the compute of jobs
ranks: {ranks}
read_GBps: 1000000
rows_cost: [1]
cache: {{MB: 0.001, read_GBps: 1000000}}
pass_us: {score}
drafted_us: {drafted}
loop_us: {rest}
interconnect: ./jitter.yaml
"""
PERCENTILES = ("p50", "p90", "p99")


def run(words, directory):
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")


def load(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def jobs_of(options, directory, k, interconnect):
    jobs = []
    for repeat in range(options.repeats):
        run(["mpirun", "-np", str(options.ranks), "specdec_dist", "--config", options.config, "--no-stream", "--quiet", "--json", "real.json",
             *sets(f"interconnect=./{interconnect}.yaml", "compare=false", f"decode.k={k}", f"decode.seed={repeat}",
                   "decode.method=" + ("speculative" if k else "autoregressive"), f"decode.max_new_tokens={options.tokens}")], directory)
        jobs.append(load(directory, "real.json")["runs"][0])
    return jobs


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
    """The mean over jobs, by loops."""
    return sum(job["metrics"]["loop_ms"][name] * job["metrics"]["loops"] for job in jobs) / total(jobs, "loops")


def simulated(options, directory, k, jobs):
    loops = total(jobs, "loops")
    us = {part: 1e6 * total(jobs, "split", part, "seconds") / loops for part in ("draft", "score_compute", "decide", "rest")}
    drafted = total(jobs, "drafted") / loops
    gather = options.latency_us * mean_of_jitter(options)
    with open(os.path.join(directory, "here.yaml"), "w", encoding="utf-8") as file:
        # A pass of the draft costs drafted_us alone: pass_us would count for it too.
        file.write(HARDWARE.format(ranks=options.ranks, score=0, drafted=us["draft"] / drafted if k else 0,
                                   rest=us["score_compute"] + max(us["decide"] - gather, 0) + us["rest"]))
    run(["specdec_study", "--predict", "--config", options.config, "--hardware", "./here.yaml", "--alpha", "0.8", "--k", str(k),
         "--simulate", "100000", "--json", "simulated.json"], directory)
    return load(directory, "simulated.json")["rows"][0]["simulated"]


def mean_of_jitter(options):
    """Of what a collective takes, over its latency: lognormal, and a tail."""
    return math.exp(0.3 ** 2 / 2) + 0.01 * 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="chinchilla-like-native.yaml")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--k", default="0,4", help="drafted tokens a loop, one table line each")
    parser.add_argument("--latency-us", type=float, default=900)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3, help="jobs of each K")
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
            steady = jobs_of(options, directory, k, "steady")
            jobs = jobs_of(options, directory, k, "jitter")
            found = simulated(options, directory, k, jobs)
            for name in PERCENTILES:
                rows.append({"k": k, "loops": total(jobs, "loops"), "percentile": name, "real_ms": percentile(jobs, name),
                             "simulated_ms": found[f"loop_{name}_ms"], "without_jitter": percentile(steady, name) / percentile(steady, "p50")})
    print(f"{options.ranks} ranks, {options.latency_us:g} us an all-reduce, sigma 0.3, 1 % of all later by {2 * options.latency_us:g} us in the mean\n")
    print(f"{'K':>3} {'loops':>7} {'':>5} {'real, ms':>10} {'simulated':>10} {'error':>8} {'without':>12}")
    for row in rows:
        error = row["simulated_ms"] / row["real_ms"] - 1
        print(f"{row['k']:>3} {row['loops']:>7} {row['percentile'].upper():>5} {row['real_ms']:>10.2f} {row['simulated_ms']:>10.2f} {100 * error:>+7.1f} % {row['without_jitter']:>12.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"latency_us": options.latency_us, "ranks": options.ranks, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
