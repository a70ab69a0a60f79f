"""The rules that farms become, made by the real agent and the real nftlb in a network namespace of their own.

``ruleset`` starts this module as a program. That enters new namespaces, has an agent's loop program an empty nftlb, and
prints what the kernel has then. With the program everything is gone; the host's rules are never touched.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from kube_nftlb import errors, logs
from kube_nftlb.agent.assembly import assemble
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.agent.sync.reconciler import Reconciler
from kube_nftlb.api.farm import Farm
from kube_nftlb.commands.render import Rendered
from kube_nftlb.endpointslices.slices import parse_slice
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.netfilter import namespaces, rtnetlink
from kube_nftlb.nftlb.client import LACKS_PATCHES, UNPATCHED
from kube_nftlb.settings import NftlbSettings

_SYSTEM_PROGRAMS: Final = "/usr/sbin:/sbin"
_NFTLB_PORT: Final = 5555
_LOOPBACK: Final = 1
_DONE_WITHIN_S: Final = 300
_LISTED_AT: Final = 1
_LOOK_EVERY_S: Final = 0.05
_NO_NFTLB: Final = (
    "nftlb is not installed: the image has it, and a running lab in its folder of programs; with --profile kube-proxy "
    "only farms that need it ask for it"
)
_TABLE: Final = re.compile(r"^table .*?^\}\n", re.MULTILINE | re.DOTALL)
_BLOCK: Final = re.compile(r"^\t(map|set|chain) \S+ \{\n((?:\t\t.*\n)*)\t\}\n\n?", re.MULTILINE)


class Ruleset(NamedTuple):
    """The output of ``nft list ruleset``, and the farms that nftlb or the kernel refused, each with the reason."""

    text: str
    problems: tuple[str, ...]


def ruleset(rendered: Rendered) -> Ruleset:
    """Have the farms programmed. Raises UnavailableError where a program or a permission is missing.

    nftlb is needed only if it serves one of them.
    """
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}"
    with_nftlb = any(farm.spec.engine == "nftlb" for farm in rendered.accepted)
    if with_nftlb and shutil.which("nftlb", path=path) is None:
        raise errors.UnavailableError(_NO_NFTLB)
    for program, package in (("nft", "nftables"), *((("setpriv", "util-linux"),) if with_nftlb else ())):
        if shutil.which(program, path=path) is None:
            raise errors.UnavailableError(f"{program} is not installed: install Debian's package {package}")
    done = subprocess.run(
        [sys.executable, "-m", "kube_nftlb.commands.ruleset"],
        env={**os.environ, "PATH": path},
        input=json.dumps(
            {
                "farms": [written(farm) for farm in rendered.accepted],
                "slices": rendered.view.slices,
                "policies": rendered.view.policies,
                "facts": asdict(rendered.facts),
                "with_nftlb": with_nftlb,
            }
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise errors.UnavailableError(f"no rules were made: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    return Ruleset(answer["text"], tuple(answer["problems"]))


def shorter(ruleset: str) -> str:
    """Return a ruleset without maps and sets that have no elements and chains that have no rules.

    A comment at the end of each table counts what is hidden there. Chains with a hook stay.
    """
    return _TABLE.sub(lambda table: _shorter(table[0]), ruleset)


def _shorter(table: str) -> str:
    hidden: Counter[str] = Counter()

    def shown(block: re.Match[str]) -> str:
        kind, body = block[1], block[2]
        if body if kind == "chain" else "\t\telements" in body:
            return block[0]
        hidden[kind] += 1
        return ""

    text = _BLOCK.sub(shown, table)
    if not hidden:
        return text
    counted = ", ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in sorted(hidden.items()))
    head = text.removesuffix("}\n").removesuffix("\n\n")
    return (
        f"{head}{'' if head.endswith(chr(10)) else chr(10) * 2}\t# hidden, as they are empty (--all): {counted}\n}}\n"
    )


def written(farm: Farm) -> JsonObject:
    """Return a farm without the backends that it refers to, which its agent resolves."""
    backends = () if farm.spec.backends_from else farm.spec.backends
    spec = farm.spec.model_copy(update={"backends": backends})
    return farm.model_copy(update={"spec": spec}).model_dump(mode="json", by_alias=True)


def _enter_namespaces() -> None:
    uid, gid = os.geteuid(), os.getegid()
    namespaces.unshare(namespaces.CLONE_NEWNET | (namespaces.CLONE_NEWUSER if uid != 0 else 0))
    if uid != 0:
        namespaces.become_mapped_root(uid, gid)
    with rtnetlink.connected() as ip:
        ip.link("set", index=_LOOPBACK, state="up")


async def _program(request: JsonObject, settings: NftlbSettings, nftlb: "subprocess.Popen[bytes] | None") -> Progress:
    async with assemble(settings) as (state, reconciler, *_):
        state.set_node(NodeFacts(**request["facts"]), {})
        state.set_node_ips(())
        slices = {(each.namespace, each.name): each for raw in request["slices"] if (each := parse_slice(raw))}
        for key, each in slices.items():
            state.put_slice(key, each, _LISTED_AT, None)
        state.slices_listed(slices.keys(), _LISTED_AT)
        state.replace_policies(request["policies"], _LISTED_AT)
        state.replace_all((Farm.model_validate(raw).without_trespass() for raw in request["farms"]), _LISTED_AT)
        loop = asyncio.create_task(reconciler.run())
        try:
            await asyncio.wait_for(_done(reconciler, nftlb), _DONE_WITHIN_S)
        except TimeoutError:
            raise errors.UsageError(f"not done after {_DONE_WITHIN_S} s: {reconciler.progress.last_error}") from None
        finally:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
    if nftlb is not None and nftlb.poll() is not None:
        raise errors.UsageError(f"nftlb ended with the status {nftlb.returncode}")
    return reconciler.progress


async def _done(reconciler: Reconciler, nftlb: "subprocess.Popen[bytes] | None") -> None:
    """Wait until all is programmed, or nftlb has ended."""
    while not (reconciler.settled and reconciler.progress.watermark >= _LISTED_AT):
        if nftlb is not None and nftlb.poll() is not None:
            return
        if reconciler.progress.nftlb_version == UNPATCHED:
            raise errors.UsageError(LACKS_PATCHES)
        await asyncio.sleep(_LOOK_EVERY_S)


def _run(request: JsonObject, run_dir: Path) -> Ruleset:
    settings = NftlbSettings(run_dir=run_dir, port=_NFTLB_PORT)
    environment = {
        **os.environ,
        "KUBE_NFTLB_RUN_DIR": str(run_dir),
        "KUBE_NFTLB_NFTLB_PORT": str(_NFTLB_PORT),
    }
    # Whatever ends this program ends nftlb as well, and with it the namespace.
    command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "kube_nftlb", "nftlb-daemon"]
    log = run_dir / "nftlb.log"
    with log.open("wb") as said:
        nftlb = (
            subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            if request["with_nftlb"]
            else None
        )
        try:
            progress = asyncio.run(_program(request, settings, nftlb))
        except errors.UsageError as error:
            raise errors.UsageError(f"{error}: {log.read_text(errors='replace')[-500:]}") from None
        finally:
            if nftlb is not None:
                nftlb.send_signal(signal.SIGKILL)
                nftlb.wait()
    listed = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True)
    problems = sorted(progress.problems.items())
    return Ruleset(
        listed.stdout, tuple(f"NftlbFarm {'/'.join(key)}: {each.reason}: {each.message}" for key, each in problems)
    )


def main() -> None:
    """Read what was rendered from standard input, and write the rules and the problems to standard output, as JSON."""
    logs.configure("ERROR", "console")
    request = json.load(sys.stdin)
    try:
        _enter_namespaces()
        with tempfile.TemporaryDirectory(prefix="kube-nftlb-render-") as run_dir:
            rules = _run(request, Path(run_dir))
    except OSError as error:
        sys.exit(f"this needs a network namespace of its own, as root or with user namespaces: {error}")
    except errors.KubeNftlbError as error:
        sys.exit(str(error))
    json.dump(rules._asdict(), sys.stdout)


if __name__ == "__main__":
    main()
