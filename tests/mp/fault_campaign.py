#!/usr/bin/env python3
"""Takes a random rank from a running specdec_dist at a random moment, again and again, over every transport, and checks how each job
ends (docs/protocol.md, "How a job ends").

    fault_campaign.py --program build/.../specdec_dist [--runs 200] [--seed N]

Six runs in a row strike every transport with SIGKILL and with SIGSTOP. Each draws the rest from the seed: 2 to 8 ranks, the sampling, a
rank, and the moment, by phase: while the models are loaded, in the prefill, and at any point of the rounds (draft, broadcast, score,
decide). It fails unless
  - mpirun ends within the deadline and a margin, with a non-zero status;
  - exactly one line says why, and names the rank that was struck;
  - stdout holds the beginning of what an undisturbed run writes, and so does the JSON, whose status is "failed" (of a killed rank 0, who
    cannot say any more: "running");
  - no process is left, and none of the shared memory and the sockets that the job was seen to have.
"""

import collections
import os
import random
import re
import signal
import sys
import tempfile
import time

import job

TRANSPORTS = ("shm", "hier", "mpi")
PHASES = ("load", "prefill", "rounds")
SAMPLINGS = (("greedy", ("decode.temperature=0",)),
             ("plain", ("decode.temperature=1", "decode.seed=4")),
             ("top-p", ("decode.temperature=0.8", "decode.top_p=0.95", "decode.seed=5")))
K = 4
TOKENS = 400
DEADLINE = 2
PROMPTS = ["def fibonacci(n):\n", "class Stack:\n", "NAME\n       sort - sort lines of text files\n", "import os\n"] * 3
# Beyond the deadline: heartbeats, mpirun's second of grace, and a machine that is busy with other things.
MARGIN = 15.0
DEFAULT_DEADLINE = 30  # which holds until the configuration has been read


def arguments(options, settings, path):
    run = [*job.shipped_pair(options), "--quiet", "--json", path,
           *job.sets(f"decode.k={K}", f"decode.max_new_tokens={TOKENS}", "decode.ignore_eos=true", "compare=false",
                     f"parallel.deadline={DEADLINE}", *settings)]
    for prompt in PROMPTS:
        run += ["--prompt", prompt]
    return run


def shared_memory(pids):
    """What these processes of a job have in /dev/shm: Open MPI's segments carry the job's number."""
    jobs = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                jobs |= set(re.findall(rb"\0PMIX_NAMESPACE=(\d+)\0", file.read()))
        except OSError:
            pass
    numbers = {f"{int(number):x}" for number in jobs}
    return lambda: {name for name in names_in("/dev/shm") if any(number in name for number in numbers)}


def names_in(directory):
    try:
        return set(os.listdir(directory))
    except OSError:
        return set()


def sockets_of(pids):
    """Inodes of the sockets that these processes hold."""
    found = set()
    for pid in pids:
        for descriptor in names_in(f"/proc/{pid}/fd"):
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{descriptor}"))
            except OSError:
                continue
            if match:
                found.add(match.group(1))
    return found


def open_sockets():
    """Inodes of all sockets of this network namespace that some process could still hold. 0, which waits for its time to pass, is none."""
    found = set()
    for table, column in (("tcp", 9), ("tcp6", 9), ("unix", 6)):
        with open(f"/proc/net/{table}", encoding="utf-8") as file:
            found |= {line.split()[column] for line in file.readlines()[1:]}
    return found - {"0"}


class Draw:
    """What happens in one run."""

    def __init__(self, seed, number):
        dice = random.Random(f"{seed}/{number}")
        self.ranks = dice.randint(2, 8)
        self.transport = TRANSPORTS[number % 3]
        self.sampling, self.settings = dice.choice(SAMPLINGS)
        self.phase = dice.choice(PHASES)
        self.rank = dice.randrange(self.ranks)
        self.signal = (signal.SIGKILL, signal.SIGSTOP)[number // 3 % 2]
        self.moment = dice.random()
        self.delay = dice.random() * 0.02

    def __str__(self):
        return f"{self.ranks} ranks, {self.transport}, {self.sampling}, {self.phase}: {self.signal.name} to rank {self.rank}"


class Campaign:
    def __init__(self, options):
        self.options = options
        self.whole = {}

    def undisturbed(self, draw):
        """The whole text: the same on 1, 2, 4 and 8 ranks and over every transport (docs/numerics.md)."""
        ranks = 0 if draw.ranks in (2, 4, 8) else draw.ranks
        if (draw.sampling, ranks) not in self.whole:
            with tempfile.TemporaryDirectory() as directory:
                done = job.run(self.options, ranks, arguments(self.options, draw.settings, os.path.join(directory, "report.json")))
                done.expect(done.code == 0 and len(done.out) > 1000, "the undisturbed run failed")
                self.whole[draw.sampling, ranks] = done.out
        return self.whole[draw.sampling, ranks]

    @staticmethod
    def wait_for_phase(run, draw, path, whole):
        """Returns once the job is where it is to be struck."""
        if draw.phase == "load":
            def watched():
                pids = run.ranks().values()
                return run.process.poll() is not None or (len(pids) == draw.ranks and all("watchdog" in thread_names(p) for p in pids))
            run.expect(job.until(watched), "did not start")
            time.sleep(draw.moment * 0.1)
        elif draw.phase == "prefill":
            # The JSON is first written when the models are loaded and the first prompt comes.
            run.expect(job.until(lambda: os.path.exists(path) or run.process.poll() is not None), "did not begin")
            time.sleep(draw.delay)
        else:
            enough = 1 + int(draw.moment * len(whole) / 3)
            run.expect(run.read_until(lambda out: len(out) >= enough), "ended before it was struck")
            time.sleep(draw.delay)

    def strike(self, draw):
        whole = self.undisturbed(draw)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "report.json")
            settings = (*draw.settings, f"parallel.transport={draw.transport}")
            with job.Job(self.options, draw.ranks, arguments(self.options, settings, path), directory) as run:
                self.wait_for_phase(run, draw, path, whole)
                ranks = run.ranks()
                run.expect(draw.rank in ranks, "ended before it was struck")
                sockets, shared = sockets_of(ranks.values()), shared_memory(ranks.values())
                run.expect(shared() and sockets & open_sockets(), f"found shared memory {shared()} and sockets {sockets} of a running job")
                began = time.monotonic()
                os.kill(ranks[draw.rank], draw.signal)
                run.wait((DEFAULT_DEADLINE if draw.phase == "load" else DEADLINE) + MARGIN)
                took = time.monotonic() - began
                self.check(run, draw, whole, path)
                run.expect(job.until(lambda: not shared(), 5), f"shared memory is left: {shared()}")
                run.expect(job.until(lambda: not sockets & open_sockets(), 5), "sockets are left")
        return took

    def check(self, run, draw, whole, path):
        run.expect(run.code != 0, "mpirun returned 0")
        run.expect(len(run.out) < len(whole), "was struck too late")
        run.expect(whole.startswith(job.certain(run.out)), "stdout is not the beginning of the undisturbed text")
        lines = run.error_lines()
        run.expect(len(lines) == 1, f"{len(lines)} lines say why, expected 1")
        what = "died" if draw.signal == signal.SIGKILL else "has not answered for"
        run.expect(re.search(rf"error: rank {draw.rank} on \S+ {what}.*round \d+, collective \d+", lines[0]),
                   f"the line does not name rank {draw.rank} ({what})")
        if not os.path.exists(path):
            run.expect(draw.phase == "load", "there is no JSON")
            return
        report = job.load(path)
        run.expect(report["machine"]["transport"] == draw.transport, f"went over {report['machine']['transport']}")
        text = job.streamed(report)
        run.expect(whole.startswith(job.certain(text)), "the JSON's text is not the beginning of the undisturbed text")
        if draw.rank == 0 and draw.signal == signal.SIGKILL:
            run.expect(report["status"] == "running", f"the JSON's status is {report['status']!r}")
        else:
            run.expect(report["status"] == "failed", f"the JSON's status is {report['status']!r}")
            run.expect(lines[0].endswith(report["error"] or "?") or draw.rank == 0, f"the JSON's error is {report['error']!r}")
            run.expect(text.startswith(job.certain(run.out)), "the JSON lacks text that is on stdout")


def thread_names(pid):
    names = []
    for thread in names_in(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as file:
                names.append(file.read().strip())
        except OSError:
            pass
    return names


def main():
    parser = job.parser(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first run; with --runs 1: that one alone")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    campaign = Campaign(options)
    took = collections.defaultdict(list)
    failed = 0
    for number in range(options.first, options.first + options.runs):
        draw = Draw(options.seed, number)
        try:
            seconds = campaign.strike(draw)
            took[draw.signal.name, draw.transport].append(seconds)
            print(f"ok     {number}: {draw}; ended after {seconds:.2f} s", flush=True)
        except job.Failed as why:
            failed += 1
            print(f"FAILED {number}: {draw} (--seed {options.seed} --first {number} --runs 1)\n{why}", flush=True)
    for (name, transport), times in sorted(took.items()):
        times.sort()
        print(f"{name} over {transport}: {len(times)} jobs, ended after {times[len(times) // 2]:.2f} s (median), {times[-1]:.2f} s (longest)")
    print(f"{options.runs - failed} of {options.runs} jobs ended as they must")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
