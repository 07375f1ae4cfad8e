"""One entry, measured: CPU per request at saturation, latency at fixed rates, memory before and after.

The upstream is started anew for each entry, so that no connection or page of one entry is there for the next.
"""

import json
import os
import socket
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from entries import HERE, HOLDFASTS, MARK, PATH, REPLICAS, VERIFIED, nginx_command, wait_until_ready
from machine import Broken, Process, connections_to

CONNECTIONS_SATURATED = 64
CONNECTIONS_FIXED = 16
RATES = (1000, 2000)
WARM_UP_SECONDS = 2
# What starting, verifying and the pauses of an entry take, and the lead of each load.
SECONDS_PER_ENTRY = 4
SECONDS_PER_LOAD = 0.4


@dataclass
class Plan:
    """How long and how often. `dur` and `rep`: saturation; `fdur` and `frep`: each fixed rate. Seconds."""

    dur: int
    rep: int
    fdur: int
    frep: int

    def seconds(self, names):
        """About how long the comparison takes."""
        fixed = len(RATES) * self.frep * (self.fdur + SECONDS_PER_LOAD)
        saturated = WARM_UP_SECONDS + self.rep * (self.dur + SECONDS_PER_LOAD)
        return sum(SECONDS_PER_ENTRY + fixed + (0 if name == "direct" else saturated) for name in names)


class Bench:
    """What all entries share. `say` prints a line of progress."""

    def __init__(self, plan, cores, folder, tools, deadline, say):
        self.plan, self.folder, self.tools, self.deadline, self.say = plan, Path(folder), Path(tools), deadline, say
        self.proxy_core, self.load_core = cores

    def run(self, entry):
        """Returns the entry's result as plain data."""
        require_free((*REPLICAS, entry.port, *entry.ports) if entry.command else REPLICAS)
        upstream_command = nginx_command("upstream.nginx.conf", self.folder / "upstream")
        with Process(upstream_command, self.load_core, self.folder / "upstream.log") as upstream:
            wait_until_ready(upstream, REPLICAS[0])
            if not entry.command:
                entry.verify()
                return {"entry": entry.name, "fixed": self._fixed(entry, upstream)}
            with Process(entry.command, self.proxy_core, entry.folder / "output.log") as proxy:
                result = self._run_proxy(entry, proxy)
        return self._check_records(entry, result)

    def _run_proxy(self, entry, proxy):
        ready = wait_until_ready(proxy, entry.port, entry.tokens[0] if entry.tokens else None)
        entry.verify()
        idle = proxy.rss_kib()
        warm = self._saturate(entry, proxy, WARM_UP_SECONDS)
        saturated = [self._saturate(entry, proxy, self.plan.dur) for _ in range(self.plan.rep)]
        after = proxy.rss_kib()
        require_spread(entry, connections_to(entry.replicas))
        cpu = statistics.median(run["cpu_us"] for run in saturated)
        rate = statistics.median(run["rate"] for run in saturated)
        self.say(f"{entry.name}: {rate:,.0f} requests/s, {cpu:.1f} us of CPU per request")
        fixed = self._fixed(entry, proxy)
        proxy.require_alive()
        requests = sum(run["requests"] for run in [warm, *saturated, *fixed[RATES[0]], *fixed[RATES[1]]])
        return {
            "entry": entry.name,
            "ready_s": round(ready, 2),
            "rss_idle_kib": idle,
            "rss_after_kib": after,
            "requests": requests,
            "saturated": saturated,
            "fixed": fixed,
        }

    def _saturate(self, entry, proxy, seconds):
        command = ["wrk", "-t1", f"-c{CONNECTIONS_SATURATED}", f"-d{seconds}s", "--timeout", "10s", "-s", str(HERE / "wrk.lua")]
        before = proxy.cpu_us()
        output = self._load([*command, f"http://127.0.0.1:{entry.port}"], seconds, entry)
        cpu = proxy.cpu_us() - before
        line = next((line for line in output.splitlines() if line.startswith("RESULT ")), None)
        if line is None:
            raise Broken(f"{entry.name}: wrk printed no result:\n{output[-1000:]}")
        run = json.loads(line.removeprefix("RESULT "))
        require_good(entry, run)
        run["rate"] = run["requests"] / (run["elapsed_us"] / 1e6)
        run["cpu_us"] = cpu / run["requests"]
        run["core_share"] = cpu / run["elapsed_us"]
        return run

    def _fixed(self, entry, process):
        """Runs by rate."""
        runs = {rate: [self._open_loop(entry, process, rate) for _ in range(self.plan.frep)] for rate in RATES}
        words = [f"p50 {median_of(runs[rate], 'p50'):.0f}, p99 {median_of(runs[rate], 'p99'):.0f} us at {rate:,}/s" for rate in RATES]
        self.say(f"{entry.name}: {'; '.join(words)}")
        return runs

    def _open_loop(self, entry, process, rate):
        seconds = self.plan.fdur
        arguments = [f"127.0.0.1:{entry.port}", PATH, str(rate), str(seconds), str(CONNECTIONS_FIXED), str(self.folder / "body.json"), MARK]
        before = process.cpu_us()
        run = json.loads(self._load([str(self.tools / "bench-openload"), *arguments], seconds, entry))
        cpu = process.cpu_us() - before
        require_good(entry, run)
        run["cpu_us"] = cpu / run["requests"]
        return run

    def _load(self, command, seconds, entry):
        """Runs a generator on its core and returns what it printed."""
        left = self.deadline.left()
        if left <= 0:
            raise Broken(f"the comparison took longer than {self.deadline.seconds:.0f} s; was the machine busy?")
        try:
            done = subprocess.run(
                ["taskset", "--cpu-list", str(self.load_core), *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=min(left + seconds, seconds + 30),
                env={**os.environ, "BENCH_BODY": str(self.folder / "body.json"), "BENCH_TOKENS": entry.tokens_file},
            )
        except subprocess.TimeoutExpired:
            raise Broken(f"{Path(command[0]).name} did not end in time") from None
        if done.returncode != 0:
            raise Broken(f"{Path(command[0]).name} failed:\n{(done.stderr or done.stdout)[-1000:]}")
        return done.stdout

    def _check_records(self, entry, result):
        """After the end of the process: how many requests have no access record."""
        if entry.name in HOLDFASTS:
            expected = result["requests"] + VERIFIED
            result["records_missing"] = max(expected - entry.count_records(), 0)
            entry.access_log.unlink(missing_ok=True)
        return result


def median_of(runs, percentile):
    """Of the latencies from the due time."""
    return statistics.median(run["due"][percentile] for run in runs)


def require_good(entry, run):
    if run["bad"] or not run["requests"]:
        raise Broken(f"{entry.name}: {run['bad']} bad answers of {run['requests']}")


def require_spread(entry, connections):
    """That every replica took part: after saturation the proxy keeps more connections to it than a probe needs."""
    idle = [port for port, count in connections.items() if count < 2]
    if idle:
        raise Broken(f"{entry.name}: connections to the replicas after saturation: {connections}; each should have some")


def require_free(ports):
    """That nobody listens there: answers of another process would be measured."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise Broken(f"port {port} is not free: {error.strerror}") from None
