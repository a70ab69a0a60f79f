import pytest

from kube_nftlb.operator.annotations import Options, wishes
from tests.unit.operator.objects import service

CLIENT_IP = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 300}}}


@pytest.mark.parametrize(
    ("annotations", "spec", "expected"),
    [
        pytest.param({}, {}, Options(), id="a Service that asks for nothing gets the defaults"),
        pytest.param({"mode": "dnat"}, {}, Options(mode="dnat"), id="mode is taken"),
        pytest.param({"mode": " dnat "}, {}, Options(mode="dnat"), id="blanks around a value do not matter"),
        pytest.param({"scheduler": "symhash"}, {}, Options(scheduler="symhash"), id="scheduler is taken"),
        pytest.param(
            {"scheduler": "hash-srcip"},
            {},
            Options(scheduler="hash", sched_param="srcip"),
            id="the ancestor's hash-srcip",
        ),
        pytest.param(
            {"scheduler": "hash-srcip-srcport"},
            {},
            Options(scheduler="hash", sched_param="srcip srcport"),
            id="the ancestor's hash-srcip-srcport",
        ),
        pytest.param(
            {"scheduler": "hash-srcip", "sched-param": "srcport"},
            {},
            Options(scheduler="hash", sched_param="srcport"),
            id="sched-param wins over the one inside the scheduler",
        ),
        pytest.param(
            {"scheduler": "hash", "persistence": "srcip-dstport"},
            {},
            Options(scheduler="hash", persistence="srcip dstport"),
            id="a combined persistence may be spelled with a dash",
        ),
        pytest.param(
            {}, CLIENT_IP, Options(persistence="srcip", persist_ttl=300), id="ClientIP means srcip and its timeout"
        ),
        pytest.param(
            {},
            {"sessionAffinity": "ClientIP"},
            Options(persistence="srcip", persist_ttl=10800),
            id="ClientIP lasts 3 hours",
        ),
        pytest.param(
            {"persistence": "srcmac"},
            CLIENT_IP,
            Options(persistence="srcmac", persist_ttl=300),
            id="the annotation wins, not on the ttl",
        ),
        pytest.param({"persistence": "srcmac"}, {}, Options(persistence="srcmac"), id="an annotation alone lasts 60 s"),
    ],
)
def test_what_is_asked_for_is_done(annotations, spec, expected):
    asked = wishes(service(annotations=annotations, **spec), ("ipv4",))
    assert (asked.ipv4, asked.problems) == (expected, ())


@pytest.mark.parametrize(
    ("annotations", "spec", "expected", "words"),
    [
        pytest.param(
            {"mode": "tunnel"}, {}, Options(), ["-mode:", "'tunnel'", "snat, dnat"], id="a value of no use is refused"
        ),
        pytest.param({"mode": ""}, {}, Options(), ["-mode:", "''"], id="an empty value is refused"),
        pytest.param({"helper": "ftp"}, {}, Options(), ["-helper:", "sched-param"], id="an unknown key is told of"),
        pytest.param(
            {"sched-param": "srcip"}, {}, Options(), ["'srcip' needs the scheduler hash"], id="sched-param without hash"
        ),
        pytest.param(
            {"persistence": "srcip srcport"},
            {},
            Options(),
            ["hash or symhash", "none is used"],
            id="combined without hash",
        ),
        pytest.param(
            {"persistence": "srcip srcport"},
            CLIENT_IP,
            Options(persistence="srcip", persist_ttl=300),
            ["srcip is used"],
            id="what is refused leaves sessionAffinity as it is",
        ),
        pytest.param(
            {"scheduler": "bogus", "mode": "dnat"},
            {},
            Options(mode="dnat"),
            ["'bogus'"],
            id="one refused value leaves the others",
        ),
        pytest.param({"mode": "x" * 5000}, {}, Options(), ["xxx..."], id="a huge value is cut short in the message"),
    ],
)
def test_what_cannot_be_done_leaves_the_default_and_is_told(annotations, spec, expected, words):
    asked = wishes(service(annotations=annotations, **spec), ("ipv4",))
    (problem,) = asked.problems
    assert asked.ipv4 == expected
    assert problem.reason == "InvalidAnnotation"
    assert all(word in problem.message for word in words)
    assert len(problem.message) < 500


def test_a_combined_persistence_is_kept_for_ipv4_and_refused_for_ipv6():
    asked = wishes(service(annotations={"persistence": "srcip srcport", "scheduler": "hash"}), ("ipv4", "ipv6"))
    assert asked.of("ipv4").persistence == "srcip srcport"
    assert asked.of("ipv6").persistence == "none"
    assert [problem.reason for problem in asked.problems] == ["InvalidAnnotation"]
