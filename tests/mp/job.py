"""Runs a program, alone or under mpirun, and tells what became of it. For the tests in this folder."""

import argparse
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

# To notice a job that hangs. Nothing is measured: a loaded machine may need long for what takes a second.
LIMIT = 90.0


class Failed(Exception):
    """What a test expected and did not find."""


ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SEVERAL_HOSTS = os.path.join(ROOT, "launch", "several-hosts.sh")
MARK = "SPECDEC_TEST_JOB"  # a variable by which a job's processes are known, in whatever session they are


def marked_processes(mark):
    """{pid: rank or None} of the processes with this mark that are no zombies."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment:
            ranks = [v.split(b"=")[1] for v in environment if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
            found[int(entry)] = int(ranks[0]) if ranks else None
    return found


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def streamed(report):
    """What of the report's text belongs on stdout: a finished output is followed by a line end."""
    text = ""
    for run in report["runs"]:
        for output in run["outputs"]:
            text += output["text"] + ("\n" if output["finish_reason"] not in (None, "interrupted") else "")
    return text.encode()


def certain(text):
    """Without what an orderly end adds to the text: the line end, and U+FFFD for half a character."""
    return text.removesuffix(b"\n").removesuffix("\ufffd".encode())


def until(condition, limit=LIMIT, pause=0.02):
    """Waits for it; what it was at the end."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(pause)
    return condition()


def launch_words(options, ranks):
    """What stands before the program and starts `ranks` of it."""
    if ranks == 0:
        return []
    if not getattr(options, "hosts", 0):
        return [options.mpirun, "-n", str(ranks)]
    return [SEVERAL_HOSTS, str(options.hosts), "--ranks", str(ranks // options.hosts), *options.host_options]


def sets(*settings):
    """The command line's words for these "key=value"."""
    return [word for setting in settings for word in ("--set", setting)]


def shipped_pair(options):
    return ["--target", os.path.join(options.assets, "manpy-11m"), "--draft", os.path.join(options.assets, "manpy-2m")]


def with_program(options, name):
    """The options, for another program of the same folder."""
    return argparse.Namespace(**{**vars(options), "program": os.path.join(os.path.dirname(options.program), name)})


class Job:
    """One run. `ranks` 0: without mpirun. `streams`: what else subprocess.Popen is told."""

    def __init__(self, options, ranks, arguments, directory=None, **streams):
        self.program = os.path.basename(options.program)
        self.command = launch_words(options, ranks) + [options.program] + [os.fspath(a) for a in arguments] + sets(*getattr(options, "settings", ()))
        self.errors = tempfile.TemporaryFile()
        self.out = b""
        self.mark = str(uuid.uuid4())  # whoever is left afterwards can be found
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **streams}
        self.process = subprocess.Popen(self.command, stderr=self.errors, start_new_session=True, cwd=directory,
                                        env={**os.environ, MARK: self.mark}, **streams)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.final_err = self.err
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if self.process.stdout:
            self.process.stdout.close()
        self.process.wait()
        self.errors.close()

    @property
    def err(self):
        """What is on stderr so far; still there after the end."""
        if self.errors.closed:
            return self.final_err
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    @property
    def code(self):
        return self.process.returncode

    def processes(self):
        """{pid: rank or None} of all that belongs to the job."""
        return marked_processes(self.mark)

    def ranks(self):
        """{rank: pid} of the processes that mpirun started."""
        return {rank: pid for pid, rank in self.processes().items() if rank is not None}

    def read_until(self, enough, limit=LIMIT):
        """Collects stdout until `enough(bytes so far)` or its end; False at the end."""
        if self.process.stdout is None:  # it goes elsewhere
            return False
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not enough(self.out):
                self.expect(time.monotonic() < end, f"hangs: nothing came for {limit:.0f} s")
                if selector.select(timeout=0.1):
                    chunk = os.read(self.process.stdout.fileno(), 65536)
                    if not chunk:
                        return False
                    self.out += chunk
        return True

    def wait(self, limit=LIMIT):
        """Until it has ended and all its processes are gone."""
        self.read_until(lambda _: False, limit)
        try:
            self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            self.expect(False, "has closed its output but goes on")
        # mpirun reaps its children before it ends; the kernel may need a moment more.
        until(lambda: not self.processes(), 10)
        left = self.processes()
        self.expect(not left, f"processes are left: {left}")
        return self

    def error_lines(self):
        return [line for line in self.err.splitlines() if f"{self.program}: error: " in line]

    def expect(self, holds, why):
        if not holds:
            raise Failed(f"{why}\n$ {' '.join(self.command)}\nstatus {self.code}\n--- stdout\n"
                         f"{self.out.decode(errors='replace')[-2000:]}\n--- stderr\n{self.err[-4000:]}")


def run(options, ranks, arguments, directory=None, **streams):
    """A job that has ended."""
    with Job(options, ranks, arguments, directory, **streams) as job:
        return job.wait()


def reported(options, ranks, arguments, strike=None, when=len):
    """A job that has ended, with its JSON in `report`; `beside` names what else lies in the JSON's folder. It must end well, or, with a
    `strike(job)` that is called as soon as `when(stdout so far)`, as a failure."""
    with tempfile.TemporaryDirectory() as directory, \
         Job(options, ranks, [*arguments, "--json", os.path.join(directory, "report.json")]) as job:
        if strike:
            job.expect(job.read_until(when), "ended before it was struck")
            strike(job)
        job.wait()
        job.expect((job.code == 0) == (strike is None), "ended as if nothing had been" if strike else "failed")
        names = os.listdir(directory)
        job.expect("report.json" in names, "wrote no JSON")
        job.beside = [name for name in names if name != "report.json"]
        job.report = load(os.path.join(directory, "report.json"))
        if not strike:
            job.expect(job.error_lines() == [] and job.beside == [], f"reports an error, or leaves {job.beside}")
            job.expect(job.report["status"] == "ok", f"the JSON's status is {job.report['status']!r}")
        return job


def lack_for_hosts():
    """Why this machine cannot emulate hosts, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs ip, of the package iproute2"
    for kind in ("bridge", "veth"):
        tried = subprocess.run(["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "ip", "link", "add", "type", kind],
                               capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            return f"cannot make a {kind} in a namespace: {tried.stderr.strip()}"
    return None


def parser(description):
    """What all scripts here take."""
    new = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    new.add_argument("--program", required=True, type=os.path.abspath)  # cases run elsewhere
    new.add_argument("--mpirun", default="mpirun")
    new.add_argument("--assets", default=os.path.join(ROOT, "assets"), type=os.path.abspath, help="directory of the shipped models")
    return new


def parse(description):
    """The command line of every test that has cases."""
    new = parser(description)
    new.add_argument("cases", nargs="*", metavar="CASE", help="all when none is named")
    new.add_argument("--ranks", type=int, default=0, help="0: without mpirun")
    new.add_argument("--hosts", type=int, default=0, help="so many emulated hosts (launch/several-hosts.sh); 0: mpirun alone")
    new.add_argument("--transport", default="auto")
    new.add_argument("--set", dest="settings", metavar="KEY=VALUE", action="append", default=[], help="for every job, as the program takes it: backend=cuda")
    new.set_defaults(host_options=[])  # of several-hosts.sh
    options = new.parse_args()
    if options.hosts > 0 and (lack := lack_for_hosts()):
        print(f"skipped: {lack}")
        sys.exit(77)
    return options


def run_cases(options, cases):
    """Runs the named ones, or all, and ends the program with what failed."""
    unknown = set(options.cases) - set(cases)
    if unknown:
        sys.exit(f"unknown cases {sorted(unknown)}, expected some of {', '.join(cases)}")
    failed = []
    for name in options.cases or cases:
        began = time.monotonic()
        try:
            cases[name](options)
            print(f"ok     {name} ({time.monotonic() - began:.1f} s)", flush=True)
        except Failed as why:
            failed.append(name)
            print(f"FAILED {name}: {why}", flush=True)
    sys.exit(f"FAILED: {', '.join(failed)}" if failed else 0)
