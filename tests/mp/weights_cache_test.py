#!/usr/bin/env python3
"""Runs jobs that keep their packed weights, and damages what they keep: texts must not change, and nothing is packed twice.

    weights_cache_test.py [CASE ...] --program build/.../specdec_dist --ranks N
"""

import os
import re
import tempfile

import job
import tiny_model

# Enough of everything for four ranks.
WIDE = {"num_key_value_heads": 4, "intermediate_size": 256}
GREEDY = ("decode.temperature=0", "decode.max_new_tokens=16", "decode.ignore_eos=true", "compare=false")


def matrices(options, target, draft):
    """Of all ranks: qkv, attention output, MLP in and out of each layer, and the head; the draft is rank 0's."""
    layers = [job.load(os.path.join(model, "config.json"))["num_hidden_layers"] for model in (target, draft)]
    return options.ranks * (4 * layers[0] + 1) + 4 * layers[1] + 1


def arguments_of(target, draft, cache, *settings):
    return ["--target", target, "--draft", draft, "--prompt", "def f(n):\n",
            *job.sets(*GREEDY, f"weights_cache={cache}", *settings)]


def expect_counts(done, from_cache, packed):
    found = done.report["machine"]["weights_cache"]
    wanted = {"from_cache": from_cache, "packed": packed, "problem": None}
    done.expect(found == wanted, f"the cache says {found}, expected {wanted}")
    line = f"Matrices of weights from the cache: {from_cache}, packed: {packed}"
    done.expect(line in done.err.splitlines(), f"the report does not say {line!r}")


def expect_warning(done, *named):
    lines = [line for line in done.err.splitlines() if ": warning: weights_cache: " in line]
    done.expect(len(lines) == 1 and all(text in lines[0] for text in named), f"one line with {named} is not what it warns: {lines}")
    found = done.report["machine"]["weights_cache"]
    done.expect(found["problem"] in lines[0], "the JSON has another problem")
    done.expect(found["from_cache"] == 0 and found["packed"] > 0, f"the cache says {found}")


class Place:
    """A folder for the cache and, unless `shipped`, a pair of tiny models; every job's text must be the one of the cache off."""

    def __init__(self, options, directory, shipped=False):
        self.options = options
        self.cache = os.path.join(directory, "a", "cache")
        if shipped:
            self.target, self.draft = job.shipped_pair(options)[1::2]
        else:
            self.target, self.weights = tiny_model.write(os.path.join(directory, "target"), **WIDE)
            self.draft, _ = tiny_model.write(os.path.join(directory, "draft"), num_hidden_layers=1)
        self.all = matrices(options, self.target, self.draft)
        self.text = self.run("off").out

    def run(self, cache=None, *settings):
        return job.reported(self.options, self.options.ranks, arguments_of(self.target, self.draft, cache or self.cache, *settings))

    def same_text(self, *where):
        done = self.run(*where)
        done.expect(done.out == self.text, f"another text than with the cache off: {self.text}")
        return done

    def files(self):
        return sorted(os.path.join(self.cache, name) for name in os.listdir(self.cache))


def in_place(shipped=False):
    def wrap(case):
        def run(options):
            with tempfile.TemporaryDirectory() as directory:
                case(Place(options, directory, shipped))
        run.__name__ = case.__name__
        return run
    return wrap


@in_place(shipped=True)
def second_start_packs_nothing(place):
    expect_counts(place.same_text(), 0, place.all)
    assert len(place.files()) == place.all, place.files()
    expect_counts(place.same_text(), place.all, 0)
    done = place.run("off")
    done.expect(done.report["machine"]["weights_cache"] is None and "from the cache" not in done.err, "speaks of a cache that is off")


@in_place()
def other_types_threads_and_ranks_have_their_own(place):
    expect_counts(place.same_text(), 0, place.all)
    expect_counts(place.same_text(place.cache, "parallel.threads=2"), place.all, 0)
    expect_counts(place.same_text(place.cache, "parallel.isa=scalar", "parallel.threads=3"), place.all, 0)
    expect_counts(place.run(place.cache, "dtype=f32"), 0, place.all)
    others = place.options.ranks * 2
    done = job.reported(place.options, others if others <= 4 else 1, arguments_of(place.target, place.draft, place.cache))
    done.expect(done.out == place.text, "another number of ranks writes another text")
    found = done.report["machine"]["weights_cache"]
    done.expect(found["from_cache"] < place.all and found["packed"] > 0, f"shards of other ranks are taken for their own: {found}")


@in_place()
def damaged_files_are_packed_again(place):
    place.same_text()
    good = {}
    for file in place.files():
        with open(file, "rb") as content:
            good[file] = content.read()
    damages = {
        "a header that is another": lambda b: re.sub(rb"layout \d", b"layout 0", b, count=1),
        "a state that is another": lambda b: b.replace(b"written 1", b"written 2", 1),
        "another user's byte order": lambda b: b.replace(b"little", b"gibber", 1),
        "a flipped bit of a panel": lambda b: b[:4200] + bytes([b[4200] ^ 4]) + b[4201:],
        "a flipped bit of the hash": lambda b: b[:-1] + bytes([b[-1] ^ 1]),
        "half a file": lambda b: b[:len(b) // 2],
        "nothing": lambda b: b"",
        "zeros": lambda b: bytes(len(b)),
        "another's panels": lambda b: b[:4096] + good[place.files()[0]][4096:],
    }
    for number, (what, damage) in enumerate(damages.items()):
        file = place.files()[1 + number % (place.all - 1)]
        bad = damage(good[file])
        assert bad != good[file], what
        with open(file, "wb") as content:
            content.write(bad)
        expect_counts(place.same_text(), place.all - 1, 1)
        with open(file, "rb") as content:
            assert content.read() == good[file], what
    os.chmod(place.files()[0], 0o666)
    expect_counts(place.same_text(), place.all - 1, 1)


@in_place()
def another_checkpoint_at_the_same_place(place):
    place.same_text()
    path = os.path.join(place.target, "model.safetensors")
    before = os.stat(path)
    other = tiny_model.Safetensors(tiny_model.shapes(tiny_model.config(**WIDE)), seed=8)
    with open(path, "r+b") as file:  # the same inode
        file.write(other.bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(path).st_size == before.st_size
    fresh = place.run("off")
    fresh.expect(fresh.out != place.text, "the other checkpoint writes the same")
    place.text = fresh.out
    of_draft = matrices(place.options, place.target, place.draft) - place.options.ranks * 9
    expect_counts(place.same_text(), of_draft, place.all - of_draft)
    expect_counts(place.same_text(), place.all, 0)
    assert len(place.files()) == place.all, "the old ones pile up"


@in_place(shipped=True)
def jobs_at_once(place):
    words = arguments_of(place.target, place.draft, place.cache)
    with job.Job(place.options, place.options.ranks, words) as one, job.Job(place.options, place.options.ranks, words) as two:
        for each in (one, two):
            each.wait()
            each.expect(each.code == 0 and each.out == place.text and "warning" not in each.err, "a job beside another goes wrong")
    expect_counts(place.same_text(), place.all, 0)
    assert len(place.files()) == place.all, place.files()


@in_place()
def folders_that_take_nothing(place):
    expect_warning(place.same_text("/proc"), "/proc/", ".part: ")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = "/proc"
    try:
        expect_warning(place.same_text("auto"), "/proc/specdec_dist: found ")
        os.environ["XDG_CACHE_HOME"] = os.path.dirname(place.cache)
        expect_counts(place.same_text("auto"), 0, place.all)
        expect_counts(place.same_text("auto"), place.all, 0)
    finally:
        del os.environ["XDG_CACHE_HOME"]
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


@in_place()
def random_weights_are_not_kept(place):
    done = place.run(place.cache, "weights=random")
    done.expect(done.report["machine"]["weights_cache"] is None and not os.path.exists(place.cache), "they are")


CASES = {case.__name__: case for case in (
    second_start_packs_nothing, other_types_threads_and_ranks_have_their_own, damaged_files_are_packed_again,
    another_checkpoint_at_the_same_place, jobs_at_once, folders_that_take_nothing, random_weights_are_not_kept)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
