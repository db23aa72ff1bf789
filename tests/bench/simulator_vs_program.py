#!/usr/bin/env python3
"""Percentiles of a loop, of the simulator and of the real program, under one modelled interconnect with jitter.

    simulator_vs_program.py [--ranks 2] [--k 0,4] [--latency-us 4000] [--tokens 256] [--repeats 2] [--json F]   (after `source build/release/env.sh`)

The machine is calibrated first (specdec_study --calibrate), so nothing of the real jobs that are compared goes into the simulation but their acceptance rate. An all-reduce is
modelled to take much longer than a real one, and what is left of the machine's own turns shows in the column "late": collectives that took longer than modelled.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

INTERCONNECT = """source: an example with jitter
ranks: 16
algorithm: one-shot
latency_us: {latency}
bandwidth_GBps: 100
jitter:
  sigma: 0.3
  tail_probability: 0.01
  tail_mean_us: {tail}
"""
PERCENTILES = ("p50", "p90", "p99")


def run(words, directory):
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")


def load(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def real(options, directory, k, repeat):
    run(["mpirun", "-np", str(options.ranks), "specdec_dist", "--config", options.config, "--no-stream", "--quiet", "--json", "real.json",
         "--set", "interconnect=./jitter.yaml", "--set", "compare=false", "--set", f"decode.k={k}", "--set", f"decode.seed={repeat}",
         "--set", "decode.method=" + ("speculative" if k else "autoregressive"), "--set", f"decode.max_new_tokens={options.tokens}"], directory)
    return load(directory, "real.json")["runs"][0]


def simulated(options, directory, k, alpha, context):
    run(["specdec_study", "--predict", "--config", options.config, "--hardware", "./jittered.yaml", "--alpha", str(alpha), "--k", str(k),
         "--context", str(context), "--simulate", "100000", "--json", "simulated.json"], directory)
    return load(directory, "simulated.json")["rows"][0]["simulated"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="chinchilla-like-native.yaml")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--k", default="0,4", help="drafted tokens a loop, one table line each")
    parser.add_argument("--latency-us", type=float, default=4000)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2, help="jobs of each K")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "jitter.yaml"), "w", encoding="utf-8") as file:
            file.write(INTERCONNECT.format(latency=options.latency_us, tail=2 * options.latency_us))
        run(["specdec_study", "--calibrate", str(options.ranks), "--config", options.config, "--out", "here"], directory)
        with open(os.path.join(directory, f"here-{options.ranks}.yaml"), encoding="utf-8") as file:
            hardware = re.sub(r"interconnect: .*", "interconnect: jitter.yaml", file.read())
        with open(os.path.join(directory, "jittered.yaml"), "w", encoding="utf-8") as file:
            file.write(hardware)
        for k in map(int, options.k.split(",")):
            jobs = [real(options, directory, k, repeat) for repeat in range(options.repeats)]
            loops = sum(job["metrics"]["loops"] for job in jobs)
            alpha = jobs[0]["metrics"]["acceptance_rate"] or 0
            tokens = [len(output["prompt_ids"]) + len(output["token_ids"]) / 2 for output in jobs[0]["outputs"]]
            found = simulated(options, directory, k, alpha, round(sum(tokens) / len(tokens)))
            for name in PERCENTILES:
                ours = sum(job["metrics"]["loop_ms"][name] * job["metrics"]["loops"] for job in jobs) / loops
                rows.append({"k": k, "loops": loops, "percentile": name, "real_ms": ours, "simulated_ms": found[f"loop_{name}_ms"],
                             "late": sum(job["collectives"]["late"] for job in jobs) / sum(job["collectives"]["total"] for job in jobs)})
    print(f"{options.ranks} ranks, {options.latency_us:g} us an all-reduce, sigma 0.3, 1 % of all later by {2 * options.latency_us:g} us in the mean\n")
    print(f"{'K':>3} {'loops':>7} {'':>5} {'real, ms':>10} {'simulated':>10} {'error':>8} {'late':>8}")
    for row in rows:
        error = row["simulated_ms"] / row["real_ms"] - 1
        print(f"{row['k']:>3} {row['loops']:>7} {row['percentile'].upper():>5} {row['real_ms']:>10.2f} {row['simulated_ms']:>10.2f} {100 * error:>+7.1f} % {100 * row['late']:>6.1f} %")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"latency_us": options.latency_us, "ranks": options.ranks, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
