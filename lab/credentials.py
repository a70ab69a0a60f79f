"""A lab's keys, certificates, tokens and kubeconfigs."""

import json
import secrets
import subprocess
from pathlib import Path

from kube_nftlb import errors
from lab import addresses
from lab.state import LabFiles

CERTIFICATE = "apiserver.crt"
PRIVATE_KEY = "apiserver.key"
SERVICE_ACCOUNT_KEY = "service-account.key"
TOKENS = "tokens.csv"
ADMIN_TOKEN = "admin.token"  # noqa: S105 (a file name)


def create(files: LabFiles, openssl: Path, host_port: int) -> None:
    """Create all credentials anew, which revokes access from earlier labs of this name. Raises LabError."""
    folder = files.secrets
    folder.mkdir(mode=0o700)
    names = ("127.0.0.1", addresses.API_HOST, addresses.FIRST_SERVICE_IP)
    subjects = [f"IP:{name}" for name in names] + ["DNS:localhost", "DNS:kubernetes.default.svc"]
    _openssl(
        openssl,
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"),
        *("-subj", "/CN=kube-nftlb-lab", "-addext", f"subjectAltName={','.join(subjects)}"),
        *("-addext", "keyUsage=critical,digitalSignature,keyCertSign", "-addext", "extendedKeyUsage=serverAuth"),
        *("-out", str(folder / CERTIFICATE), "-keyout", str(folder / PRIVATE_KEY)),
    )
    _openssl(openssl, "genrsa", "-out", str(folder / SERVICE_ACCOUNT_KEY), "2048")
    token = secrets.token_urlsafe(32)
    _write_secret(folder / ADMIN_TOKEN, token)
    _write_secret(folder / TOKENS, f"{token},admin,admin,system:masters\n")
    _write_secret(files.kubeconfig, _kubeconfig(files, f"https://127.0.0.1:{host_port}", token))
    write_kubeconfig(files, files.inside_kubeconfig, token)


def write_kubeconfig(files: LabFiles, path: Path, token: str) -> None:
    """Write a kubeconfig for programs in the lab's namespaces."""
    inside = f"https://{addresses.API_HOST}:{addresses.API_PORT}"
    _write_secret(path, _kubeconfig(files, inside, token))


def _kubeconfig(files: LabFiles, server: str, token: str) -> str:
    name = f"kube-nftlb-lab-{files.root.name}"
    cluster = {"server": server, "certificate-authority": str(files.secrets / CERTIFICATE)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return json.dumps(config, indent=2)


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _openssl(openssl: Path, *arguments: str) -> None:
    result = subprocess.run([openssl, *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise errors.LabError(f"openssl {arguments[0]} failed: {result.stderr.strip()}")
