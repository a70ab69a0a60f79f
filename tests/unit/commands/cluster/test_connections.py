from collections import Counter
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster.connections import Target, Tried, findings, shown, summary, targets

V4, V6 = Target("TCP", "10.96.0.7", 80), Target("UDP", "fd00::7", 80)


def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}


def test_every_cluster_ip_and_port_is_a_target() -> None:
    ports = [{"port": 80}, {"protocol": "UDP", "port": 80}, {"protocol": "SCTP", "port": 81}]
    found = targets(service(clusterIPs=["10.96.0.7", "fd00::7"], ports=ports))
    assert [str(target) for target in found] == [
        "TCP 10.96.0.7:80",
        "UDP 10.96.0.7:80",
        "TCP [fd00::7]:80",
        "UDP [fd00::7]:80",
    ]


@pytest.mark.parametrize(
    "spec", [{}, {"clusterIPs": ["None"], "ports": [{"port": 80}]}, {"clusterIP": "10.96.0.7", "ports": []}]
)
def test_a_service_without_an_address_is_named(spec: dict[str, Any]) -> None:
    with pytest.raises(errors.UsageError, match="Service shop/web has no cluster IP, or no TCP or UDP port"):
        targets(service(**spec))


def test_what_all_pods_answered_is_summed_up() -> None:
    tried = [Tried(V4, Counter(a=12, b=8), Counter())]
    assert list(findings(service(), tried, pods=2)) == []
    assert list(summary(tried)) == ["TCP 10.96.0.7:80 answered 20 of 20 connections, from a (12) and b (8)"]


def test_an_answer_of_a_stranger_is_one_printable_line() -> None:
    assert shown(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n") == "HTTP/1.1 400 Bad Request"
    assert shown(b"\x1b[2Jgone\xff") == "?[2Jgone\ufffd"
    assert shown(b"x" * 300) == "x" * 80


def test_one_failed_connection_is_a_problem() -> None:
    tried = [Tried(V6, Counter(a=19), Counter({"no answer within 3 s": 1}))]
    (finding,) = findings(service(), tried, pods=1)
    assert (finding.subject, finding.reason) == ("service shop/web", "ConnectionsFailed")
    assert finding.message == "UDP [fd00::7]:80 failed 1 of 20 connections from here: 1 times 'no answer within 3 s'"


def test_a_pod_that_never_answers_is_a_problem() -> None:
    (finding,) = findings(service(), [Tried(V4, Counter(a=20), Counter())], pods=2)
    assert finding.message == "TCP 10.96.0.7:80 was answered by a (20) alone, not by 2 pods"
