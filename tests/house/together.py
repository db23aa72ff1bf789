"""All unit tests compile as one file. Tests are compiled several at a time (docs/decisions/0010-unity-builds-for-tests.md) and a sanitizer's selection groups them
otherwise: two that give one name to two things would meet there first."""
import json
import pathlib
import shlex
import subprocess
import sys


def flags(build):
    """Those that unit tests are compiled with, of any of their files."""
    for entry in json.loads((build / 'compile_commands.json').read_text()):
        words = shlex.split(entry['command'])
        if any('unit_tests.dir' in word for word in words):
            while words[0].startswith('-') or pathlib.Path(words[0]).name == 'ccache':
                words.pop(0)
            for option in ('-o', '-c'):
                at = words.index(option)
                del words[at:at + 2]
            return words
    raise ValueError(f'{build}/compile_commands.json: found no file of unit_tests, expected some')


def main(source, build):
    tests = sorted(pathlib.Path(source, 'tests/unit').glob('*.cpp'))
    print(f'{len(tests)} files')
    together = ''.join(f'#include "{test}"\n' for test in tests)
    command = [*flags(pathlib.Path(build)), '-fsyntax-only', '-x', 'c++', '-']
    return subprocess.run(command, cwd=build, input=together, text=True).returncode


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
