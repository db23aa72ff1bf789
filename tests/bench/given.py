"""What a test's command line gives it beside what unittest reads."""

import argparse
import sys


def program(flag):
    """The path after `flag`, which is taken out of sys.argv."""
    parser = argparse.ArgumentParser()
    parser.add_argument(flag, required=True, dest="path")
    parsed, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return parsed.path
