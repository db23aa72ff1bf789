#!/usr/bin/env python3
"""Holds the JSON reports of real runs against docs/report.schema.json with a validator that is not ours (python3-jsonschema).

    report_schema_test.py [CASE ...] --program build/.../specdec_dist [--ranks N]

Stricter than the schema says, so that a field cannot be forgotten: an object has no field that the schema does not name.
"""

import copy
import os
import signal

import job
import jsonschema

SCHEMA = os.path.join(job.ROOT, "docs", "report.schema.json")


def closed(schema):
    """The schema with every object closed to fields that it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: closed(item) for name, item in schema.items()}
    if isinstance(schema.get("properties"), dict):
        out["additionalProperties"] = False
    return out


def validator():
    schema = job.load(SCHEMA)
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(closed(schema))


def problems(report):
    return [f"{error.json_path}: {error.message[:200]}" for error in validator().iter_errors(report)]


def run(options, *settings, prompts=2, strike=None):
    """The job with its report, which fits; with `strike(job)` once text comes."""
    arguments = [*job.shipped_pair(options), *job.sets("decode.ignore_eos=true", *settings)]
    for prompt in range(prompts):
        arguments += ["--prompt", f"def f{prompt}(n):\n"]
    done = job.reported(options, options.ranks, arguments, strike, when=lambda out: len(out) > 20)
    done.expect(problems(done.report) == [], f"the report does not fit its schema: {problems(done.report)}")
    return done


def complete(options):
    for settings in (("decode.temperature=0", "compare=true"), ("decode.temperature=0.8", "compare=true"), ("compare=false",),
                     ("decode.k=0", "compare=true"), ("compare=true", "interconnect=[native, tpu-v4-chen]")):
        done = run(options, "decode.max_new_tokens=24", *settings)
        compared = done.report["comparison"]["speedup"] is not None
        done.expect(compared == ("compare=true" in settings), "the comparison is not what was asked for")


def interrupted(options):
    done = run(options, "decode.max_new_tokens=400", "compare=false", prompts=12,
               strike=lambda struck: struck.process.send_signal(signal.SIGTERM))
    done.expect(done.report["status"] == "interrupted", f"the status is {done.report['status']!r}")


def failed(options):
    done = run(options, "decode.max_new_tokens=400", "compare=true", prompts=12,
               strike=lambda struck: os.kill(struck.ranks()[options.ranks - 1], signal.SIGKILL))
    done.expect(done.report["status"] == "failed" and done.report["error"], f"the status is {done.report['status']!r}")


def planted_faults_are_found(options):
    done = run(options, "decode.max_new_tokens=8", "compare=true")
    good = done.report

    def expect_found(why, change):
        bad = copy.deepcopy(good)
        change(bad)
        done.expect(problems(bad), f"the schema takes {why}")

    expect_found("an unknown status", lambda report: report.update(status="fine"))
    expect_found("a version that is text", lambda report: report.update(version="1"))
    expect_found("no comparison", lambda report: report.pop("comparison"))
    expect_found("an undocumented field", lambda report: report["machine"].update(colour="red"))
    for at, _ in enumerate(good["runs"]):
        expect_found("a run of an unknown interconnect", lambda report, at=at: report["runs"][at].pop("interconnect"))
        expect_found("a fraction of a token", lambda report, at=at: report["runs"][at]["metrics"].update(tokens=1.5))
        expect_found("no token_ids", lambda report, at=at: report["runs"][at]["outputs"][0].pop("token_ids"))
        expect_found("a token_id that is text", lambda report, at=at: report["runs"][at]["outputs"][1]["token_ids"].append("7"))
        expect_found("another reason", lambda report, at=at: report["runs"][at]["outputs"][0].update(finish_reason="tired"))
        expect_found("a split without drafting", lambda report, at=at: report["runs"][at]["metrics"]["split"].pop("draft"))
        expect_found("percentiles without one", lambda report, at=at: report["runs"][at]["metrics"]["loop_ms"].pop("p90"))


CASES = {case.__name__: case for case in (complete, interrupted, failed, planted_faults_are_found)}

if __name__ == "__main__":
    job.run_cases(job.parse(__doc__), CASES)
