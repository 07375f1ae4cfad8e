"""The machine under the comparison: cores, priority, idle states, and what the kernel says of a process.

Two cores: one for the proxy alone, one for the upstream and the load generator. What is measured runs in one scheduling group at a high priority; a
spinner of the lowest priority on each core keeps virtual CPUs from halting, which makes wake-ups between the cores cheaper and steadier.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SPINNER = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
try:
    open("/proc/self/autogroup", "w").write("19")
except OSError:
    pass
parent = int(sys.argv[2])
while os.getppid() == parent:
    for _ in range(5_000_000):
        pass
"""


class Broken(Exception):
    """The comparison cannot be made, or an entry does not do what is compared."""


def two_cores():
    """(the core of the proxy, the core of upstream and generator)."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Broken("two cores are needed: one for the proxy, one for the upstream and the load generator")
    return cores[0], cores[1]


def raise_priority():
    """Returns None, or why this run is more exposed to other work on the machine."""
    group = Path("/proc/self/autogroup")
    try:
        os.nice(-19)
        if group.exists():
            group.write_text("-19")
    except OSError as error:
        who = "" if os.geteuid() == 0 else " (only root may)"
        return f"cannot raise the priority{who}: {error.strerror}; other work on this machine will show in the figures"
    return None


def start_spinners(cores):
    """Each in a session of its own, hence in a scheduling group of its own. They end with this process."""
    command = [sys.executable, "-c", SPINNER]
    return [
        subprocess.Popen([*command, str(core), str(os.getpid())], stdin=subprocess.DEVNULL, start_new_session=True) for core in cores
    ]


def other_load(seconds=1.0):
    """Per cent of all cores that other work takes now, by /proc/stat."""

    def read():
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    total, idle = read()
    time.sleep(seconds)
    total_after, idle_after = read()
    passed = max(total_after - total, 1)
    return 100 * (1 - (idle_after - idle) / passed)


def describe(cores):
    """What a reader needs to compare figures with those of another machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": os.cpu_count(), "kernel": os.uname().release, "proxy_core": cores[0], "load_core": cores[1]}


def connections_to(ports):
    """Established connections of this machine by the port that they lead to, from /proc/net/tcp."""
    counts = dict.fromkeys(ports, 0)
    for line in _text("/proc/net/tcp").splitlines()[1:]:
        _, _, remote, state = line.split()[:4]
        port = int(remote.split(":")[1], 16)
        if state == "01" and port in counts:
            counts[port] += 1
    return counts


class Process:
    """A child on one core, with its output in a file. Use as a context manager: it is ended on the way out, and no other process is."""

    def __init__(self, command, core, log, env=None):
        self.name = Path(command[0]).name
        self.log = Path(log)
        with open(self.log, "wb") as sink:
            self.child = subprocess.Popen(
                ["taskset", "--cpu-list", str(core), *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, patience=10):
        if self.child.poll() is not None:
            return
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(patience)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def require_alive(self):
        code = self.child.poll()
        if code is not None:
            raise Broken(f"{self.name} ended with code {code}:\n{self.last_words()}")

    def last_words(self, size=2000):
        return self.log.read_text(errors="replace")[-size:].strip() or "(no output)"

    def cpu_us(self):
        """Microseconds on a core, over all threads of the process tree. A thread that ended in between is not counted."""
        total = 0
        for pid in self._tree():
            for task in _listing(f"/proc/{pid}/task"):
                fields = _text(f"/proc/{pid}/task/{task}/schedstat").split()
                total += int(fields[0]) if fields else 0
        return total / 1000

    def rss_kib(self):
        """Resident memory of the process tree; pages that its processes share count once for each."""
        total = 0
        for pid in self._tree():
            for line in _text(f"/proc/{pid}/status").splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1])
        return total

    def _tree(self):
        pids = [self.child.pid]
        for pid in pids:
            for task in _listing(f"/proc/{pid}/task"):
                pids.extend(int(child) for child in _text(f"/proc/{pid}/task/{task}/children").split())
        return pids


def _listing(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def _text(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""
