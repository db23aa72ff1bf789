#!/usr/bin/env python3
"""Runs the command lines that the README and --help show, as they stand there.

    readme_test.py --program build/.../specdec_dist

Those with DIR or TEXT in them wait for the reader's own; the main job is tests/install/as_typed.sh's; a whole study or calibration takes a minute and more, and study_test.py runs small ones.
"""

import os
import re
import subprocess
import tempfile

import job

COMMAND = re.compile(r"^ +((?:mpirun -np \d+ |(?:echo|printf) .*\| *)?(?:specdec_(?:dist|score|tokenize|study)|allreduce_bench)(?: .*?)?)(?: {3,}\(.*)?$")
LATER = re.compile(r"\b(DIR|TEXT|notes\.txt|ids\.txt)\b|--config chinchilla-like\.yaml$|--config study-\S+ --out |--calibrate ")


def commands(text):
    found = [match[1] for line in text.splitlines() if (match := COMMAND.match(line))]
    return [command for command in found if not LATER.search(command)]


def shown(options, environment):
    """The README's lines and those of each program's --help, each once."""
    root = os.path.dirname(options.assets)
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        found = commands(file.read())
    for program in ("specdec_dist", "specdec_score", "specdec_tokenize", "specdec_study", "allreduce_bench"):
        help_text = subprocess.run([program, "--help"], env=environment, capture_output=True, text=True, check=True).stdout
        found += commands(help_text)
    return list(dict.fromkeys(found))


def as_shown(options):
    environment = {**os.environ, "PATH": os.path.dirname(options.program) + ":" + os.environ["PATH"]}
    found = shown(options, environment)
    if len(found) < 6:
        raise job.Failed(f"found only {found}: has the layout of the README or of --help changed?")
    with tempfile.TemporaryDirectory() as directory:
        # What a command writes lands here and not in the checkout.
        for name in ("assets", "NOTICE", "README.md"):
            os.symlink(os.path.join(os.path.dirname(options.assets), name), os.path.join(directory, name))
        for command in found:
            done = subprocess.run(["bash", "-c", command], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=job.LIMIT, check=False)
            if done.returncode != 0 or not done.stdout:
                raise job.Failed(f"$ {command}\nstatus {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}")
            print(f"  $ {command}")


if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), {"as_shown": as_shown})
