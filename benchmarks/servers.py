"""Servers, proxies and clients of the data path benchmark, and their CPU time."""

import json
import resource
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import tools
from benchmarks.cluster import CLIENT_POD
from kube_nftlb import errors
from lab.lab import Lab

SERVER_PORT = 80
_TEMPORARY = "".join(f"{name}_temp_path {name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
_SERVER = f"""
daemon off; master_process off; pid nginx.pid; error_log stderr crit; worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 1000000000; tcp_nodelay on;
  {_TEMPORARY}
  server {{ listen {SERVER_PORT} backlog=4096; location / {{ return 200 "nginx $remote_addr\\n"; }} }}
}}
"""
_STREAM_PROXY = """
load_module {module}; daemon off; pid nginx.pid; error_log stderr crit; worker_processes auto;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
stream {{
  upstream servers {{ {servers} }}
  server {{ listen {port} backlog=4096; proxy_pass servers; tcp_nodelay on; }}
}}
"""
_HAPROXY = """
global
  maxconn 4000
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen servers
  bind :{port}
  balance roundrobin
{servers}
"""
# wrk itself does not print the 95th percentile.
_WRK_SCRIPT = """
done = function(summary, latency, requests)
  local form = '{"requests": %d, "seconds": %f, "failed": %d, "p50": %f, "p95": %f, "p99": %f}\\n'
  io.write(string.format(form,
    summary.requests, summary.duration / 1e6,
    summary.errors.connect + summary.errors.read + summary.errors.status + summary.errors.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
"""
_K6_SCRIPT = """
import http from "k6/http";
export const options = {
  vus: Number(__ENV.USERS), duration: __ENV.SECONDS + "s", noConnectionReuse: __ENV.REUSE === "no",
  discardResponseBodies: true, summaryTrendStats: ["med", "p(95)", "p(99)"],
};
export default function () { http.get(__ENV.URL); }
export function handleSummary(data) {
  const times = data.metrics.http_req_duration.values;
  return { stdout: JSON.stringify({
    requests: data.metrics.http_reqs.values.count, seconds: data.state.testRunDurationMs / 1000,
    failed: data.metrics.http_req_failed.values.passes,
    p50: times.med * 1000, p95: times["p(95)"] * 1000, p99: times["p(99)"] * 1000 }) + "\\n" };
}
"""


class Result(NamedTuple):
    """The result of a load generator; times in µs."""

    requests: int
    seconds: float
    failed: int
    p50: float
    p95: float
    p99: float
    cpu_s: float = 0.0
    """CPU time of the client, the servers, the proxies between them, and the kernel's packet threads."""


class Servers:
    """Processes in a lab: servers in pods, and proxies on a node. They exit with the lab."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """``folder`` receives their configuration files."""
        self.lab = lab
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []

    def serve(self, pod: str) -> None:
        """Start NGINX in a pod."""
        prefix = self._prefix(pod, _SERVER)
        self._start(pod, tools.ensure("nginx").command("-p", str(prefix), "-c", str(prefix / "conf")))

    def proxy_nginx(self, node: str, port: int, targets: Iterable[str]) -> None:
        """Start NGINX as a TCP proxy on a node."""
        nginx = tools.ensure("nginx")
        module = next((nginx.unpacked or Path("/usr")).rglob("ngx_stream_module.so"))
        servers = " ".join(f"server {target}:{SERVER_PORT};" for target in targets)
        prefix = self._prefix(f"nginx-proxy-{port}", _STREAM_PROXY.format(module=module, servers=servers, port=port))
        self._start(node, nginx.command("-p", str(prefix), "-c", str(prefix / "conf")))

    def proxy_haproxy(self, node: str, port: int, targets: Iterable[str]) -> None:
        """Start HAProxy in TCP mode on a node."""
        servers = "\n".join(f"  server s{n} {target}:{SERVER_PORT}" for n, target in enumerate(targets))
        prefix = self._prefix(f"haproxy-{port}", _HAPROXY.format(servers=servers, port=port))
        self._start(node, tools.ensure("haproxy").command("-db", "-f", str(prefix / "conf")))

    def wrk(self, host: str, port: int, connections: int, seconds: int, *, keep_alive: bool) -> Result:
        """Send requests continuously over this many connections."""
        script = self._folder / "wrk.lua"
        script.write_text(_WRK_SCRIPT)
        header = [] if keep_alive else ["-H", "Connection: close"]
        options = ["-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(script), *header]
        return self._ask(tools.ensure("wrk").command(*options, f"http://{host}:{port}/"), seconds)

    def k6(self, url: str, users: int, seconds: int, *, keep_alive: bool) -> Result:
        """Do the same with k6's virtual users."""
        script = self._folder / "k6.js"
        script.write_text(_K6_SCRIPT)
        settings = {"USERS": users, "SECONDS": seconds, "REUSE": "yes" if keep_alive else "no", "URL": url}
        options = [word for key, value in settings.items() for word in ("-e", f"{key}={value}")]
        command = tools.ensure("k6").command(
            "run", "--quiet", "--no-usage-report", "--address", "", *options, str(script)
        )
        return self._ask(["env", "K6_NO_USAGE_REPORT=true", *command], seconds)

    def close(self) -> None:
        """Stop all of them."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.communicate()

    def _prefix(self, name: str, configuration: str) -> Path:
        prefix = self._folder / name.replace("/", ".")
        prefix.mkdir(parents=True)
        (prefix / "conf").write_text(configuration)
        return prefix

    def _start(self, where: str, command: list[str]) -> None:
        self._processes.append(self.lab.popen(where, *command))

    def _ask(self, command: list[str], seconds: int) -> Result:
        servers = [pid for process in self._processes for pid in descendants(process.pid)]
        before = _cpu_s(servers) + _children_s()
        done = self.lab.exec(CLIENT_POD, *command, timeout_s=seconds + 60)
        cpu_s = _cpu_s(servers) + _children_s() - before
        try:
            answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise errors.LabError(f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr[-500:]}") from None
        return Result(**answer, cpu_s=cpu_s)


def descendants(pid: int) -> list[int]:
    """Return the PIDs of a process and all its descendants."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += descendants(int(child))
    return found


def _cpu_s(processes: Iterable[int]) -> float:
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in (*processes, *_SOFTIRQ_THREADS))


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _softirq_threads() -> list[int]:
    return [
        int(comm.parent.name) for comm in Path("/proc").glob("[0-9]*/comm") if comm.read_text().startswith("ksoftirqd/")
    ]


_SOFTIRQ_THREADS = _softirq_threads()
