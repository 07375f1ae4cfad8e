"""What is compared: how each proxy is started, where it listens, and what its answers must say."""

import http.client
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import tokens
from machine import Broken

HERE = Path(__file__).resolve().parent
CONFIGURATIONS = HERE / "peers"
REPLICAS = (18000, 18001)
HOLDFAST_ADMIN = 19021
PATH = "/v2/models/m/infer"
TENANTS = [f"t{number}" for number in range(100)]
# Every answer of the upstream has it; an answer without it did not come from there.
MARK = '"model_version":"7"'
# As it comes, and with nothing on that the main job does not ask for.
MAIN_JOB = ["holdfast", "holdfast-main-job"]
# What no other entry is asked for: signed tokens, an experiment, limits of every scope.
FULL_POLICY = "holdfast-full-policy"
HOLDFASTS = [*MAIN_JOB, FULL_POLICY]
DEFAULT_ORDER = ["direct", "envoy-plain", "haproxy", "nginx", "hyper-floor", *HOLDFASTS, "envoy-plain"]


def request_body(size=1024):
    """An Open Inference request, padded to `size` bytes."""
    head = '{"id":"r","inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}],"parameters":{"pad":"'
    tail = '"}}'
    return head + "x" * (size - len(head) - len(tail)) + tail


@dataclass
class Entry:
    """One line of the comparison. Without a command it is the upstream itself."""

    name: str
    port: int
    command: list = field(default_factory=list)
    folder: Path = None
    # Beside `port`, what it listens on; and the replicas that it balances over.
    ports: tuple = ()
    replicas: tuple = REPLICAS[:1]
    # One of each tenant, where tenants are proved by tokens.
    tokens: list = field(default_factory=list)

    @property
    def access_log(self):
        return self.folder / "access.log"

    @property
    def tokens_file(self):
        """For the load generators. Empty: none."""
        return str(self.folder / "tokens") if self.tokens else ""

    def verify(self):
        """Asks for every tenant and reads the answers; raises `Broken` with what is wrong."""
        for number, tenant in enumerate(TENANTS):
            status, headers, body = ask(self.port, tenant, self.tokens[number] if self.tokens else None)
            self._check(tenant, status, headers, body)
        if self.name in HOLDFASTS:
            self._verify_refusals()

    def _check(self, tenant, status, headers, body):
        try:
            answer = json.loads(body)
            served = (status, answer.get("model_name"), answer.get("model_version"))
        except (ValueError, AttributeError):
            served = (status, None, None)
        if served != (200, "m", "7") or MARK not in body:
            raise Broken(f"{self.name}: tenant {tenant} got {status}: {body[:300]}")
        if self.name not in HOLDFASTS:
            return
        wanted = {"x-holdfast-model": "m", "x-holdfast-version": "7", "x-holdfast-reason": "experiment" if self.tokens else "pin"}
        stamps = {name: headers.get(name) for name in wanted}
        revision = headers.get("x-holdfast-revision") or ""
        if stamps != wanted or not revision.isdigit():
            raise Broken(f"holdfast: tenant {tenant} got the stamps {stamps}, revision {revision!r}")

    def _verify_refusals(self):
        """That the policy is in force: nobody is served without a tenant, or as a tenant that is not there."""
        bad_token = f"{self.tokens[0][:-8]}AAAAAAAA" if self.tokens else None
        for tenant in (None, "stranger"):
            status, _, body = ask(self.port, tenant, bad_token if tenant else None)
            if not 400 <= status < 500:
                raise Broken(f"holdfast: tenant {tenant} must be refused and got {status}: {body[:300]}")

    def count_records(self):
        """Requests in the access log."""
        with open(self.access_log, "rb") as log:
            return sum(1 for line in log if b'"request_id"' in line)


# Requests served before the load: one until ready, one for each tenant.
VERIFIED = 1 + len(TENANTS)


def ask(port, tenant, token=None, timeout=5):
    """(status, headers, body as text) of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    headers = {"content-type": "application/json", **({"x-tenant": tenant} if tenant else {})}
    if token:
        headers["authorization"] = f"Bearer {token}"
    try:
        connection.request("POST", PATH, request_body(), headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode(errors="replace")
    finally:
        connection.close()


def wait_until_ready(process, port, token=None, patience=30):
    """Until a request is answered with 200; returns the seconds that it took."""
    start = time.monotonic()
    last = "no answer"
    while time.monotonic() - start < patience:
        process.require_alive()
        try:
            status, _, body = ask(port, TENANTS[0], token)
            last = f"{status}: {body[:300]}"
            if status == 200:
                return time.monotonic() - start
        except (OSError, http.client.HTTPException) as error:
            last = str(error)
        time.sleep(0.1)
    raise Broken(f"{process.name} was not ready after {patience} s, last: {last}\n{process.last_words()}")


def nginx_command(configuration, folder):
    # nginx makes its temporary folders under its prefix.
    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    return [program or "nginx", "-e", "stderr", "-p", str(folder), "-c", str(CONFIGURATIONS / configuration), "-g", "daemon off;"]


def make_entry(name, folder, options):
    """`folder` is temporary and of this entry alone; `options` has the paths of what was installed and built."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "direct":
        return Entry(name, REPLICAS[0])
    if name == "envoy-plain":
        command = [options.envoy, "--concurrency", "1", "--log-level", "error", "-c", str(CONFIGURATIONS / "envoy-plain.yaml")]
        return Entry(name, 19001, command, folder)
    if name == "nginx":
        return Entry(name, 19003, nginx_command("nginx.conf", folder), folder)
    if name == "haproxy":
        program = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin") or "haproxy"
        return Entry(name, 19004, [program, "-f", str(CONFIGURATIONS / "haproxy.cfg"), "-db"], folder)
    if name == "hyper-floor":
        command = [str(Path(options.tools) / "bench-floor"), "127.0.0.1:19008", f"127.0.0.1:{REPLICAS[0]}"]
        return Entry(name, 19008, command, folder)
    if name in HOLDFASTS:
        proofs = tokens.make(folder, TENANTS) if name == FULL_POLICY else []
        command = [options.holdfast, "serve", "--config", str(holdfast_configuration(folder, name))]
        return Entry(name, 19020, command, folder, (HOLDFAST_ADMIN,), REPLICAS, proofs)
    raise Broken(f"there is no entry {name!r}; there are {', '.join(dict.fromkeys(DEFAULT_ORDER))}")


def holdfast_configuration(folder, name="holdfast"):
    """The shared part, and a hundred tenants that pin the version."""
    file, plan = ("holdfast-full-policy.yaml", ", plan: wide") if name == FULL_POLICY else ("holdfast.yaml", "")
    text = (CONFIGURATIONS / file).read_text().replace("@DIR@", str(folder))
    if name == "holdfast-main-job":
        text = f"audit: {{ enabled: false }}\nreceipts: {{ keep: 0 }}\n{text}"
    text += "".join(f'  - {{ name: {tenant}, subset: 2, pins: {{ m: "7" }}{plan} }}\n' for tenant in TENANTS)
    path = folder / "holdfast.yaml"
    path.write_text(text)
    return path
