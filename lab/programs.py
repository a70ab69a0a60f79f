"""Find the programs a lab needs."""

import contextlib
import ctypes
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kube_nftlb import errors
from lab import build, components, debian, versions
from lab.flannel import build as flannel_build
from lab.metallb import build as metallb_build
from lab.progress import Report
from lab.versions import Version

KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kubectl")
KUBE_PROXY = "kube-proxy"
KUBE_SCHEDULER = "kube-scheduler"
OF_KUBELETS = ("kubelet", "pause")

UNPACKED = {"etcd": "etcd-server", "nftlb": "nftlb", "containerd": "containerd", "ctr": "containerd"}
"""Debian packages that are not installed, as their services would start, now and whenever the machine does."""
PACKAGES = {
    "openssl": "openssl",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "nft": "nftables",
    "curl": "curl",
}
PACKAGES_OF_PROXY = {
    "kube-nftlb": {"conntrack": "conntrack"},
    "kube-proxy-nftables": {},
    "kube-proxy-iptables": {"iptables": "iptables"},
    "kube-proxy-ipvs": {"iptables": "iptables", "ipset": "ipset"},
    "kube-proxy-nftables+kube-nftlb": {"conntrack": "conntrack"},
    "kube-proxy-nftables+metallb": {},
    "kube-proxy-nftables+metallb+kube-nftlb": {"conntrack": "conntrack"},
    "kube-proxy-iptables+kube-nftlb": {"iptables": "iptables", "conntrack": "conntrack"},
    "none": {},
}
PACKAGES_WITH_CONTAINERS = {"runc": "runc"}
PROXIES = tuple(PACKAGES_OF_PROXY)


def cache_folder() -> Path:
    """Return the folder for programs that were built."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "kube-nftlb"


def ensure(
    proxy: str, report: Report, runtime: str = components.NAMESPACES, version: Version | None = None
) -> Mapping[str, Path]:
    """Return the programs for a lab with this proxy, runtime and Kubernetes; missing ones are installed or built.

    ``report`` is called with a sentence at each step. ``version`` is that of Kubernetes. Raises LabError with what
    to do by hand.
    """
    version = version or versions.of(None)
    if proxy not in PROXIES:
        raise errors.LabError(f"--proxy must be one of {', '.join(PROXIES)}, not {proxy!r}")
    if runtime not in components.RUNTIMES:
        raise errors.LabError(f"--runtime must be one of {', '.join(components.RUNTIMES)}, not {runtime!r}")
    with_containers = runtime == components.CONTAINERS
    with contextlib.ExitStack() as stack:
        missing: dict[Version, list[str]] = {}
        found: dict[str, Path] = {}
        for of, wanted in _kubernetes_of(proxy, version, with_containers=with_containers).items():
            found |= _find_kubernetes(wanted, of)
            missing[of] = [program for program in wanted if program not in found]
            stack.enter_context(build.ahead(missing[of], of))
        found |= _other_programs(proxy, report, with_containers=with_containers)
        for of, names in missing.items():
            found |= kubernetes(names, of, report)
    return found


def _kubernetes_of(proxy: str, version: Version, *, with_containers: bool) -> Mapping[Version, Sequence[str]]:
    """Return the programs of Kubernetes by their version: kubelets may be older than the control plane."""
    wanted = {version: [*KUBERNETES, *([KUBE_PROXY] if proxy.startswith(KUBE_PROXY) else [])]}
    if with_containers:
        wanted[version].append(KUBE_SCHEDULER)
        wanted.setdefault(versions.of_kubelets(version), []).extend(OF_KUBELETS)
    return wanted


def kubernetes(wanted: Sequence[str], version: Version, report: Report) -> Mapping[str, Path]:
    """Return programs of Kubernetes; missing ones are downloaded or built. Raises LabError."""
    own = _find_kubernetes(wanted, version)
    folder = _folder_of(version)
    if to_build := [program for program in wanted if program not in own]:
        build.kubernetes(to_build, version, folder, cache_folder(), report)
        own = _find_kubernetes(wanted, version)
    return {program: _require(own.get(program), program, folder) for program in wanted}


def _other_programs(proxy: str, report: Report, *, with_containers: bool) -> dict[str, Path]:
    """Return all programs but those of Kubernetes."""
    packages = {**PACKAGES, **PACKAGES_OF_PROXY[proxy]}
    if with_containers:
        packages |= PACKAGES_WITH_CONTAINERS
    with_nftlb = proxy.endswith("kube-nftlb")
    missing = {package for program, package in packages.items() if find(program) is None}
    if with_nftlb and not _has_libnftables():
        missing.add("libnftables1")
    if with_containers and not Path(components.CNI_PLUGINS, "bridge").exists():
        missing.add("containernetworking-plugins")
    if missing:
        debian.install(sorted(missing), report)
    found = {program: _require(find(program), program) for program in packages}
    for program in ("etcd", *(("containerd", "ctr") if with_containers else ())):
        found[program] = debians(program, report)
    if with_nftlb:
        found["nftlb"] = build.nftlb(cache_folder(), report)
    if components.WITH_METALLB in proxy:
        found |= metallb_build.programs(cache_folder(), report)
    return found


def debians(program: str, report: Report) -> Path:
    """Return etcd, containerd, ctr or Debian's own nftlb, unpacked into the cache if missing. Raises LabError.

    The libraries are those of the machine.
    """
    if (found := find(program)) is None:
        package = UNPACKED[program]
        debian.unpack(package, cache_folder() / "debian" / package, report)
        found = find(program)
    return _require(found, program)


def helm(report: Report) -> Path:
    """Return a Helm of the version the chart is tested with, built if missing. Raises LabError."""
    found = next((path for path in _candidates(build.HELM) if build.has_helm_version(path)), None)
    if found is None:
        build.helm(cache_folder(), report)
        found = cache_folder() / "bin" / build.HELM
    return found


def prometheus(report: Report) -> Mapping[str, Path]:
    """Return Debian's prometheus and promtool, downloaded if missing, never started. Raises LabError."""
    unpacked = cache_folder() / "prometheus"
    names = ("prometheus", "promtool")
    found = {name: find(name) or unpacked / "usr/bin" / name for name in names}
    if not all(path.exists() for path in found.values()):
        debian.unpack("prometheus", unpacked, report)
    return {name: _require(path if path.exists() else None, name) for name, path in found.items()}


def network_plugins(report: Report = lambda _: None) -> Path:
    """Return the folder with Debian's CNI plugins, downloaded if missing. Raises LabError."""
    unpacked = cache_folder() / "debian/containernetworking-plugins"
    if not (unpacked / "usr/lib/cni").exists():
        debian.unpack("containernetworking-plugins", unpacked, report)
    return unpacked / "usr/lib/cni"


def ensure_iptables(report: Report) -> None:
    """Install iptables if it is missing. Raises LabError."""
    if find("iptables") is None:
        debian.install(["iptables"], report)


def flannel(report: Report) -> Mapping[str, Path]:
    """Return flannel's daemon, built if missing; iptables, which it calls, is installed. Raises LabError."""
    ensure_iptables(report)
    return {components.FLANNEL: flannel_build.flanneld(cache_folder(), report)}


def find(program: str) -> Path | None:
    """Find a program in $KUBEBUILDER_ASSETS, the cache, PATH, the administrators' folders or what was unpacked."""
    return next(iter(_candidates(program)), None)


def _candidates(program: str, version: Version | None = None) -> Iterable[Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [
        *([assets] if assets else []),
        str(cache_folder() / "bin"),
        str(_folder_of(version or versions.of(None))),
    ]
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/local/sbin"])
    package = cache_folder() / "debian" / UNPACKED.get(program, "none")
    unpacked = [str(package / "usr/bin"), str(package / "usr/sbin")]
    for folder in [*folders, *path.split(os.pathsep), *unpacked]:
        if found := shutil.which(program, path=folder):
            yield Path(found)


def _find_kubernetes(programs: Sequence[str], version: Version) -> Mapping[str, Path]:
    def of_version(program: str) -> Path | None:
        return next((path for path in _candidates(program, version) if build.has_version(path, version)), None)

    # Each takes a quarter of a second to print its version.
    with ThreadPoolExecutor() as pool:
        found = pool.map(of_version, programs)
        return {program: path for program, path in zip(programs, found, strict=True) if path is not None}


def _folder_of(version: Version) -> Path:
    """Return the folder of the Kubernetes programs that were built."""
    return cache_folder() / f"kubernetes-{version.full}"


def _require(path: Path | None, program: str, folder: Path | None = None) -> Path:
    if path is None:
        raise errors.LabError(f"{program} is still missing: add it to {folder or cache_folder() / 'bin'} or to PATH")
    return path


def _has_libnftables() -> bool:
    try:
        ctypes.CDLL("libnftables.so.1")
    except OSError:
        return False
    return True
