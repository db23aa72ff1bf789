#!/usr/bin/env python3
"""Kills, stops and breaks ranks of a running job and checks how it ends (docs/protocol.md, "How a job ends").

    fault_test.py [CASE ...] --program build/.../fault_job --ranks N [--transport T]

Checks in every case: mpirun ends in time by itself with a non-zero status, exactly one line says why and names the culprit, what the
program registered for a failure was run once, and no process is left.
"""

import os
import random
import re
import signal
import tempfile
import time

import job

DEADLINE = 2.0  # seconds, of the job
# For a loaded machine: mpirun's second of grace, and scheduling.
END_MARGIN = 20.0


class Fault(job.Job):
    """fault_job in one of its modes."""

    def __init__(self, options, mode):
        self.directory = tempfile.TemporaryDirectory()
        self.output = os.path.join(self.directory.name, "on_failure")
        super().__init__(options, options.ranks, [mode, str(DEADLINE), self.output, options.transport])

    def __exit__(self, *_):
        super().__exit__()
        self.directory.cleanup()

    def wait_until_running(self, ranks):
        self.expect(self.read_until(lambda out: out.count(b"running\n") == max(1, ranks)), "ended before its rounds began")

    def callbacks(self):
        """What on_failure wrote."""
        if not os.path.exists(self.output):
            return []
        with open(self.output, encoding="utf-8") as file:
            return file.read().splitlines()

    def expect_ended(self, line, callbacks, status=None):
        """`line`: a pattern that the only line must match."""
        self.expect(self.code != 0, "mpirun returned 0")
        self.expect(status in (None, self.code), f"expected status {status}")
        lines = self.error_lines()
        self.expect(len(lines) == 1, f"{len(lines)} lines say why, expected 1")
        self.expect(re.search(line, lines[0]), f"the line does not match '{line}'")
        self.expect(self.callbacks() == callbacks, f"on_failure wrote {self.callbacks()}, expected {callbacks}")


def strike(options, number, rank, line, callbacks, after=0.0):
    """Sends a signal to one rank of a running job."""
    with Fault(options, "run") as run:
        run.wait_until_running(options.ranks)
        time.sleep(after)
        began = time.monotonic()
        os.kill(run.ranks()[rank], number)
        run.wait(DEADLINE + END_MARGIN)
        took = time.monotonic() - began
        run.expect_ended(line, callbacks)
        # A heartbeat may have been under way.
        run.expect(number != signal.SIGSTOP or took >= DEADLINE - 0.2, f"ended after {took:.1f} s, before the deadline")


def provoke(options, mode, line, callbacks, status):
    with Fault(options, mode) as run:
        run.wait().expect_ended(line, callbacks, status)


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
    dead_rank_0 = rank == 0 and number == signal.SIGKILL
    what = "died" if number == signal.SIGKILL else "has not answered"
    strike(options, number, rank, rf"rank {rank} on \S+ {what}", [] if dead_rank_0 else [f"rank {rank} code 3"], dice.random())


def stop_worker(options):
    rank = max(1, options.ranks // 2)
    strike(options, signal.SIGSTOP, rank, rf"rank {rank} on \S+ has not answered", [f"rank {rank} code 3"])


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


def stopped_before_start(options):
    """No watchdog stands yet, and MPI waits for every rank; nobody can say for which."""
    os.environ["SPECDEC_START_DEADLINE"] = "2.5"
    for rank, speaker in ((options.ranks - 1, 0), (0, 1)):
        provoke(options, f"stopped-first-{rank}", rf"rank {speaker} on \S+ has waited for MPI to start for 2.5 s: a rank is stopped", [], 3)


def wrong_start_deadline(options):
    os.environ["SPECDEC_START_DEADLINE"] = "soon"
    provoke(options, "run", r"error: SPECDEC_START_DEADLINE: found 'soon', expected seconds, above 0 and up to 86400$", [], 2)


def wrong_pin(options):
    os.environ["SPECDEC_PIN"] = "yes"
    provoke(options, "run", r"error: SPECDEC_PIN: found 'yes', expected auto or none$", [], 2)


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
    with Fault(options, "slow-last") as run:
        run.wait()
        run.expect(run.code == 0 and run.error_lines() == [] and run.callbacks() == [], "a job that only took its time was ended")


def ends_in_order(options):
    with Fault(options, "end") as run:
        run.wait()
        run.expect(run.code == 0, "failed")
        run.expect(run.err == "" and run.callbacks() == [], "an orderly end wrote something")


def interrupt(options, number):
    """The user stops mpirun: the loop sees it and ends the job in order."""
    with Fault(options, "run") as run:
        run.wait_until_running(options.ranks)
        run.process.send_signal(number)
        run.wait(END_MARGIN)
        run.expect(run.code != 0, "mpirun returned 0")
        run.expect(b"stopped in order\n" in run.out, "the loop did not end in order")
        run.expect(run.error_lines() == [] and run.callbacks() == [], "an orderly interruption was reported as a failure")


def interrupt_term(options):
    interrupt(options, signal.SIGTERM)


def interrupt_int(options):
    interrupt(options, signal.SIGINT)


def interrupt_deaf(options):
    """The loop does not react: the watchdog writes what there is and ends the job."""
    with Fault(options, "deaf") as run:
        run.wait_until_running(options.ranks)
        run.process.send_signal(signal.SIGTERM)
        run.wait(END_MARGIN)
        run.expect_ended(r"error: interrupted by SIGTERM$", ["rank 0 code 143"])


def interrupt_alone(options):
    """Without mpirun."""
    options.ranks = 0
    interrupt(options, signal.SIGINT)


CASES = {case.__name__: case for case in (
    kill_worker, kill_rank_0, strike_any, stop_worker, stop_rank_0, stall_worker, stall_rank_0, stall_rank_0_within,
    segv_worker, exit_worker, throw_worker,
    bad_input_worker, bad_input_rank_0, stopped_before_start, wrong_start_deadline, wrong_pin, agreed_error, differ_worker, differ_two_workers, differ_all_workers, differ_rank_0,
    slow_is_no_hang, ends_in_order, interrupt_term, interrupt_int, interrupt_deaf,
    interrupt_alone)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
