"""How programs connect to the API server: certificates, the pod's token, and proxies of the environment."""

import asyncio
import ssl
import time
from pathlib import Path

import pytest
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import incluster_config

from kube_nftlb import errors
from kube_nftlb.kube import environment_proxy, kubeconfig

FILE = """{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
users: [{name: a, user: {token: secret}}], clusters: [{name: a, cluster: {server: "https://api.example.com:6443"%s}}]}"""


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The token of a pod's service account."""
    token, certificate = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    certificate.write_text("certificate")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate))
    monkeypatch.setattr(kubeconfig, "SERVICE_TOKEN_FILENAME", str(token))
    return token


async def test_certificates_need_no_key_identifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by default since Python 3.13, which refuses the certificates of managed clusters."""

    def strict(**_: object) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    (tmp_path / "config").write_text(FILE % "")
    context = RESTClientObject(await kubeconfig.load(tmp_path / "config")).ssl_context
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_the_pods_token_is_read_again_whatever_the_clock_says(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    configuration = asyncio.run(kubeconfig.load())

    def token() -> str:
        return str(asyncio.run(configuration.auth_settings())["BearerToken"]["value"])

    assert token() == "bearer first"
    pod.write_text("second")
    now += 59
    assert token() == "bearer first"
    now += 1
    assert token() == "bearer second"
    pod.write_text("")
    now += 60
    assert token() == "bearer second"
    pod.unlink()
    now += 60
    assert token() == "bearer second"


@pytest.mark.parametrize(
    ("host", "exceptions", "proxy"),
    [
        ("https://api.example.com:6443", "", "http://proxy:3128"),
        ("https://api.example.com:6443", "*", None),
        ("https://api.example.com:6443", "other, Example.com", None),
        ("https://api.example.com:6443", ".example.com", None),
        ("https://api.example.com:6443", "*.example.com", None),
        ("https://example.com:6443", ".example.com", "http://proxy:3128"),
        ("https://notexample.com", "example.com", "http://proxy:3128"),
        ("https://api.example.com:6443", "example.com:6443", None),
        ("https://api.example.com:6443", "example.com:443", "http://proxy:3128"),
        ("https://10.96.0.1", "10.96.0.0/12", None),
        ("https://10.96.0.1", "10.96.0.1", None),
        ("https://10.96.0.1", "10.112.0.0/12,2001:db8::/32", "http://proxy:3128"),
        ("https://[2001:db8::1]:6443", "2001:db8::/32", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://localhost:6443", "", None),
        ("http://api.example.com", "", None),
    ],
)
def test_proxies_of_the_environment(
    host: str, exceptions: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert environment_proxy.proxy_of(host) == proxy


async def test_a_kubeconfigs_proxy_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    (tmp_path / "config").write_text(FILE % "")
    assert (await kubeconfig.load(tmp_path / "config")).proxy == "http://proxy:3128"
    (tmp_path / "config").write_text(FILE % ", proxy-url: 'http://other:1'")
    assert (await kubeconfig.load(tmp_path / "config")).proxy == "http://other:1"


async def test_a_proxy_of_another_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(FILE % "")
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:secret@proxy:1080")
    with pytest.raises(errors.UnavailableError, match="the proxy of the API server cannot be used: it is socks5, not"):
        await kubeconfig.load(tmp_path / "config")


def test_a_pod_has_no_proxy(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert pod.exists()
    assert asyncio.run(kubeconfig.load()).proxy is None
