#!/usr/bin/env python3
"""Runs specdec_dist on emulated hosts (launch/several-hosts.sh): the same text as on one, a host that is cut off, and nothing that stays.

    several_hosts_test.py [CASE | whole | lost ...] --program build/.../specdec_dist --hosts 2

A machine that cannot emulate hosts skips all of it (status 77). How ranks die on several hosts is lost_rank_test.py's, with --hosts.
"""

import argparse
import glob
import os
import random
import re
import signal
import subprocess
import time

import job

CONFIG = os.path.join(job.ROOT, "configs", "minimal.yaml")
SEED = time.time_ns() % 1000000
DICE = random.Random(SEED)  # when to strike
# Goes on for longer than any case looks at it.
ENDLESS = ["--quiet", "--set", "compare=false", "--set", "decode.max_new_tokens=900", "--set", "decode.ignore_eos=true",
           *["--prompt", "import os"] * 40]


def layout(options, hosts, ranks_a_host, *host_options):
    return argparse.Namespace(**{**vars(options), "hosts": hosts, "ranks": hosts * ranks_a_host, "host_options": list(host_options)})


def reported(options, *arguments, **strike):
    return job.reported(options, options.ranks, ["--config", CONFIG, *arguments], **strike)


def alone(options):
    """What one rank writes."""
    return job.reported(options, 0, ["--config", CONFIG])


def tokens(report):
    return [output["token_ids"] for run in report["runs"] for output in run["outputs"]]


def same_text(options):
    """Ranks dealt out over the hosts in turn count as neighbours again: MpiSession orders them by host."""
    expected = alone(options)
    for hosts, ranks_a_host, host_options, transport in (
            (1, 2, [], "shm"), (2, 1, [], "mpi"), (2, 2, [], "hier"), (4, 2, [], "hier"), (4, 2, ["--map-by", "node"], "hier"),
            (2, 3, [], "mpi"), (2, 2, ["--login"], "hier")):
        run = reported(layout(options, hosts, ranks_a_host, *host_options))
        run.expect(run.out == expected.out and tokens(run.report) == tokens(expected.report), "the text is not that of one rank")
        machine = run.report["machine"]
        run.expect(machine["transport"] == transport, f"the transport is {machine['transport']}, expected {transport}")
        names = [f"host{number}" for number in range(1, hosts + 1)]
        run.expect(machine["hosts"] == names, f"the hosts are {machine['hosts']}, expected {names}")


def transports(options):
    """Asked for by name: the same text, or a refusal where it does not suit the hosts."""
    expected = alone(options)
    for transport in ("mpi", "hier"):
        run = reported(layout(options, 2, 2), "--set", f"parallel.transport={transport}")
        run.expect(run.out == expected.out, "the text is not that of one rank")
        run.expect(run.report["machine"]["transport"] == transport, f"the transport is {run.report['machine']['transport']}")
    for ranks_a_host, transport, why in ((2, "shm", "found shm with ranks on 2 hosts"),
                                         (3, "hier", "found hier where neighbouring ranks are on different hosts")):
        asked = layout(options, 2, ranks_a_host)
        run = job.run(asked, asked.ranks, ["--config", CONFIG, "--set", f"parallel.transport={transport}"])
        lines = run.error_lines()
        run.expect(run.code == 2 and len(lines) == 1 and f"parallel.transport: {why}, expected" in lines[0], f"{transport} was not refused")


def placements(options):
    """The draft on rank 0's host, on all hosts, and alone on another one: the same text with one seed, greedy and sampled."""
    hosts = 2  # of one target rank each; with a third that drafts the target still has two
    for ways in ((), ("decode.temperature=0.8", "decode.top_p=0.95")):
        found = {}
        for placement in ("rank0", "replicated", "sharded", "dedicated"):
            dedicated = placement == "dedicated"
            run = reported(layout(options, hosts + dedicated, 1), *job.sets(f"placement={placement}", "compare=false", *ways))
            names = run.report["machine"]["hosts"]
            run.expect(len(names) == hosts + dedicated, f"the hosts are {names}")
            ahead = run.report["runs"][0]["metrics"]["drafted_ahead"]
            run.expect((ahead > 0) == dedicated, f"{ahead} loops were drafted ahead")
            found[placement] = run.out, tokens(run.report)
        assert all(of == found["rank0"] for of in found.values()), found


def conformance(options):
    """The battery of all transports, over links that are real between the hosts."""
    asked = job.with_program(layout(options, 2, 2, "--map-by", "node"), "mp_conformance")
    names = ":".join(f"InTheTree/Transport.{name}/hier" for name in ("Sums", "Moves", "OperationsInAnyOrder"))
    run = job.run(asked, asked.ranks, [f"--gtest_filter={names}"])
    run.expect(run.code == 0 and b"3 tests from 1 test suite ran" in run.out, "did not pass")


def cut_off(run, rank):
    """Takes the link of this rank's host down."""
    subprocess.run(["nsenter", "--net", "--target", str(run.ranks()[rank]), "ip", "link", "set", "eth0", "down"], check=True)


def disturb(options, strike, *arguments):
    """Strikes a run that has begun to write, and returns it with its report."""
    enough = DICE.randrange(1, 2000)
    return reported(options, *ENDLESS, *arguments, strike=strike, when=lambda out: len(out) >= enough)


def expect_cut_off(run, rank, host):
    lines = run.error_lines()
    run.expect(len(lines) == 1, f"{len(lines)} lines say why, expected 1")
    match = re.search(rf"error: rank {rank} on {host} has not answered for ([\d.]+) s .*round \d+, collective \d+", lines[0])
    run.expect(match, f"the line does not name a rank {rank} on {host}")
    run.expect(run.report["status"] in ("failed", "running"), f"the JSON's status is {run.report['status']!r}")
    return float(match[1])


def link_down(options):
    """The deadline ends the job."""
    run = disturb(layout(options, 2, 2), lambda run: cut_off(run, 2), "--set", "parallel.deadline=2")
    expect_cut_off(run, "[23]", "host2")
    run.expect(run.report["status"] == "failed", "the JSON does not say that it failed")


def link_down_before_the_deadline(options):
    """mpirun, whose keepalives are faster than the deadline, ends the job; it names the culprit all the same."""
    run = disturb(layout(options, 2, 2), lambda run: cut_off(run, 3), "--set", "parallel.deadline=600")
    age = expect_cut_off(run, "[23]", "host2")
    run.expect(age < 600 and run.report["status"] == "failed", "the job was not ended as by a failure")


def link_of_rank_0_down(options):
    """The JSON lies on the host that is cut off, but the user's terminal does not: a rank of the other host speaks."""
    for deadline in ("2", "600"):
        run = disturb(layout(options, 2, 2, "--login"), lambda run: cut_off(run, 0), "--set", f"parallel.deadline={deadline}")
        expect_cut_off(run, "0", "host1")


def culprit_is_named_by_its_rank_in_the_job(options):
    """Not by its place among the ranks in order of hosts."""
    run = disturb(layout(options, 2, 2, "--map-by", "node"), lambda run: os.kill(run.ranks()[1], signal.SIGKILL))
    lines = run.error_lines()
    run.expect(len(lines) == 1 and "rank 1 on host2 died" in lines[0], "rank 1 on host2 is not named")


def interface(options):
    """Control keeps to the interface that is named: over loopback no other host can be reached."""
    options = layout(options, 2, 2)
    for name, code, line in (
            ("eth0", 0, None), ("10.0.0.0/16", 0, None), ("eth7,eth0", 0, None),
            ("eth7", 2, r"error: SPECDEC_INTERFACE on host1: found eth7, expected .*: lo \(127.0.0.1\), eth0 \(10.0.0.2\)$"),
            ("lo", 3, r"error: watchdog: rank [23] cannot reach rank 0")):
        os.environ["SPECDEC_INTERFACE"] = name
        try:
            run = job.run(options, options.ranks, ["--config", CONFIG, "--quiet"])
        finally:
            del os.environ["SPECDEC_INTERFACE"]
        run.expect(run.code == code, f"SPECDEC_INTERFACE={name}: status {run.code}, expected {code}")
        run.expect(line is None or any(re.search(line, found) for found in run.error_lines()), f"no line matches {line!r}")
        run.expect(code != 2 or len(run.error_lines()) == 1, "bad input is told more than once")


def a_modelled_interconnect_is_refused(options):
    """It needs ranks that read one clock. The configuration is what is wrong, not a rank: one line, from rank 0."""
    options = layout(options, 2, 1)
    run = job.run(options, options.ranks, ["--config", CONFIG, "--set", "interconnect=[native, tpu-v4-chen]"])
    lines = run.error_lines()
    run.expect(run.code == 2 and len(lines) == 1, "not refused in one line")
    run.expect("interconnect" in lines[0] and "2 hosts" in lines[0], "the line does not say why")
    run.expect(run.out == b"", "something is on stdout")


def traces():
    """What a run could leave on the machine besides processes."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        mounts = sorted(line for line in file if "specdec" in line)
    return sorted(os.listdir("/sys/class/net")), glob.glob("/tmp/specdec-hosts.*"), mounts


def nothing_stays(options):
    """After Ctrl-C, SIGTERM, and SIGKILL, of which the next run removes the one empty directory."""
    options = layout(options, 2, 2)
    before = traces()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with job.Job(options, options.ranks, ["--config", CONFIG, *ENDLESS]) as run:
            run.expect(run.read_until(lambda out: len(out) > 0), "ended before it was struck")
            run.process.send_signal(number)
            run.wait()
            run.expect(run.code != 0 and run.error_lines() == [], "an interruption was reported as an error")
            if number != signal.SIGKILL:
                run.expect(traces() == before, f"left behind: {traces()}")
    run = job.run(options, options.ranks, ["--config", CONFIG, "--quiet"])
    run.expect(run.code == 0 and traces() == before, f"left behind: {traces()}")


def two_at_once(options):
    options = layout(options, 2, 2)
    expected = alone(options)
    with job.Job(options, 4, ["--config", CONFIG, "--quiet"]) as one, job.Job(options, 4, ["--config", CONFIG, "--quiet"]) as other:
        for run in (one, other):
            run.wait()
            run.expect(run.code == 0 and run.out == expected.out, "two runs at once disturb each other")


def command_line(options):
    """Of several-hosts.sh itself: the program's status comes through, and what is wrong is one line and status 2."""
    program = options.program
    for user, arguments, code, line in (
            ([], ["2", "sh", "-c", "exit 7"], 7, None),
            ([], [], 2, "no number of hosts"), ([], ["0", "true"], 2, "hosts: found '0', expected a number from 1 to"),
            ([], ["two", "true"], 2, "hosts: found 'two'"), ([], ["2"], 2, "no program"), ([], ["2", "--ranks"], 2, "--ranks: found ''"),
            ([], ["2", "--map-by", "core", "true"], 2, "--map-by: found 'core', expected slot or node"),
            ([], ["2", "--rank", "2", "true"], 2, "unknown option '--rank'"),
            ([], ["2", os.path.join(os.path.dirname(program), "absent")], 2, "found no program"),
            (["setpriv", "--reuid=65534", "--clear-groups"], ["2", "true"], 2, "needs root")):
        done = subprocess.run([*user, "bash", job.SEVERAL_HOSTS, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != code or (line is not None and (line not in done.stderr or done.stderr.count("\n") != 1)):
            raise job.Failed(f"several-hosts.sh {' '.join(arguments)}: status {done.returncode}, expected {code} and {line!r}\n{done.stderr}")


WHOLE = (same_text, transports, placements, conformance, interface, a_modelled_interconnect_is_refused, two_at_once, command_line)
# Those of which a link or a rank is lost in time, or that look for what is left on this machine: nothing else may run beside them.
LOST = (link_down, link_down_before_the_deadline, link_of_rank_0_down, culprit_is_named_by_its_rank_in_the_job, nothing_stays)
CASES = {case.__name__: case for case in WHOLE + LOST}
TOGETHER = {"whole": [case.__name__ for case in WHOLE], "lost": [case.__name__ for case in LOST]}

if __name__ == "__main__":
    given = job.parse(__doc__)
    print(f"seed {SEED}")
    given.cases = [case for name in given.cases for case in TOGETHER.get(name, [name])]
    job.run_cases(given, CASES)
