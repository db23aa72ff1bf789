#!/usr/bin/env python3
"""Runs launch/gpu-node.sh and launch/gpu-rank.sh on a machine whose GPUs are made up: an nvidia-smi that lists them, a folder that says what is
next to them.

    gpu_launch_test.py [CASE ...] --program build/.../specdec_dist
"""

import os
import re
import subprocess
import tempfile

import job

LAUNCH = os.path.join(job.ROOT, "launch")
CORES = sorted(os.sched_getaffinity(0))
# What a rank says of itself.
SPEAK = "echo rank=${OMPI_COMM_WORLD_LOCAL_RANK-} order=$CUDA_DEVICE_ORDER interface=${NCCL_SOCKET_IFNAME-} $(taskset -cp $$ | sed 's/.*: /cores=/')"


class Machine:
    """`gpus` GPUs, of which the first half is next to the first core, the rest next to the last."""

    def __init__(self, gpus):
        self.folder = tempfile.TemporaryDirectory()
        self.gpus = gpus
        tools = os.path.join(self.folder.name, "tools")
        os.mkdir(tools)
        listed = "".join(f"{i}, GPU-{i}{i}{i}{i}-aaaa, 00000000:{0x10 + i:02X}:00.0\n" for i in range(gpus))
        with open(os.path.join(tools, "nvidia-smi"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ncase $1 in\n*index,uuid*) printf '{listed}' ;;\n*) printf '{listed}' | cut -d, -f1 ;;\nesac\n")
        os.chmod(file.name, 0o755)
        for i in range(gpus):
            device = os.path.join(self.folder.name, "bus", "pci", "devices", f"0000:{0x10 + i:02x}:00.0")
            os.makedirs(device)
            for name, value in (("local_cpulist", self.core(i)), ("numa_node", -1)):
                with open(os.path.join(device, name), "w", encoding="utf-8") as file:
                    file.write(f"{value}\n")
        self.path = f"{tools}:{os.environ['PATH']}"

    def core(self, gpu):
        return CORES[0] if gpu < self.gpus // 2 else CORES[-1]

    def run(self, script, *arguments, **variables):
        environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        environment.update({"PATH": self.path, "SPECDEC_SYSTEM": self.folder.name, **variables})
        return subprocess.run([os.path.join(LAUNCH, script), *arguments], env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=job.LIMIT, check=False)

    def rank(self, number, **variables):
        """What a rank of that number says."""
        return self.run("gpu-rank.sh", "sh", "-c", SPEAK, OMPI_COMM_WORLD_LOCAL_RANK=str(number), **variables)


def expect(holds, why, done):
    if not holds:
        raise job.Failed(f"{why}\n$ {' '.join(done.args)}\nstatus {done.returncode}\n{done.stdout}\n{done.stderr}")


def expect_cores(done, core):
    found = re.search(r"cores=(\S+)", done.stdout)
    expect(done.returncode == 0 and found and found.group(1) == str(core), f"is not on core {core}", done)
    expect(done.stderr == "", "says something", done)


def ranks_are_next_to_their_gpus(_):
    machine = Machine(8)
    for rank in range(8):
        expect_cores(machine.rank(rank), machine.core(rank))


def visible_devices_have_their_say(_):
    machine = Machine(8)
    expect_cores(machine.rank(0, CUDA_VISIBLE_DEVICES="7,0"), machine.core(7))
    expect_cores(machine.rank(1, CUDA_VISIBLE_DEVICES="7,0"), machine.core(0))
    expect_cores(machine.rank(0, CUDA_VISIBLE_DEVICES="GPU-6666"), machine.core(6))
    expect_cores(machine.rank(3, CUDA_VISIBLE_DEVICES="5"), machine.core(5))  # shared


def what_cannot_be_found_is_said(_):
    machine = Machine(2)
    for done in (machine.rank(0, CUDA_VISIBLE_DEVICES="MIG-1234"), machine.rank(0, SPECDEC_SYSTEM="/nowhere"), Machine(0).rank(0)):
        expect(done.returncode == 0 and "order=PCI_BUS_ID" in done.stdout, "does not run", done)
        expect(done.stderr.count("\n") == 1 and "note" in done.stderr and "rank 0 is not bound" in done.stderr, "does not say so in a line", done)


def nccl_keeps_to_the_interface(_):
    machine = Machine(2)
    for variables, wanted in (({}, ""), ({"SPECDEC_INTERFACE": "ib0"}, "ib0"), ({"SPECDEC_INTERFACE": "10.1.0.0/16"}, ""),
                              ({"SPECDEC_INTERFACE": "ib0", "NCCL_SOCKET_IFNAME": "eth1"}, "eth1")):
        done = machine.rank(0, **variables)
        expect(f" interface={wanted} " in done.stdout, f"is not {wanted!r}", done)


def a_node_has_a_rank_for_each_gpu(_):
    machine = Machine(4)
    for arguments, variables, ranks in (([], {}, 4), (["-np", "2"], {}, 2), ([], {"CUDA_VISIBLE_DEVICES": "1,3"}, 2)):
        done = machine.run("gpu-node.sh", *arguments, "sh", "-c", SPEAK, **variables)
        expect(done.returncode == 0, "failed", done)
        found = sorted(re.findall(r"rank=(\d+) order=PCI_BUS_ID .*cores=(\S+)", done.stdout))
        gpus = [1, 3] if variables else range(ranks)
        expect(found == [(str(rank), str(machine.core(gpu))) for rank, gpu in enumerate(gpus)], "ranks are not where they should be", done)


def wrong_words(_):
    machine = Machine(2)
    for arguments, variables, why in (
            (["-np", "3", "true"], {}, "found 2 GPUs for 3 ranks"), (["-np", "x", "true"], {}, "found 'x', expected a number of ranks"),
            ([], {}, "no program to run"), (["true"], {"CUDA_VISIBLE_DEVICES": ""}, "found no GPU"),
            (["true"], {"PATH": "/usr/bin:/bin"}, "nvidia-smi is missing")):
        done = machine.run("gpu-node.sh", *arguments, **variables)
        expect(done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1, f"is not refused with {why!r}", done)


CASES = {case.__name__: case for case in (
    ranks_are_next_to_their_gpus, visible_devices_have_their_say, what_cannot_be_found_is_said, nccl_keeps_to_the_interface,
    a_node_has_a_rank_for_each_gpu, wrong_words)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
