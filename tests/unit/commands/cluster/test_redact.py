"""The details that a bug report leaves out."""

import json
import re
import time

import pytest

from kube_nftlb.commands.cluster.options import Hide
from kube_nftlb.commands.cluster.redact import Redactor, cleaned
from tests.builders import raw_service

SALT = b"salt"
BOTH = (Hide.ADDRESSES, Hide.NAMES)


def redactor(*hidden: Hide, known: tuple[str, ...] = ("web", "shop", "web--http")) -> Redactor:
    return Redactor(hidden, SALT, known)


def test_an_object_loses_what_others_wrote_into_it() -> None:
    raw = raw_service(annotations={"mode": "dnat"})
    raw["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "password"
    raw["metadata"]["managedFields"] = ["much"]
    left = cleaned(raw)["metadata"]
    assert list(left["annotations"].values()) == ["dnat"]
    assert "managedFields" not in left


def test_a_container_loses_its_environment() -> None:
    container = {"name": "agent", "image": "x", "env": [{"value": "password"}], "envFrom": ["s"], "args": ["password"]}
    template = {"metadata": {"annotations": {"a": "password"}}, "spec": {"containers": [container]}}
    left = cleaned({"metadata": {"name": "d"}, "spec": {"template": template}})
    assert left["spec"]["template"]["spec"]["containers"] == [{"name": "agent", "image": "x"}]
    assert "password" not in json.dumps(left)


@pytest.mark.parametrize(
    "text",
    [
        "10.1.2.3",
        "tcp . 10.1.2.3 . 80",
        "10.1.2.3:443",
        "10.1.2.3-10.1.2.9",
        "10.1.2.0/24",
        "backend 10-1-2-3-6443",
        "The end is 10.1.2.3.",
        "fd00::12",
        "[fd00::12]:80",
        '"ip": "fd00::12"',
    ],
)
def test_addresses_are_hidden_wherever_they_are(text: str) -> None:
    hidden = redactor(Hide.ADDRESSES).text(text)
    assert "10.1.2" not in hidden
    assert "10-1-2" not in hidden
    assert "fd00::" not in hidden
    assert redactor(Hide.NAMES).text(text) == text


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("2001-db8-5--7-443", "{}"),
        ("backend 2001-db8-5--7-443, next", "backend {}, next"),
        ("address-2001-0db8-0005-0000-0000-0000-0000-0007", "address-{}"),
        ("2001-db8-5-0-0-0-0-7-443", "{}-443"),
        ("front--2001-db8-5--7", "front--{}"),
    ],
)
def test_addresses_with_dashes_are_hidden_by_the_same_word(text: str, hidden: str) -> None:
    word = redactor(Hide.ADDRESSES).text("2001:db8:5::7")
    said = redactor(Hide.ADDRESSES).text(text)
    assert "db8" not in said
    if text.endswith("7"):
        assert re.fullmatch(hidden.format("ip6-[0-9a-f]{6}"), said)
    else:
        assert said == hidden.format(word)


@pytest.mark.parametrize(
    "text", ["web--http", "web--80-a", "a1b2c3d4-1234-1234-1234-a1b2c3d4e5f6", "2026-01-01", "a-b"]
)
def test_names_with_dashes_are_no_addresses(text: str) -> None:
    assert redactor(Hide.ADDRESSES).text(text) == text


@pytest.mark.parametrize("run", ["-", "ab-"])
def test_a_long_run_of_dashes_takes_no_time(run: str) -> None:
    began = time.process_time()
    found = redactor(Hide.ADDRESSES).text(f"{run * 100_000} 10.0.0.1")
    assert "10.0.0.1" not in found
    assert time.process_time() - began < 5, "it took hours"


@pytest.mark.parametrize("text", ["127.0.0.1", "0.0.0.0", "::1", "version 1.0.7", "12:30:59", "aa:bb:cc:dd:ee:ff"])
def test_what_is_no_address_of_theirs_stays(text: str) -> None:
    assert redactor(*BOTH).text(text) == text


@pytest.mark.parametrize("text", ["web--http", "filter-web--http", "shop.web--http", "service web", "nat-shop.web"])
def test_names_are_hidden_also_within_names_of_chains(text: str) -> None:
    hidden = redactor(Hide.NAMES).text(text)
    assert "web" not in hidden
    assert "shop" not in hidden


def test_one_name_is_always_the_same_word_within_a_report_and_another_in_the_next() -> None:
    one, other = redactor(Hide.NAMES), Redactor((Hide.NAMES,), b"other", ["web"])
    assert one.text("web") == one.text("web")
    assert one.text("web") != other.text("web")
    assert one.text("webcam default") == "webcam default"
