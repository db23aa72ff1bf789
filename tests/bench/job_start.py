"""How long a job takes to its first byte of text."""

import subprocess
import time


class Failed(Exception):
    pass


def seconds_to_first_byte(command):
    """From starting the command until it writes to stdout; it is run to its end."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        first = job.stdout.read(1)
        seconds = time.perf_counter() - begin
        job.stdout.read()
    if not first or job.returncode != 0:
        raise Failed(f"{' '.join(command)}: exit code {job.returncode}, expected text")
    return seconds
