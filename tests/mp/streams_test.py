#!/usr/bin/env python3
"""Runs the programs with standard streams, output files and a machine that are not what they should be.

    streams_test.py [CASE ...] --program build/.../specdec_dist

In every case the program ends by itself; what could not be written is an error (exit code 2, one line), never silence.
"""

import fcntl
import os
import resource
import select
import stat
import sys
import tempfile
import termios
import time

import job


def run(options, arguments, program="specdec_dist", closed=(), limits=(), **streams):
    """A job that has ended. `closed`: file descriptors that it starts without; `limits`: (what of RLIMIT_*, how much)."""

    def prepare():
        for descriptor in closed:
            os.close(descriptor)
        for what, most in limits:
            resource.setrlimit(what, (most, most))

    return job.run(job.with_program(options, program), 0, arguments, preexec_fn=prepare, **streams)


def refused(done, *named):
    lines = done.err.splitlines()
    done.expect(done.code == 2, "exit code is not 2")
    done.expect(len(lines) == 1 and lines == done.error_lines(), "not exactly one line says why")
    for text in named:
        done.expect(text in lines[0], f"the line does not contain {text!r}")


def generate(options, *more):
    return ["--target", os.path.join(options.assets, "manpy-2m"), "--prompt", "def f(x):", "--quiet",
            "--set", "decode.max_new_tokens=20", "--set", "decode.ignore_eos=true", *more]


def full_disk_for_text(options):
    with tempfile.TemporaryDirectory() as directory, open("/dev/full", "w", encoding="utf-8") as full:
        path = os.path.join(directory, "report.json")
        done = run(options, generate(options, "--json", path), stdout=full)
        refused(done, "standard output", "No space left")
        report = job.load(path)
        done.expect(report["status"] == "failed" and "standard output" in report["error"], "the JSON does not say so")


def full_disk_for_the_rest(options):
    with tempfile.TemporaryDirectory() as directory, open("/dev/full", "w", encoding="utf-8") as full:
        text = os.path.join(directory, "text")
        with open(text, "w", encoding="utf-8") as file:
            file.write("def f(x):")
        model = ["--model", os.path.join(options.assets, "manpy-2m")]
        refused(run(options, ["--help"], stdout=full), "standard output")
        refused(run(options, ["--help"], "specdec_score", stdout=full), "standard output")
        refused(run(options, ["--version"], "specdec_tokenize", stdout=full), "standard output")
        refused(run(options, [*model, "--text-file", text], "specdec_score", stdout=full), "standard output")
        with open(text, encoding="utf-8") as file:
            refused(run(options, model, "specdec_tokenize", stdout=full, stdin=file), "standard output")


def closed_streams(options):
    """MPI's sockets must not get the numbers of the standard streams."""
    whole = run(options, generate(options)).out
    with tempfile.TemporaryDirectory() as directory:
        for closed in ((1,), (0, 1, 2), (0,)):
            path = os.path.join(directory, "report.json")
            done = run(options, generate(options, "--json", path), closed=closed, stdin=None)
            done.expect(done.code == 0, f"exit code with {closed} closed is not 0")
            done.expect(done.out == (b"" if 1 in closed else whole), "another text")
            done.expect(job.streamed(job.load(path)) == whole, "another text in the JSON")


def unreadable_input(options):
    model = ["--model", os.path.join(options.assets, "manpy-2m")]
    descriptor = os.open("/", os.O_RDONLY)
    try:
        refused(run(options, model, "specdec_tokenize", stdin=descriptor), "standard input")
    finally:
        os.close(descriptor)


def json_is_no_file(options):
    """A new file would take the name of the device, pipe or link: root's /dev/null would be gone."""
    with tempfile.TemporaryDirectory() as directory:
        fifo, link = os.path.join(directory, "fifo"), os.path.join(directory, "link")
        os.mkfifo(fifo)
        os.symlink("fifo", link)
        for path in (fifo, link, directory):
            refused(run(options, generate(options, "--json", path)), "--json", path)
        expect_kept = stat.S_ISFIFO(os.stat(fifo).st_mode) and os.path.islink(link)
        if not expect_kept:
            raise job.Failed("the pipe or the link was replaced")


def fewer_threads_than_asked_for(options):
    """256 stacks of 8 MB do not fit."""
    limits = ((resource.RLIMIT_STACK, 8 << 20), (resource.RLIMIT_AS, 1_500_000_000))
    refused(run(options, generate(options, "--set", "parallel.threads=256"), limits=limits), "threads: found 256")


def unread(descriptor):
    """Bytes that wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


def is_full(descriptor):
    """A pipe, as whoever writes to it sees it: of one page it is full as soon as there is anything in it."""
    return not select.select([], [descriptor], [], 0)[1]


def read_to_the_end(descriptor):
    text, end = b"", time.monotonic() + job.LIMIT
    while select.select([descriptor], [], [], max(0, end - time.monotonic()))[0]:
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return text
        text += chunk
    return text + b" ... and nothing more came in time"


def reader_that_pauses(options):
    """Rank 0 waits for its reader for longer than the deadline, and rank 1 for rank 0: nobody hangs. mpirun reads what its ranks write, so
    rank 0 writes to a pipe of ours, made small."""
    deadline = 2
    with tempfile.TemporaryDirectory() as directory:
        fifo = os.path.join(directory, "fifo")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        size = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)  # a page at least, whatever a page is here
        prompts = [word for k in range(size // 600) for word in ("--prompt", f"def f{k}(x):")]
        arguments = ["--target", os.path.join(options.assets, "manpy-2m"), *prompts, "--quiet",
                     *job.sets("decode.max_new_tokens=500", "decode.ignore_eos=true", f"parallel.deadline={deadline}")]
        whole = run(options, arguments).out
        redirected = 'fifo=$1; shift; [ "$OMPI_COMM_WORLD_RANK" != 0 ] || exec >"$fifo"; exec "$0" "$@"'
        with job.Job(job.with_program(options, "/bin/sh"), 2, ["-c", redirected, options.program, fifo, *arguments]) as paused:
            paused.expect(len(whole) > 2 * size, f"only {len(whole)} bytes of text: they fit into the pipe of {size}")
            paused.expect(job.until(lambda: is_full(writer) or paused.process.poll() is not None), "the pipe does not get full")
            before = unread(reader)
            time.sleep(3 * deadline)
            paused.expect(paused.process.poll() is None and unread(reader) == before > 0, "rank 0 did not wait for its reader")
            os.close(writer)
            text = read_to_the_end(reader)
            paused.wait()
            paused.expect(paused.code == 0 and text == whole, f"{len(text)} of {len(whole)} bytes came")
        os.close(reader)


CASES = {case.__name__: case for case in (
    full_disk_for_text, full_disk_for_the_rest, closed_streams, unreadable_input, json_is_no_file, fewer_threads_than_asked_for, reader_that_pauses)}

if __name__ == "__main__":
    given = job.parse(__doc__)
    job.run_cases(given, CASES)
