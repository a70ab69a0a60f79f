"""The fake nftlb answers as the real one does, so that what is tested against the fake holds."""

import json
from typing import Any

import httpx
import pytest

from tests.builders import farm, raw_backend
from tests.contract.conftest import PORT
from tests.fakes.nftlb import KEY, FakeNftlb
from tests.views import translated


def _post(*farms: dict[str, Any]) -> tuple[str, str, bytes]:
    return "POST", "/farms", json.dumps({"farms": farms}).encode()


def _wire(**changes: Any) -> dict[str, Any]:
    return translated(farm(**changes)).wire()


FARM = _wire(backends=[raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3", weight=3)])
ADDRESS = FARM["addresses"][0]["name"]

SCENARIOS = {
    "a mark is set and taken away": [
        _post({**FARM, "mark": "0xffff000"}),
        ("GET", "/farms", b""),
        _post({"name": "web--http", "mark": "0x0"}),
        ("GET", "/farms", b""),
    ],
    "a farm is created, read, changed and deleted": [
        _post(FARM),
        ("GET", "/farms/web--http", b""),
        _post(
            {"name": "web--http", "scheduler": "weight", "backends": [{"name": "b", "weight": "2", "state": "down"}]}
        ),
        ("GET", "/farms", b""),
        ("DELETE", "/farms/web--http", b""),
        ("GET", "/farms", b""),
    ],
    "a POST merges and removes nothing": [
        _post(FARM),
        _post(
            {
                "name": "web--http",
                "backends": [{"name": "c", "ip-addr": "10.244.1.4", "port": "80", "mark": "0x4", "state": "up"}],
            }
        ),
        ("GET", "/farms", b""),
    ],
    "backends and addresses are deleted by name": [
        _post(FARM),
        ("DELETE", "/farms/web--http/backends/a", b""),
        ("DELETE", "/farms/web--http/backends/a", b""),
        ("DELETE", f"/farms/web--http/addresses/{ADDRESS}", b""),
        ("GET", "/farms", b""),
    ],
    "what is unknown is refused": [
        ("GET", "/farms/nobody", b""),
        ("DELETE", "/farms/nobody", b""),
        ("DELETE", "/farms/nobody/backends/a", b""),
        _post({"name": "web--http", "colour": "green"}),
        _post({**FARM, "scheduler": "magic"}),
    ],
}


_OF_ITS_OWN = ("virtual-addr", "virtual-ports", "family", "protocol", "priority")
"""Fields that nftlb derives, and that we neither send nor read."""


def _comparable(status: int, text: str) -> tuple[int, object]:
    """The farms in full; of another answer, whether it is a plain success, and a remark about values in full."""
    try:
        body = json.loads(text)
    except ValueError:
        return status, None
    if "farms" in body:
        farms = [{key: value for key, value in entry.items() if key not in _OF_ITS_OWN} for entry in body["farms"]]
        return status, farms
    said = body.get("response", "")
    return status, said if said.startswith("success") else None


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.usefixtures("real_nftlb")
def test_the_fake_answers_as_nftlb_does(name: str) -> None:
    fake = FakeNftlb()
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", headers={"Key": KEY, "Connection": "close"}) as real:
        for step, (method, path, body) in enumerate(SCENARIOS[name]):
            answer = real.request(method, path, content=body or None)
            assert _comparable(*fake.answer(method, path, body)) == _comparable(answer.status_code, answer.text), step
