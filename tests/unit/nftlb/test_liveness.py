import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from kube_nftlb import errors
from kube_nftlb.nftlb.liveness import ask, main, place
from kube_nftlb.settings import NftlbSettings


class Daemon(http.server.BaseHTTPRequestHandler):
    """Answers as nftlb does to a question for a farm that there is not."""

    asked: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Key"]))
        self.send_error(500)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Daemon) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_it_lives_when_it_answers_whatever_that_is(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "nftlb.key"
    key.write_text("secret\n")
    ask(port, key)
    assert Daemon.asked == [("/farms/-", "secret")]
    monkeypatch.setenv("KUBE_NFTLB_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("KUBE_NFTLB_NFTLB_PORT", str(port))
    assert main() == 0


def test_it_does_not_live_when_nobody_answers_or_there_is_no_key_yet(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(errors.NftlbUnreachableError, match="no such file"):
        ask(port, tmp_path / "nftlb.key")
    (tmp_path / "nftlb.key").write_text("secret")
    monkeypatch.setenv("KUBE_NFTLB_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("KUBE_NFTLB_NFTLB_PORT", "1")
    assert main() == 1
    assert "nftlb does not answer on 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"KUBE_NFTLB_RUN_DIR": "/a", "KUBE_NFTLB_STATE_DIR": ""},
        {"KUBE_NFTLB_RUN_DIR": "/a", "KUBE_NFTLB_STATE_DIR": "/b", "KUBE_NFTLB_NFTLB_PORT": "5556"},
    ],
)
def test_it_has_the_settings_of_nftlb(environ: dict[str, str]) -> None:
    settings = NftlbSettings.from_environment(environ)
    assert place(environ) == (settings.port, settings.key_file, settings.startup_file)
