#!/usr/bin/env python3
"""Runs the programs with standard streams, output files and a machine that are not what they should be.

    streams_test.py [CASE ...] --program build/.../specdec_dist --assets assets

In every case the program ends by itself; what could not be written is an error (exit code 2, one line), never silence.
"""

import fcntl
import json
import os
import resource
import stat
import subprocess
import tempfile
import time

import job


def run(options, arguments, program="specdec_dist", **streams):
    """The completed process. `closed`: file descriptors that the program starts without; `memory`: all that it may map."""
    closed, memory = streams.pop("closed", ()), streams.pop("memory", None)

    def prepare():
        for descriptor in closed:
            os.close(descriptor)
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    streams.setdefault("stdin", subprocess.DEVNULL)
    streams.setdefault("stdout", subprocess.PIPE)
    command = [os.path.join(os.path.dirname(options.program), program), *arguments]
    try:
        return subprocess.run(command, stderr=subprocess.PIPE, timeout=job.LIMIT, text=True, check=False,
                              preexec_fn=prepare, **streams)
    except subprocess.TimeoutExpired as error:
        raise job.Failed(f"hangs: {' '.join(command)}") from error


def expect(done, holds, why):
    if not holds:
        raise job.Failed(f"{why}\n$ {' '.join(done.args)}\nstatus {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")


def refused(done, *named):
    lines = done.stderr.splitlines()
    expect(done, done.returncode == 2, "exit code is not 2")
    expect(done, len(lines) == 1 and ": error: " in lines[0], "not exactly one line says why")
    for text in named:
        expect(done, text in lines[0], f"the line does not contain {text!r}")


def generate(options, *more):
    return ["--target", os.path.join(options.assets, "manpy-2m"), "--prompt", "def f(x):", "--quiet",
            "--set", "decode.max_new_tokens=20", "--set", "decode.ignore_eos=true", *more]


def full_disk_for_text(options):
    with tempfile.TemporaryDirectory() as directory, open("/dev/full", "w", encoding="utf-8") as full:
        path = os.path.join(directory, "report.json")
        done = run(options, generate(options, "--json", path), stdout=full)
        refused(done, "standard output", "No space left")
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        expect(done, report["status"] == "failed" and "standard output" in report["error"], "the JSON does not say so")


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
    whole = run(options, generate(options)).stdout
    with tempfile.TemporaryDirectory() as directory:
        for closed in ((1,), (0, 1, 2), (0,)):
            path = os.path.join(directory, "report.json")
            done = run(options, generate(options, "--json", path), closed=closed, stdin=None)
            expect(done, done.returncode == 0, f"exit code with {closed} closed is not 0")
            expect(done, done.stdout == ("" if 1 in closed else whole), "another text")
            with open(path, encoding="utf-8") as file:
                expect(done, json.load(file)["runs"][0]["outputs"][0]["text"] + "\n" == whole, "another text in the JSON")


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
    refused(run(options, generate(options, "--set", "parallel.threads=256"), memory=1_500_000_000), "threads: found 256")


def reader_that_pauses(options):
    """Rank 0 waits for its reader for longer than the deadline, and rank 1 for rank 0: nobody hangs. mpirun reads what its ranks write, so
    rank 0 writes to a pipe of ours, made small."""
    long = ["--set", "decode.max_new_tokens=500", "--set", "parallel.deadline=2"]
    prompts = [v for k in range(6) for v in ("--prompt", f"def f{k}(x):")]
    arguments = [v for v in generate(options, *long) if v not in ("--prompt", "def f(x):")] + prompts
    whole = run(options, arguments).stdout
    smallest = 4096
    if len(whole.encode()) < 2 * smallest:
        raise job.Failed(f"only {len(whole)} bytes of text: they fit into the pipe")
    with tempfile.TemporaryDirectory() as directory:
        fifo = os.path.join(directory, "fifo")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, smallest)
        rank_0 = ["sh", "-c", 'exec "$0" "$@" > "$FIFO"', options.program, *arguments]
        command = [options.mpirun, "-n", "1", *rank_0, ":", "-n", "1", options.program, *arguments]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, env={**os.environ, "FIFO": fifo}) as process:
            time.sleep(8)
            paused = process.poll() is None
            os.set_blocking(reader, True)
            with os.fdopen(reader, encoding="utf-8") as pipe:
                text = pipe.read()
            errors = process.stderr.read()
        if not paused or process.returncode != 0 or text != whole:
            raise job.Failed(f"paused {paused}, status {process.returncode}, {len(text)} of {len(whole)} bytes\n{errors}")


CASES = {case.__name__: case for case in (
    full_disk_for_text, full_disk_for_the_rest, closed_streams, unreadable_input, json_is_no_file, fewer_threads_than_asked_for, reader_that_pauses)}

if __name__ == "__main__":
    given = job.parse(__doc__)
    job.run_cases(given, CASES)
