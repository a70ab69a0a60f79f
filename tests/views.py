"""A farm as one node sees it: decided on, translated for nftlb, and its part of the agent table."""

from typing import NamedTuple

from kube_nftlb.agent.dsr.modes import NO_LINKS, Links
from kube_nftlb.agent.engine.nftlb import steering
from kube_nftlb.agent.engine.nftlb.translate import translate
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.decide import Facts, Serve, decide
from kube_nftlb.agent.table import farm_options, traffic_policy
from kube_nftlb.api.farm import Farm
from kube_nftlb.netfilter.table_text import Contents
from kube_nftlb.nftlb import objects

ANYWHERE = NodeFacts()


class View(NamedTuple):
    """A farm on a node: in nftlb, and in the agent table before and after nftlb has it; ``problem`` if there is one."""

    farm: objects.Farm
    before: Contents
    after: Contents
    problem: str = ""


def served(farm: Farm, facts: NodeFacts = ANYWHERE, links: Links = NO_LINKS) -> Serve:
    decision = decide(Facts(farm, node=facts, links=links), lambda _: None)
    assert isinstance(decision, Serve), decision
    return decision


def translated(farm: Farm, present: objects.Farm | None = None, facts: NodeFacts = ANYWHERE) -> objects.Farm:
    """The farm for an nftlb that has ``present`` of it, wherever packets of the mode dsr go."""
    return translate(node_farm(farm, facts, None), present)


def overlay(farm: NodeFarm, present: objects.Farm | None) -> Contents:
    options = farm_options.contents(farm.spec, farm.name, farm.listeners)
    return traffic_policy.contents(farm) | steering.contents(farm, present) | options


def view(farm: Farm, present: objects.Farm | None = None, facts: NodeFacts = ANYWHERE, links: Links = NO_LINKS) -> View:
    decision = served(farm, facts, links)
    wanted = translate(decision.farm, present)
    problem = f"{decision.problem.reason}: {decision.problem.message}" if decision.problem else ""
    return View(wanted, overlay(decision.farm, present), overlay(decision.farm, wanted), problem)
