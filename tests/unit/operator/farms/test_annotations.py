from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_nftlb import names
from kube_nftlb.api.base import Family, annotation_key
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.limits import Limits
from kube_nftlb.api.values import Mode
from kube_nftlb.operator.farms.annotations import KEYS, service_options
from kube_nftlb.operator.farms.builder import Profile, build
from kube_nftlb.operator.model.annotation_options import FARM_OPTIONS
from tests.annotations import NEEDED_BY, SERVICE_KEYS
from tests.builders import service

CLIENT_IP = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 300}}}
DUAL: dict[str, Any] = {"clusterIPs": ["10.96.0.10", "fd00::10"]}
UNMARKED = {"ports": "8000-8100", "addresses": "192.0.2.9", "address-pool": "office", "address-sharing-key": "one"}
"""A value of each annotation that no field of the models marks."""


def asked(
    annotations: dict[str, str], families: tuple[Family, ...] = ("ipv4",), **spec: Any
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The fields of the IPv4 farm, and all problems."""
    found = service_options(service(annotations=annotations, **spec), families)
    fields, refused = found.of("ipv4")
    return fields, [problem.message for problem in found.problems], [refusal.message for refusal in refused]


def told(annotations: dict[str, str], **spec: Any) -> list[str]:
    return [problem.message for problem in build(service(annotations=annotations, **spec)).problems]


def spec_of(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    (wanted,) = build(service(annotations=annotations, **spec)).farms
    FarmSpec.model_validate(wanted.spec)
    return wanted.spec


@pytest.mark.parametrize("key", SERVICE_KEYS)
def test_every_key_sets_its_field(key: str) -> None:
    text, fields = SERVICE_KEYS[key]
    assert asked({key: text, **NEEDED_BY.get(key, {})}) == (fields, [], [])


def test_every_field_that_the_models_mark_has_a_key_here() -> None:
    marked = {annotation_key(model, name) for model in (FarmSpec, Limits) for name in model.model_fields} - {None}
    assert marked == SERVICE_KEYS.keys() | {"protocol"}
    assert set(KEYS) == marked | UNMARKED.keys()


@pytest.mark.parametrize(
    ("annotations", "spec", "expected"),
    [
        pytest.param({}, {}, {}, id="a Service that asks for nothing gets the defaults"),
        pytest.param({"mode": " dnat "}, {}, {"mode": "dnat"}, id="blanks around a value do not matter"),
        pytest.param(
            {"scheduler": "hash-srcip"},
            {},
            {"scheduler": "hash", "schedParam": "srcip"},
            id="the ancestor's hash-srcip",
        ),
        pytest.param(
            {"scheduler": "hash-srcip-srcport"},
            {},
            {"scheduler": "hash", "schedParam": "srcip srcport"},
            id="the ancestor's hash-srcip-srcport",
        ),
        pytest.param(
            {"scheduler": "hash-srcip", "sched-param": "srcport"},
            {},
            {"scheduler": "hash", "schedParam": "srcport"},
            id="sched-param wins over the one inside the scheduler",
        ),
        pytest.param(
            {"scheduler": "hash", "persistence": "srcip-dstport"},
            {},
            {"scheduler": "hash", "persistence": "srcip dstport"},
            id="a combined persistence may be spelled with a dash",
        ),
        pytest.param(
            {"scheduler": "symhash", "persistence": "dstport, srcip"},
            {},
            {"scheduler": "symhash", "persistence": "srcip dstport"},
            id="or with a comma, in any order",
        ),
        pytest.param(
            {}, CLIENT_IP, {"persistence": "srcip", "persistTTL": 300}, id="ClientIP means srcip and its time"
        ),
        pytest.param(
            {},
            {"sessionAffinity": "ClientIP"},
            {"persistence": "srcip", "persistTTL": 10800},
            id="ClientIP lasts 3 hours",
        ),
        pytest.param(
            {"persistence": "srcmac"},
            CLIENT_IP,
            {"persistence": "srcmac", "persistTTL": 300},
            id="the annotation wins, not on the ttl",
        ),
        pytest.param(
            {"persist-ttl": "90"}, CLIENT_IP, {"persistence": "srcip", "persistTTL": 90}, id="that one has its own"
        ),
        pytest.param(
            {"persistence": "none"},
            CLIENT_IP,
            {"persistence": "none", "persistTTL": 300},
            id="the annotation none wins over ClientIP",
        ),
        pytest.param({"log": "none"}, {}, {"log": "none"}, id="no log, no prefix"),
        pytest.param(
            {"log": "output", "log-prefix": "mine"},
            {},
            {"log": "output", "logPrefix": "mine"},
            id="a prefix of one's own",
        ),
        pytest.param({"est-connlimit": "0"}, {}, {}, id="0 is nftlb's word for no limit"),
        pytest.param({"queue": "-1"}, {}, {}, id="and -1 for no queue"),
    ],
)
def test_what_is_asked_for_is_done(annotations: dict[str, str], spec: dict[str, Any], expected: dict[str, Any]) -> None:
    assert asked(annotations, **spec) == (expected, [], [])


@pytest.mark.parametrize(
    ("annotations", "spec", "expected", "words"),
    [
        pytest.param(
            {"mode": "tunnel"}, {}, {}, ["-mode:", "'tunnel'", "snat, dnat", "snat is used"], id="a value of no use"
        ),
        pytest.param({"mode": ""}, {}, {}, ["-mode:", "''"], id="an empty value is refused"),
        pytest.param({"colour": "red"}, {}, {}, ["-colour:", "sched-param"], id="an unknown key is told of"),
        pytest.param(
            {"sched-param": "srcip"}, {}, {}, ["-sched-param", "scheduler hash"], id="sched-param without hash"
        ),
        pytest.param(
            {"persistence": "srcip dstip srcmac dstmac"},
            {},
            {},
            ["'srcip dstip srcmac dstmac'", "-persistence"],
            id="a persistence too long for nftlb",
        ),
        pytest.param(
            {"persistence": "srcip dstip srcmac dstmac"},
            CLIENT_IP,
            {"persistence": "srcip", "persistTTL": 300},
            ["srcip is used"],
            id="what is refused leaves sessionAffinity as it is",
        ),
        pytest.param(
            {"scheduler": "bogus", "mode": "dnat"},
            {},
            {"mode": "dnat"},
            ["'bogus'"],
            id="one refused leaves the others",
        ),
        pytest.param({"mode": "x" * 5000}, {}, {}, ["xxx..."], id="a huge value is cut short in the message"),
        pytest.param({"sessions": "10.0.0.1=a"}, {}, {}, ["persistence", "ignored"], id="sessions without persistence"),
        pytest.param(
            {"source-addr": "10.0.0.9", "mode": "dnat"},
            {},
            {"mode": "dnat"},
            ["requires mode snat"],
            id="sourceAddress",
        ),
        pytest.param({"source-addr": "fd00::9"}, {}, {}, ["no family"], id="an address of another family"),
        pytest.param({"source-addr": "10.0.0.9,10.0.0.8"}, {}, {}, ["one of each family"], id="two of one family"),
        pytest.param({"source-addr": "127.0.0.1"}, {}, {}, ["'127.0.0.1'"], id="an address that nobody can use"),
        pytest.param({"persist-ttl": "0"}, {}, {}, ["from 1 to 86400", "60 is used"], id="a number out of bounds"),
        pytest.param({"persist-ttl": "1e3"}, {}, {}, ["from 1 to 86400"], id="no number"),
        pytest.param({"tcp-strict": "yes"}, {}, {}, ["on, off, true or false", "off is used"], id="no truth"),
        pytest.param({"log": "input up"}, {}, {}, ["input, forward, output"], id="no words of a log"),
        pytest.param({"log-prefix": 'x" drop; #'}, {}, {}, ["letters, digits"], id="text that would reach nft"),
        pytest.param({"log-prefix": "x" * 41}, {}, {}, ["1 to 40"], id="text that is too long"),
        pytest.param({"new-rtlimit": "5/year"}, {}, {}, ["100/second"], id="no rate"),
        pytest.param({"mark": "0x1"}, {}, {}, ["0x1000"], id="a mark that is a backend's"),
        pytest.param({"policies": "a;b"}, {}, {}, ["at most 16 names"], id="no name of a policy"),
        pytest.param({"policies": ",".join(f"p{i}" for i in range(17))}, {}, {}, ["at most 16"], id="too many"),
        pytest.param(
            {"sessions": "10.0.0.1=a,10.0.0.1=b", "persistence": "srcip"},
            {},
            {"persistence": "srcip"},
            ["clients and their backends"],
            id="a client twice, which the API server would refuse with all of the farm",
        ),
        pytest.param({"protocol": "udp"}, {}, {}, ["not all"], id="a protocol that is the Service's to say"),
        pytest.param({"ports": "9000-8000"}, {}, {}, ["lower port", "only port 80"], id="a range that runs backwards"),
        pytest.param({"ports": "1-2000"}, {}, {}, ["1024"], id="too many ports"),
        pytest.param({"ports": "1," * 500}, {}, {}, ["1 to 100 characters"], id="a list that is too long"),
        pytest.param({"ports": ""}, {}, {}, ["only port 80"], id="no port"),
        pytest.param({"ports": "http"}, {}, {}, ["'http'"], id="a port's name"),
        pytest.param(
            {"persistence": "hash-srcip", "scheduler": "weight"},
            {},
            {"scheduler": "weight"},
            ["is a scheduler", "ignored"],
            id="a scheduler as persistence beside another",
        ),
        pytest.param(
            {"persistence": "hash-srcip"},
            {},
            {"scheduler": "hash", "schedParam": "srcip"},
            ["is a scheduler", "used as the scheduler"],
            id="a scheduler as persistence, as the ancestor's older README had it",
        ),
    ],
)
def test_what_cannot_be_done_leaves_the_default_and_is_told(
    annotations: dict[str, str], spec: dict[str, Any], expected: dict[str, Any], words: list[str]
) -> None:
    assert asked(annotations, **spec)[0] == expected
    (problem,) = build(service(annotations=annotations, **spec)).problems
    assert problem.reason == "InvalidAnnotation"
    assert all(word in problem.message for word in words), problem.message
    assert len(problem.message) < 700


def test_a_combined_persistence_is_kept_for_ipv4_and_refused_for_ipv6() -> None:
    annotations = {"persistence": "srcip srcport", "scheduler": "hash"}
    built = build(service(annotations=annotations, **DUAL))
    assert [wanted.spec["persistence"] for wanted in built.farms] == ["srcip srcport", "none"]
    (problem,) = built.problems
    assert "nftlb exits on longer keys; none is used by the farm web--http--ipv6" in problem.message


def test_addresses_and_clients_go_to_the_farms_of_their_family() -> None:
    annotations = {
        "source-addr": "10.0.0.9, fd00::9",
        "persistence": "srcip",
        "sessions": "10.0.0.1 = a, fd00::1=b",
    }
    built = build(service(annotations=annotations, **DUAL))
    assert [wanted.spec["sourceAddress"] for wanted in built.farms] == ["10.0.0.9", "fd00::9"]
    assert [[s["client"] for s in wanted.spec["sessions"]] for wanted in built.farms] == [["10.0.0.1"], ["fd00::1"]]
    assert built.problems == ()
    one = build(service(annotations={"source-addr": "10.0.0.9"}, **DUAL))
    assert [wanted.spec.get("sourceAddress") for wanted in one.farms] == ["10.0.0.9", None]
    assert one.problems == ()


ONE = [{"name": "http", "port": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("annotations", "port", "protocol", "ports", "keep_port"),
    [
        pytest.param({}, {}, "TCP", "80", False, id="nothing asked for"),
        pytest.param({"protocol": "all"}, {}, "All", "", True, id="all of them, as the client asked"),
        pytest.param({"ports": "8000-8100, 9000"}, {}, "TCP", "80,8000-8100,9000", True, id="beside the Service's own"),
        pytest.param({"ports": "79-81"}, {}, "TCP", "79-81", True, id="which may be among them"),
        pytest.param({"ports": "81"}, {"targetPort": 80}, "TCP", "80,81", True, id="the targetPort is the port"),
        pytest.param({"ports": "81"}, {"targetPort": 8080}, "TCP", "80,81", False, id="all go to another targetPort"),
        pytest.param({"ports": "81"}, {"targetPort": "web"}, "TCP", "80,81", False, id="or to a named one"),
    ],
)
def test_what_is_listened_on(
    annotations: dict[str, str], port: dict[str, Any], protocol: str, ports: str, *, keep_port: bool
) -> None:
    spec = spec_of(annotations, ports=[{**ONE[0], **port}])
    assert (spec["protocol"], spec["addresses"]) == (
        protocol,
        [{"type": "ClusterIP", "ip": "10.96.0.10", "ports": ports}],
    )
    assert spec["backendsFrom"][0]["keepPort"] == keep_port


@pytest.mark.parametrize("annotations", [{"protocol": "all"}, {"ports": "81"}])
def test_a_service_of_two_ports_cannot_have_them_all(annotations: dict[str, str]) -> None:
    ports = [*ONE, {"name": "other", "port": 81, "protocol": "TCP"}]
    built = build(service(annotations=annotations, ports=ports))
    assert [wanted.spec["addresses"][0]["ports"] for wanted in built.farms] == ["80", "81"]
    assert ["a Service with one port, and this one has 2" in problem.message for problem in built.problems] == [True]


def test_a_service_with_all_ports_is_told_that_its_node_port_is_not_served() -> None:
    built = build(service(annotations={"protocol": "all"}, type="NodePort", ports=[{**ONE[0], "nodePort": 30080}]))
    ((wanted,), (problem,)) = built
    assert [each["type"] for each in wanted.spec["addresses"]] == ["ClusterIP"]
    assert (problem.reason, problem.message) == (
        "InvalidAnnotation",
        f"{names.ANNOTATION_PREFIX}protocol: with all there are no node ports: port 30080 of the nodes is not served",
    )


@pytest.mark.parametrize("default", ["snat", "dnat"])
def test_a_service_cannot_have_mode_local_and_keeps_the_default(default: Mode) -> None:
    built = build(service(annotations={"mode": "local", "policies": "office"}), profile=Profile(mode=default))
    ((wanted,), (problem,)) = built
    FarmSpec.model_validate(wanted.spec)
    assert (wanted.spec["mode"], wanted.spec["policies"]) == (default, ["office"])
    assert problem.message == (
        f"{names.ANNOTATION_PREFIX}mode: mode local is for farms without backends, and a Service has some; "
        f"it can have snat, dnat or dsr; {default} is used"
    )


def test_an_option_that_one_protocol_lacks_is_reported_with_its_farms() -> None:
    ports = [{"name": f"p{i}", "port": i, "protocol": "TCP"} for i in range(1, 9)]
    (message,) = told({"persistence": "srcip srcport", "scheduler": "hash"}, ports=ports, **DUAL)
    assert message.endswith("by the farm web--p1--ipv6, web--p2--ipv6, web--p3--ipv6 and 5 more")


HOSTILE = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        ["; flush ruleset", 'x" drop', "a\nb", "$(id)", "@set", "{ }", "10.0.0.1;", "0x2000\n", "srcip;", "1/second\n#"]
    ),
)


SCHEMA = FarmSpec.model_json_schema()["properties"]
WORDS = {option.key: SCHEMA.get(option.path[-1], {}).get("enum", ()) for option in FARM_OPTIONS}


def allowed(key: str) -> list[str]:
    """Values that an annotation may have by itself; with others, or on a Service, some are none."""
    return [*WORDS.get(key, ()), {"protocol": "all", **UNMARKED}.get(key) or SERVICE_KEYS[key][0]]


@given(
    st.lists(
        st.sampled_from(sorted(KEYS)).flatmap(
            lambda key: st.tuples(st.just(key), st.one_of(HOSTILE, st.sampled_from(allowed(key))))
        ),
        min_size=1,
        max_size=4,
    ).map(dict),
    st.booleans(),
)
@example(texts={"mode": "local"}, dual=False)
@example(texts={"mode": "dsr", "policies": "office"}, dual=True)
def test_no_text_of_a_tenant_breaks_the_service_or_passes_the_models(texts: dict[str, str], dual: bool) -> None:
    built = build(service(annotations=texts, **(DUAL if dual else {})))
    assert len(built.farms) == (2 if dual else 1)
    for wanted in built.farms:
        FarmSpec.model_validate(wanted.spec)
        said = {str(value) for value in (*wanted.spec.values(), *wanted.spec["limits"].values())}
        assert not any(mark in text for text in said for mark in (";", '"', "$", "\n", "@", "#"))
    assert all(problem.reason == "InvalidAnnotation" for problem in built.problems)


def test_annotations_of_others_are_not_looked_at() -> None:
    plain = service()
    metadata = plain.metadata.model_copy(update={"annotations": {"example.com/mode": "x", names.GROUP: "y"}})
    assert build(plain.model_copy(update={"metadata": metadata})).problems == ()
