"""What ``kubectl nftlb get SERVICE`` says, and the tree that it prints. Pure: no I/O."""

from dataclasses import dataclass

from rich.tree import Tree

from kube_nftlb.commands.cluster.terminal import good_or_bad, plain
from kube_nftlb.prose import some_of

_NODES_NAMED_MAX = 4
_BACKENDS_SHOWN_MAX = 50


@dataclass(frozen=True)
class BackendView:
    """A backend on some nodes: what it gets there, or why it gets nothing."""

    name: str
    address: str
    node: str
    weight: int
    gets: str
    group: str = ""
    """The Service of its group; empty if the farm has one group."""


@dataclass(frozen=True)
class NodesView:
    """The answer of one or more nodes."""

    nodes: tuple[str, ...]
    does: str
    backends: tuple[BackendView, ...]


@dataclass(frozen=True)
class AddressView:
    """An address of a farm: who is admitted and who is masqueraded there; empty if other farms have all of it."""

    address: str
    type: str
    admitted: str
    masqueraded: str
    lost: str = ""
    """The farms that have the address, or some of its ports, or on some nodes; empty if none has."""
    announced: str = ""
    """Who announces it, or why nobody does; empty for any that is not of a pool."""


@dataclass(frozen=True)
class FarmView:
    """A farm of the Service, or one written by hand that refers to it."""

    name: str
    summary: str
    state: str
    addresses: tuple[AddressView, ...] = ()
    nodes: tuple[NodesView, ...] = ()
    unused: tuple[BackendView, ...] = ()
    """The backends that no node uses, and why."""


@dataclass(frozen=True)
class ServiceView:
    """A Service and its farms; ``note`` says why there are none."""

    name: str
    summary: str
    note: str
    farms: tuple[FarmView, ...]


def tree(service: ServiceView) -> Tree:
    """Return a Service as a tree: farms, and in each its addresses, and what each node does."""
    root = Tree(f"[bold]Service {plain(service.name)}[/]  {plain(service.summary)}")
    if service.note:
        root.add(good_or_bad(service.note, good=False))
    for farm in service.farms:
        _add_farm(root, farm)
    return root


def _add_farm(root: Tree, farm: FarmView) -> None:
    state = good_or_bad(farm.state, good=farm.state.startswith("programmed"))
    node = root.add(f"[bold]farm {plain(farm.name)}[/]  {state}")
    if farm.summary:
        node.add(plain(farm.summary))
    for each in farm.addresses:
        node.add(_address(each))
    for nodes in farm.nodes:
        _add_nodes(node, nodes)
    if farm.unused:
        _add_backends(node.add("not used by any node"), farm.unused)


def _address(each: AddressView) -> str:
    clients = [f"admits {each.admitted}; masquerades {each.masqueraded}"] if each.admitted else []
    lost = [f"not served: {each.lost}"] if each.lost else []
    announced = [each.announced] if each.announced else []
    text = f"{each.type} {each.address}: {'; '.join(announced + clients + lost)}"
    return good_or_bad(text, good=False) if each.lost else plain(text)


def _add_nodes(farm: Tree, nodes: NodesView) -> None:
    named = some_of(nodes.nodes, _NODES_NAMED_MAX, "nodes")
    here = farm.add(f"[bold]{plain(named)}[/]  {good_or_bad(nodes.does, good=nodes.does == 'serves')}")
    _add_backends(here, nodes.backends)


def _add_backends(parent: Tree, backends: tuple[BackendView, ...]) -> None:
    for each in backends[:_BACKENDS_SHOWN_MAX]:
        weight = f"  weight {each.weight}" if each.weight != 1 else ""
        node = f" on {each.node}" if each.node else ""
        group = f"{each.group}: " if each.group else ""
        parent.add(plain(f"{group}{each.name} {each.address}{node}{weight}: {each.gets}"))
    if len(backends) > _BACKENDS_SHOWN_MAX:
        parent.add(f"... and {len(backends) - _BACKENDS_SHOWN_MAX} more; -o json has all")
