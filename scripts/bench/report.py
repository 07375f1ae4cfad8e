"""From results to tables: ratios to Envoy and to the floor, what a proxy adds to the direct answer, and the bar.

E is the CPU per request of `envoy-plain`, the mean of its first and last run; F is that of `hyper-floor`. What is added at a fixed rate is the latency
through the proxy minus the latency without it, by the same percentile. MB are 10^6 bytes.
"""

import statistics
from dataclasses import dataclass

from entries import FULL_POLICY, HOLDFASTS, MAIN_JOB
from measure import RATES, median_of

COLUMNS = [
    "entry",
    "requests/s",
    "CPU us/request",
    "x E",
    "x F",
    *(f"+{percentile} us {rate:,}/s" for rate in RATES for percentile in ("p50", "p99")),
    "MB idle",
    "MB after",
]
SATURATED_SHARE = 0.9


@dataclass
class Verdict:
    """One line of the bar."""

    what: str
    value: float
    most: float
    kind: str

    @property
    def passed(self):
        return self.value <= self.most

    def line(self):
        word = "PASS" if self.passed else "FAIL"
        return f"{word}  {self.kind:<4}  {self.what}: {self.value:.2f} (at most {self.most:.2f})"


class Report:
    """Over the results of one invocation, in the order of the runs."""

    def __init__(self, results):
        self.results = results
        self.direct = next((result for result in results if result["entry"] == "direct"), None)

    def rows(self):
        names = [result["entry"] for result in self.results]
        again = [" (again)" if name in names[:at] else "" for at, name in enumerate(names)]
        return [self._row(result, result["entry"] + suffix) for result, suffix in zip(self.results, again)]

    def cpu(self, name):
        """Mean over the runs of the entry, each the median of its repeats. None: it was not measured."""
        runs = [_cpu(result) for result in self._of(name) if "saturated" in result]
        return statistics.mean(runs) if runs else None

    def added(self, name, rate, percentile):
        """Mean over the runs of the entry, microseconds. None: it or the direct way was not measured."""
        if self.direct is None or not self._of(name):
            return None
        base = median_of(self.direct["fixed"][rate], percentile)
        return statistics.mean(median_of(result["fixed"][rate], percentile) for result in self._of(name)) - base

    def drift(self):
        """Last Envoy against the first, as a share of the first. None: fewer than two runs."""
        runs = [_cpu(result) for result in self._of("envoy-plain")]
        return runs[-1] / runs[0] - 1 if len(runs) > 1 else None

    def verdicts(self):
        """The bar for the main job and the full policy; only the lines for which both sides were measured."""
        found = []
        envoy, floor = (self.cpu(name) for name in ("envoy-plain", "hyper-floor"))
        bases = {"E": envoy, "F": floor}
        bars = {name: [("E", 0.32, "must"), ("F", 1.4, "must"), ("F", 1.15, "aim")] for name in MAIN_JOB}
        bars[FULL_POLICY] = [("E", 0.4, "must"), ("E", 0.29, "aim"), ("F", 1.25, "aim")]
        for name, bar in bars.items():
            cpu = self.cpu(name)
            for base, most, kind in bar:
                if cpu is not None and bases[base]:
                    found.append(Verdict(f"CPU per request of {name}, x {base}", cpu / bases[base], most, kind))
        envoy, floor = (self.added(name, RATES[0], "p50") for name in ("envoy-plain", "hyper-floor"))
        for name in ("holdfast", FULL_POLICY):
            added = self.added(name, RATES[0], "p50")
            what = f"added p50 at {RATES[0]:,}/s of {name}, us"
            if added is not None and envoy is not None:
                found.append(Verdict(f"{what}, against envoy-plain", added, envoy, "must"))
            if added is not None and floor is not None:
                found.append(Verdict(f"{what}, against 1.1 x hyper-floor", added, 1.1 * floor, "aim"))
        for result in self._of("holdfast"):
            idle, after = _mb(result["rss_idle_kib"]), _mb(result["rss_after_kib"])
            found += [Verdict("MB idle", idle, 40, "must"), Verdict("MB idle", idle, 20, "aim")]
            found += [Verdict("MB after load", after, 80, "must"), Verdict("MB after load", after, 40, "aim")]
        missing = [result["records_missing"] for name in HOLDFASTS for result in self._of(name)]
        if missing:
            found.append(Verdict("requests without access record", sum(missing), 0, "must"))
        return found

    def notes(self):
        found = []
        drift = self.drift()
        if drift is not None:
            found.append(f"drift: the last envoy-plain took {100 * drift:+.1f} % CPU per request against the first")
        for result in self.results:
            share = min((run["core_share"] for run in result.get("saturated", [])), default=1)
            if share < SATURATED_SHARE:
                found.append(f"{result['entry']} used {100 * share:.0f} % of its core only: its rate is not its limit, its CPU per request stands")
        return found

    def text(self):
        rows = [COLUMNS, *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        return "\n".join("  ".join(_pad(cell, width, at) for at, (cell, width) in enumerate(zip(row, widths))) for row in rows)

    def markdown(self):
        head = f"| {' | '.join(COLUMNS)} |\n|---{'|---:' * (len(COLUMNS) - 1)}|\n"
        table = head + "".join(f"| {' | '.join(row)} |\n" for row in self.rows())
        verdicts = self.verdicts()
        if not verdicts:
            return table
        bar = "".join(f"| {v.what} | {v.kind} | {v.value:.2f} | {v.most:.2f} | {'pass' if v.passed else 'fail'} |\n" for v in verdicts)
        return f"{table}\n| bar | kind | measured | at most | |\n|---|---|---:|---:|---|\n{bar}"

    def _of(self, name):
        return [result for result in self.results if result["entry"] == name]

    def _row(self, result, label):
        row = [label]
        if "saturated" in result:
            cpu, envoy, floor = _cpu(result), self.cpu("envoy-plain"), self.cpu("hyper-floor")
            row += [f"{statistics.median(run['rate'] for run in result['saturated']):,.0f}", f"{cpu:.1f}"]
            row += [f"{cpu / base:.2f}" if base else "-" for base in (envoy, floor)]
        else:
            row += ["-"] * 4
        for rate in RATES:
            row += [self._latency(result, rate, percentile) for percentile in ("p50", "p99")]
        memory = [result.get("rss_idle_kib"), result.get("rss_after_kib")]
        return row + ["-" if kib is None else f"{_mb(kib):.1f}" for kib in memory]

    def _latency(self, result, rate, percentile):
        here = median_of(result["fixed"][rate], percentile)
        if result is self.direct:
            return f"({here:.0f})"
        return "-" if self.direct is None else f"{here - median_of(self.direct['fixed'][rate], percentile):.0f}"


def _cpu(result):
    return statistics.median(run["cpu_us"] for run in result["saturated"])


def _mb(kib):
    return kib * 1024 / 1e6


def _pad(cell, width, column):
    return cell.ljust(width) if column == 0 else cell.rjust(width)
