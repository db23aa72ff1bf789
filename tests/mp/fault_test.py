#!/usr/bin/env python3
"""Kills, stops and breaks ranks of a running job and checks how it ends (docs/protocol.md, "How a job ends").

    fault_test.py CASE --job build/.../fault_job --mpirun mpirun [--ranks N] [--transport T]

Checks in every case: mpirun ends in time by itself with a non-zero status, exactly one line says why and names the culprit, what the
program registered for a failure was run once, and no process is left.
"""

import argparse
import os
import random
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time

DEADLINE = 2.0  # seconds, of the job
# Margins for a loaded machine: start of mpirun, its second of grace, and scheduling.
START_LIMIT = 60.0
END_MARGIN = 20.0


class Job:
    def __init__(self, options, mode):
        self.ranks = options.ranks
        self.directory = tempfile.TemporaryDirectory()
        self.output = os.path.join(self.directory.name, "on_failure")
        self.errors = open(os.path.join(self.directory.name, "stderr"), "w+")
        command = [options.mpirun, "-n", str(self.ranks)] if options.ranks > 0 else []
        command += [options.job, mode, str(DEADLINE), self.output, options.transport]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True)
        self.text = b""
        self.pids = {}

    def read(self, until, limit, what):
        """Collects stdout until the condition holds or the job ends."""
        end = time.monotonic() + limit
        selector = selectors.DefaultSelector()
        selector.register(self.process.stdout, selectors.EVENT_READ)
        while not until():
            if time.monotonic() > end:
                self.fail(f"{what}: not within {limit:.0f} s")
            if selector.select(timeout=0.1):
                chunk = os.read(self.process.stdout.fileno(), 65536)
                if not chunk:
                    return
                self.text += chunk
                self.pids = {int(r): int(p) for r, p in re.findall(rb"pid (\d+) (\d+)\n", self.text)}

    def wait_until_running(self):
        expected = max(1, self.ranks)
        self.read(lambda: len(self.pids) == expected, START_LIMIT, "the start")
        if len(self.pids) != expected:
            self.fail("the job ended before its rounds began")

    def wait_until_ended(self, limit):
        self.read(lambda: False, limit, "the end")
        try:
            self.process.wait(timeout=END_MARGIN)
        except subprocess.TimeoutExpired:
            self.fail("mpirun closed its output but goes on")

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read()

    def lines(self):
        return [line for line in self.stderr().splitlines() if "fault_job: error: " in line]

    def callbacks(self):
        return open(self.output).read().splitlines() if os.path.exists(self.output) else []

    def survivors(self):
        """Ranks whose process is still there, not counting zombies."""
        alive = []
        for rank, pid in self.pids.items():
            try:
                state = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
                if state not in "ZX":
                    alive.append(rank)
            except OSError:
                pass
        return alive

    def fail(self, why):
        for pid in list(self.pids.values()) + [self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        sys.exit(f"FAILED: {why}\n--- stdout\n{self.text.decode(errors='replace')}\n--- stderr\n{self.stderr()}")

    def check(self, holds, why):
        if not holds:
            self.fail(why)

    def check_ended(self, line, callbacks, status=None):
        """`line`: a pattern that the only line must match; `callbacks`: what on_failure wrote."""
        code = self.process.returncode
        self.check(code != 0, "mpirun returned 0")
        if status is not None:
            self.check(code == status, f"status {code}, expected {status}")
        lines = self.lines()
        self.check(len(lines) == 1, f"{len(lines)} lines say why, expected 1: {lines}")
        self.check(re.search(line, lines[0]), f"'{lines[0]}' does not match '{line}'")
        self.check(self.callbacks() == callbacks, f"on_failure wrote {self.callbacks()}, expected {callbacks}")
        self.check_none_left()

    def check_none_left(self):
        """mpirun may end before its children when it was told to, and the kernel may need a moment more."""
        end = time.monotonic() + 5
        while self.survivors() and time.monotonic() < end:
            time.sleep(0.05)
        self.check(not self.survivors(), f"ranks {self.survivors()} are left")


def strike(options, number, rank, line, callbacks):
    """Sends a signal to one rank of a running job."""
    job = Job(options, "run")
    job.wait_until_running()
    began = time.monotonic()
    os.kill(job.pids[rank], number)
    job.wait_until_ended(DEADLINE + END_MARGIN)
    took = time.monotonic() - began
    job.check_ended(line, callbacks)
    return took


def provoke(options, mode, line, callbacks, status):
    job = Job(options, mode)
    job.wait_until_ended(START_LIMIT + DEADLINE)
    job.check_ended(line, callbacks, status)


def kill_worker(options):
    rank = options.ranks - 1
    strike(options, signal.SIGKILL, rank, rf"rank {rank} on \S+ died; .*round \d+, collective \d+",
           [f"rank {rank} code 3"])


def kill_rank_0(options):
    strike(options, signal.SIGKILL, 0, r"rank 0 on \S+ died", [])


def strike_any(options):
    """Any rank at any moment, also while it starts a collective or computes."""
    seed = time.time_ns()
    print(f"seed {seed}")
    dice = random.Random(seed)
    rank = dice.randrange(options.ranks)
    number = dice.choice([signal.SIGKILL, signal.SIGSTOP])
    job = Job(options, "run")
    job.wait_until_running()
    time.sleep(dice.random())
    os.kill(job.pids[rank], number)
    job.wait_until_ended(DEADLINE + END_MARGIN)
    dead_rank_0 = rank == 0 and number == signal.SIGKILL
    job.check_ended(rf"rank {rank} on \S+ (died|has not answered)", [] if dead_rank_0 else [f"rank {rank} code 3"])


def stop_worker(options):
    rank = max(1, options.ranks // 2)
    took = strike(options, signal.SIGSTOP, rank, rf"rank {rank} on \S+ has not answered", [f"rank {rank} code 3"])
    if took < DEADLINE - 0.2:  # a heartbeat may have been under way
        sys.exit(f"FAILED: ended after {took:.1f} s, before the deadline")


def stop_rank_0(options):
    # mpirun wakes it before it kills it, and it uses that moment to write what there is.
    strike(options, signal.SIGSTOP, 0, r"rank 0 on \S+ has not answered", ["rank 0 code 3"])


def stall_worker(options):
    rank = options.ranks - 1
    provoke(options, "stall-last", rf"rank {rank} on \S+ has made no progress for .*round 50", [f"rank {rank} code 3"], 3)


def stall_rank_0(options):
    provoke(options, "stall-0", r"rank 0 on \S+ has made no progress for .*round 50", ["rank 0 code 3"], 3)


def stall_rank_0_within(options):
    """In the middle of a round, where collectives have to be counted alike on all ranks: the first rank of a host does more of the work."""
    provoke(options, "stall-within-0", r"rank 0 on \S+ has made no progress for .*round 50", ["rank 0 code 3"], 3)


def segv_worker(options):
    rank = options.ranks - 1
    provoke(options, "segv-last", rf"rank {rank} on \S+ died", [f"rank {rank} code 3"], None)


def exit_worker(options):
    rank = options.ranks - 1
    provoke(options, "exit-last", rf"rank {rank} on \S+ died", [f"rank {rank} code 3"], None)


def throw_worker(options):
    rank = options.ranks - 1
    provoke(options, "throw-last", rf"rank {rank}: broken on purpose \(fault_job.cpp:\d+\)", [f"rank {rank} code 1"], 1)


def bad_input_worker(options):
    rank = options.ranks - 1
    provoke(options, "bad-input-last", r"error: file.json: broken on purpose$", [f"rank {rank} code 2"], 2)


def bad_input_rank_0(options):
    provoke(options, "bad-input-0", r"error: config.yaml:3: broken on purpose$", ["rank 0 code 2"], 2)


def agreed_error(options):
    provoke(options, "agreed", r"error: shard-1: missing$", [], 2)


def differ(options, mode, line, rank):
    provoke(options, mode, rf"error: {line}: (for them )?the count of things is not rank 0's$", [f"rank {rank} code 3"], 3)


def differ_worker(options):
    last = options.ranks - 1
    differ(options, "differ-last", rf"rank {last} on \S+ disagrees with rank 0", last)


def differ_two_workers(options):
    a, b = options.ranks - 2, options.ranks - 1
    differ(options, "differ-two", rf"rank {a} on \S+, rank {b} on \S+ disagree with rank 0", a)


def differ_all_workers(options):
    differ(options, "differ-workers", r"rank 0 on \S+ disagrees with all other ranks", 0)


def differ_rank_0(options):
    differ(options, "differ-0", r"rank 0 on \S+ disagrees with its own round", 0)


def slow_is_no_hang(options):
    job = Job(options, "slow-last")
    job.wait_until_ended(START_LIMIT)
    job.check(job.process.returncode == 0, f"status {job.process.returncode}, expected 0")
    job.check(job.lines() == [] and job.callbacks() == [], "a job that only took its time was ended")


def ends_in_order(options):
    job = Job(options, "end")
    job.wait_until_ended(START_LIMIT)
    job.check(job.process.returncode == 0, f"status {job.process.returncode}, expected 0")
    job.check(job.stderr() == "", "an orderly end wrote to stderr")


def interrupt(options, number):
    """The user stops mpirun: the loop sees it and ends the job in order."""
    job = Job(options, "run")
    job.wait_until_running()
    os.kill(job.process.pid, number)
    job.wait_until_ended(END_MARGIN)
    job.check(job.process.returncode != 0, "mpirun returned 0")
    job.check(b"stopped in order\n" in job.text, "the loop did not end in order")
    job.check(job.lines() == [] and job.callbacks() == [], "an orderly interruption was reported as a failure")
    job.check_none_left()


def interrupt_term(options):
    interrupt(options, signal.SIGTERM)


def interrupt_int(options):
    interrupt(options, signal.SIGINT)


def interrupt_deaf(options):
    """The loop does not react: the watchdog writes what there is and ends the job."""
    job = Job(options, "deaf")
    job.wait_until_running()
    os.kill(job.process.pid, signal.SIGTERM)
    job.wait_until_ended(END_MARGIN)
    job.check_ended(r"error: interrupted by SIGTERM$", ["rank 0 code 143"])


def interrupt_alone(options):
    """Without mpirun."""
    options.ranks = 0
    interrupt(options, signal.SIGINT)


CASES = {case.__name__: case for case in (
    kill_worker, kill_rank_0, strike_any, stop_worker, stop_rank_0, stall_worker, stall_rank_0, stall_rank_0_within,
    segv_worker, exit_worker, throw_worker,
    bad_input_worker, bad_input_rank_0, agreed_error, differ_worker, differ_two_workers, differ_all_workers, differ_rank_0,
    slow_is_no_hang, ends_in_order, interrupt_term, interrupt_int, interrupt_deaf,
    interrupt_alone)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--job", required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--transport", default="auto")
    options = parser.parse_args()
    CASES[options.case](options)


if __name__ == "__main__":
    main()
