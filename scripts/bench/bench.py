"""Compares Holdfast with other proxies on this machine, all in one invocation. Called by run.sh, which installs and builds.

Exit code 0: measured, whatever the figures. 1: an entry broke or answered wrongly. 2: wrong use.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import machine
from entries import DEFAULT_ORDER, make_entry, request_body
from machine import Broken
from measure import Bench, Plan
from report import Report

DEFAULT_SECONDS = 480


class Deadline:
    """The whole comparison ends, even if a part of it hangs."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


def say(text):
    print(f"==> {text}", flush=True)


def number(parser, variable, default):
    """A whole number of at least 1 from the environment."""
    text = os.environ.get(variable, "")
    if text and not (text.isdecimal() and int(text) > 0):
        parser.error(f"{variable}={text!r} is not a whole number above zero")
    return int(text) if text else default


def arguments():
    parser = argparse.ArgumentParser(description="Compares Holdfast with other proxies on this machine.")
    parser.add_argument("entries", nargs="*", metavar="ENTRY", help=f"default: {' '.join(DEFAULT_ORDER)}")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--tools", required=True, help="folder of bench-floor and bench-openload")
    parser.add_argument("--envoy", required=True)
    parser.add_argument("--holdfast", required=True)
    parser.add_argument("--out", required=True, help="folder of results.jsonl")
    options = parser.parse_args()
    unknown = [name for name in options.entries if name not in DEFAULT_ORDER]
    if unknown:
        parser.error(f"no entry {unknown[0]!r}; there are {', '.join(dict.fromkeys(DEFAULT_ORDER))}")
    options.plan = Plan(
        *(number(parser, variable, default) for variable, default in (("DUR", 5), ("REP", 3), ("FDUR", 3), ("FREP", 5)))
    )
    return options


def measure(options, names, plan, cores, write):
    """Runs the entries in order; returns their results."""
    results = []
    deadline = Deadline(max(DEFAULT_SECONDS, 1.5 * plan.seconds(names)))
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    # The workers of nginx are another user and enter folders below.
    folder.chmod(0o755)
    try:
        (folder / "body.json").write_text(request_body())
        bench = Bench(plan, cores, folder, options.tools, deadline, say)
        for turn, name in enumerate(names):
            say(f"{name} ({turn + 1} of {len(names)})")
            result = bench.run(make_entry(name, folder / f"{turn}-{name}", options))
            results.append(result)
            write({"kind": "entry", **result})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def prepare(cores):
    """Priority and spinners. Returns the spinners and what a reader of the figures should know."""
    warnings = []
    busy = machine.other_load()
    if busy > 10:
        warnings.append(f"other work takes {busy:.0f} % of this machine: the figures are not to be compared with others")
    spinners = machine.start_spinners(cores)
    refused = machine.raise_priority()
    if refused:
        warnings.append(refused)
    for warning in warnings:
        say(f"warning: {warning}")
    return spinners, warnings


def compare(options, results_file):
    def write(line):
        results_file.write(json.dumps(line) + "\n")
        results_file.flush()

    plan, names = options.plan, options.entries or DEFAULT_ORDER
    cores = machine.two_cores()
    say(f"measuring {len(names)} entries, about {plan.seconds(names) / 60:.1f} minutes; leave the machine alone meanwhile")
    spinners, warnings = prepare(cores)
    try:
        write({"kind": "machine", "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **machine.describe(cores), "warnings": warnings})
        results = measure(options, names, plan, cores, write)
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    report = Report(results)
    show(report, options.markdown, warnings)
    verdicts = [{"what": v.what, "kind": v.kind, "value": v.value, "most": v.most, "passed": v.passed} for v in report.verdicts()]
    write({"kind": "summary", "drift": report.drift(), "verdicts": verdicts})


def show(report, as_markdown, warnings):
    print()
    if as_markdown:
        print(report.markdown())
    else:
        print(report.text())
        print("\nE: CPU per request of envoy-plain (mean of its runs); F: of hyper-floor; +p50, +p99: added to direct (in brackets), from the due time.\n")
        for verdict in report.verdicts():
            print(verdict.line())
    for note in [*report.notes(), *(f"warning: {warning}" for warning in warnings)]:
        print(note)


def main():
    options = arguments()
    # Ends the children on the way out, as an interrupt does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    # Only figures of one invocation may be compared: the file of the one before goes.
    with open(out / "results.jsonl", "w") as results_file:
        try:
            compare(options, results_file)
        except Broken as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 1
    say(f"results: {out / 'results.jsonl'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
