#!/usr/bin/env python3
"""The checker finds a planted breach of every rule, and nothing where there is none."""
import unittest

import house


class Planted(unittest.TestCase):
    def found(self, path, text, part):
        messages = house.breaches(path, text)
        self.assertEqual(len(messages), 1, messages)
        self.assertIn(part, messages[0])

    def clean(self, path, text):
        self.assertEqual(house.breaches(path, text), [])

    def test_every_back_edge_is_found_and_every_forward_edge_is_not(self):
        for i, room in enumerate(house.ROOMS):
            for j, target in enumerate(house.ROOMS):
                text = f'#include "{target}/some_header.h"\n'
                if j > i:
                    self.found(f"{room}/file.cpp", text, f"back edge {room} -> {target}")
                else:
                    self.clean(f"{room}/file.cpp", text)

    def test_back_edge_in_angle_brackets_or_indented(self):
        self.found("backend/cpu/deep.h", "#pragma once\n#include <runtime/config.h>\n", "back edge backend -> runtime")
        self.found("backend/cpu/deep.h", '#pragma once\n  #  include "models/config.h"\n', "back edge backend -> models")

    def test_header_beside_the_file(self):
        self.found("models/a.cpp", '#include "b.h"\n', "path from the root")
        self.found("models/a.cpp", '#include "../parallel/b.h"\n', "path from the root")

    def test_restricted_headers(self):
        self.found("runtime/a.cpp", "#include <mpi.h>\n", "<mpi.h>")
        self.found("launch/a.cpp", "#include <mpi.h>\n", "<mpi.h>")
        self.found("tests/unit/a.cpp", "#include <mpi.h>\n", "<mpi.h>")
        self.found("models/a.cpp", "#include <nccl.h>\n", "<nccl.h>")
        self.found("models/a.cpp", "#include <yaml-cpp/yaml.h>\n", "yaml-cpp")
        self.found("runtime/a.cpp", "#include <cuda_runtime.h>\n", "cuda_runtime.h")
        self.clean("parallel/a.cpp", "#include <mpi.h>\n")
        self.clean("tests/mp/a.cpp", "#include <mpi.h>\n")
        self.clean("runtime/a.cpp", "#include <yaml-cpp/yaml.h>\n")
        self.clean("backend/cuda/a.cpp", "#include <cublasLt.h>\n")

    def test_cuda_switch(self):
        self.found("backend/a.cpp", "#ifdef SPECDEC_CUDA\n", "CUDA")
        self.found("backend/a.cpp", "#if defined(USE_CUDA)\n", "CUDA")

    def test_guard(self):
        self.found("runtime/a.h", "// #pragma once\nstruct A {};\n", "#pragma once")
        self.clean("runtime/a.h", "#pragma once\nstruct A {};\n")
        self.clean("runtime/a.cpp", "struct A {};\n")

    def test_length(self):
        self.clean("models/a.cpp", "\n" * house.MAX_LINES)
        self.found("models/a.cpp", "\n" * (house.MAX_LINES + 1), "lines")
        self.clean("tests/golden/values.json", "\n" * (house.MAX_LINES + 1))

    def test_machine_paths(self):
        for folder in ("work", "root", "home", "opt"):
            self.found("README.md", f"see /{folder}/somebody/file\n", "one machine")
        self.clean("README.md", "a framework/root/file and ${HOME}/work/x\n")

    def test_leftovers(self):
        self.found("models/a.cpp", "// TO" + "DO: later\n", "leftover")


if __name__ == "__main__":
    unittest.main()
