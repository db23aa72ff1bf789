"""Where bad_input_test.py keeps a case: its own directory with a good target, and what it means to refuse."""

import json
import os
import tempfile

import job
import tiny_model

TENSOR = "model.layers.1.mlp.up_proj.weight"
ALONE = {}
TOGETHER = {}


class Place:
    """A case's own directory, with a good target in it."""

    def __init__(self, options, directory):
        self.options = options
        self.ranks = options.ranks
        self.directory = directory
        self.target, self.weights = tiny_model.write(self.path("target"))
        self.config_json = os.path.join(self.target, "config.json")
        self.safetensors = os.path.join(self.target, "model.safetensors")

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, content):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def refuses(self, arguments, *named):
        """`named`: what the line must contain."""
        done = job.run(self.options, self.ranks, arguments, self.directory)
        lines = done.error_lines()
        done.expect(done.code == 2, "exit code is not 2")
        done.expect(len(lines) == 1, f"{len(lines)} lines say why, expected 1")
        for text in named:
            done.expect(text in lines[0], f"the line does not contain {text!r}")
        done.expect(len(lines[0]) < 1000, f"the line has {len(lines[0])} characters")
        done.expect(done.out == b"", "something is on stdout")
        if self.ranks == 0:
            done.expect(done.err == lines[0] + "\n", "more than that one line is on stderr")

    def refuses_run(self, *named, target=None, prompt=("--prompt", "abc"), more=()):
        self.refuses(["--target", target or self.target, *prompt, "--set", "decode.max_new_tokens=4", *more], *named)

    def refuses_set(self, assignment, *named):
        self.refuses_run("--set", *named, more=["--set", assignment])

    def refuses_config(self, yaml, *named):
        self.refuses(["--config", self.write("run.yaml", yaml)], "run.yaml", *named)

    def refuses_model(self, changes, *named):
        """config.json of the target with other values; the weights stay."""
        tiny_model.write_text(self.config_json, json.dumps(tiny_model.config(**changes)))
        self.refuses_run("config.json", *named)

    def refuses_weights(self, *named, **entry):
        """One tensor's header entry changed."""
        self.weights.header[TENSOR].update(entry)
        self.weights.write(self.safetensors)
        self.refuses_run("target", TENSOR, *named)


def case(alone=True, together=False):
    """Registers a case for one rank without mpirun, for several ranks, or for both."""
    def register(function):
        def run(options):
            with tempfile.TemporaryDirectory() as directory:
                function(Place(options, directory))
        if alone:
            ALONE[function.__name__] = run
        if together:
            TOGETHER[function.__name__] = run
        return function
    return register
