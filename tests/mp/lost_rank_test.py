#!/usr/bin/env python3
"""Takes ranks from a running specdec_dist, or stops it as a user does, and checks what is left of the work (docs/protocol.md, "How a
job ends").

    lost_rank_test.py [CASE ...] --program build/.../specdec_dist --ranks N [--transport T]

In every case: the job ends by itself with a non-zero status, no process is left, stdout holds the beginning of what an undisturbed run
writes, and so does the JSON.
"""

import os
import random
import re
import signal
import tempfile
import time

import job

PROMPTS = ("def fibonacci(n):\n", "class Stack:\n", "NAME\n       sort - sort lines of text files\n", "import os\n") * 12
K = 4
SEED = time.time_ns() % 1000000
DICE = random.Random(SEED)  # when to strike
TOKENS = 400
DEADLINE = 2


def arguments(options):
    run = [*job.shipped_pair(options), "--quiet",
           *job.sets(f"decode.k={K}", "decode.temperature=0.8", "decode.seed=5", f"decode.max_new_tokens={TOKENS}", "decode.ignore_eos=true",
                     "compare=false", f"parallel.deadline={DEADLINE}")]
    for prompt in PROMPTS:
        run += ["--prompt", prompt]
    return run


def longest_round(options):
    """Bytes that one round can add to the text at most."""
    return (K + 1) * max(len(piece) for piece in job.load(os.path.join(options.assets, "manpy-11m", "vocab.json")))


def undisturbed(options):
    """The whole text, by one rank: the bits do not depend on the number of ranks (docs/numerics.md)."""
    if not hasattr(options, "undisturbed"):
        done = job.run(options, 0, arguments(options))
        done.expect(done.code == 0 and len(done.out) > 1000, "the undisturbed run failed")
        options.undisturbed = done.out
    return options.undisturbed


def disturb(options, strike, in_mid_write=False):
    """Lets a run write some of its text, strikes it, and checks what holds in every case. Returns it with its report.
    `in_mid_write`: the strike leaves no time to remove a new JSON that is half written beside the old one; the next run writes over it."""
    whole = undisturbed(options)
    # Early: the job goes on while this process waits for its turn and mpirun passes a signal on. Two cores of a Zen 5 write 400 tokens in 40 to 75 ms.
    enough = DICE.randrange(1, len(whole) // 40)
    settings = job.sets(f"parallel.transport={options.transport}", f"placement={getattr(options, 'placement', 'rank0')}")
    run = job.reported(options, options.ranks, [*arguments(options), *settings], strike,
                       when=lambda out: len(out) >= enough)
    run.expect(run.beside == [] or (in_mid_write and run.beside == ["report.json.tmp"]), f"beside the JSON lies {run.beside}")
    went_over = run.report["machine"]["transport"]
    run.expect(options.transport in ("auto", went_over) or options.ranks == 0, f"went over {went_over}")
    run.expect(len(run.out) < len(whole), "was struck too late")
    run.expect(whole.startswith(job.certain(run.out)), "stdout is not the beginning of the undisturbed text")
    run.expect(whole.startswith(job.certain(job.streamed(run.report))), "the JSON's text is not the beginning of the undisturbed text")
    return run


def expect_line(run, pattern):
    lines = run.error_lines()
    run.expect(len(lines) == 1, f"{len(lines)} lines say why, expected 1")
    run.expect(re.search(pattern, lines[0]), f"the line does not match {pattern!r}")


def expect_report(options, run, status, error):
    """The report holds what was accepted: all that is on stdout, and the last round may have been on its way there."""
    report = run.report
    run.expect(report["status"] == status, f"the JSON's status is {report['status']!r}, expected {status!r}")
    run.expect(re.search(error, report["error"] or ""), f"the JSON's error is {report['error']!r}")
    text, out = job.streamed(report), job.certain(run.out)
    run.expect(text.startswith(out), "the JSON lacks text that is on stdout")
    run.expect(len(text) - len(out) <= longest_round(options), "stdout lacks text that the JSON has")


def lose(options, rank, number, what):
    run = disturb(options, lambda run: os.kill(run.ranks()[rank], number), rank == 0 and number == signal.SIGKILL)
    line = rf"error: rank {rank} on \S+ {what}.*round \d+, collective \d+"
    expect_line(run, line)
    return run, line.removeprefix("error: ")


def kill_worker(options):
    run, line = lose(options, options.ranks - 1, signal.SIGKILL, "died")
    expect_report(options, run, "failed", line)


def stop_worker(options):
    run, line = lose(options, 1, signal.SIGSTOP, "has not answered for")
    expect_report(options, run, "failed", line)


def kill_rank_0(options):
    """Nobody is left to complete the JSON: it is whole all the same, and its text is as old as its last writing."""
    run, _ = lose(options, 0, signal.SIGKILL, "died")
    run.expect(run.report["status"] == "running", f"the JSON's status is {run.report['status']!r}")


def stop_rank_0(options):
    """mpirun wakes it before it kills it, and it uses that moment to write what there is."""
    run, line = lose(options, 0, signal.SIGSTOP, "has not answered")
    expect_report(options, run, "failed", line)


def with_a_drafter(case):
    """The same beside one rank more, the last, which only drafts."""
    def with_it(options):
        options.ranks += 1
        options.placement = "dedicated"
        try:
            case(options)
        finally:
            options.ranks -= 1
            del options.placement
    with_it.__name__ = f"{case.__name__}_with_a_drafter"
    return with_it


def stop_last(options):
    run, line = lose(options, options.ranks - 1, signal.SIGSTOP, "has not answered for")
    expect_report(options, run, "failed", line)


def interrupt(options, number):
    """The loop ends in order between two rounds: no error, and all that was accepted is out."""
    run = disturb(options, lambda run: run.process.send_signal(number))
    run.expect(run.error_lines() == [], "an interruption by the user was reported as an error")
    if options.ranks == 0:
        run.expect(run.code == 128 + number, f"status {run.code}, expected {128 + number}")
    expect_report(options, run, "interrupted", "interrupted")


def terminate(options):
    interrupt(options, signal.SIGTERM)


def interrupt_from_keyboard(options):
    interrupt(options, signal.SIGINT)


def interrupt_without_mpirun(options):
    options.ranks = 0
    interrupt(options, signal.SIGINT)


def reader_leaves(options):
    """`specdec_dist | head -c 100`: the job goes on for its JSON, without text and without an error."""
    whole = undisturbed(options)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "report.json")
        with job.Job(options, 0, [*arguments(options), "--json", path]) as run:
            run.read_until(lambda out: len(out) >= 100)
            run.process.stdout.close()
            run.process.wait(timeout=job.LIMIT)
            run.expect(run.code == 0 and run.err == "", "the job did not go on in silence")
            run.expect(job.streamed(job.load(path)) == whole, "the JSON lacks text")


CASES = {case.__name__: case for case in (
    kill_worker, stop_worker, kill_rank_0, stop_rank_0, *map(with_a_drafter, (kill_worker, stop_worker, stop_last, terminate)),
    terminate, interrupt_from_keyboard, interrupt_without_mpirun, reader_leaves)}

if __name__ == "__main__":
    given = job.parse(__doc__)
    print(f"seed {SEED}")
    job.run_cases(given, CASES)
