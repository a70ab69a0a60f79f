"""Where the API server is and how to log in there: from a kubeconfig, or from a pod's service account."""

import contextlib
import logging
import os
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.incluster_config import SERVICE_TOKEN_FILENAME
from kubernetes.aio.config.kube_config import KubeConfigMerger

from kube_nftlb import errors
from kube_nftlb.kube.environment_proxy import proxy_of
from kube_nftlb.kube.impersonation import NOBODY, Impersonation

_BROKEN: Final = (OSError, ssl.SSLError, yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, IndexError)
"""What the library raises for files that are no kubeconfigs."""
_PARTS: Final = {"users": "user", "clusters": "cluster"}
_DEFAULT: Final = "~/.kube/config"
_LOGGER: Final = "kubernetes.aio.config.kube_config"
_ERRNO: Final = re.compile(r"^\[Errno \d+\] ")
_IN_POD: Final = "KUBERNETES_SERVICE_HOST"
_TOKEN_S: Final = 60.0
"""How old in seconds what was read of the pod's token may be: the kubelet replaces it before it expires."""


async def load(
    kubeconfig: Path | None = None, context: str | None = None, impersonate: Impersonation = NOBODY
) -> Configuration:
    """Return what a context of a kubeconfig says, by default the current one of $KUBECONFIG, or the pod's account.

    Its ``client_session_kwargs`` have the headers that impersonate: what ``impersonate`` says comes before what the
    kubeconfig says. Raises UnavailableError, which says what is missing or wrong, and where.
    """
    configuration = Configuration()
    # Since Python 3.13 certificates need extensions that those of many clusters lack, and that Go does not ask for.
    configuration.disable_strict_ssl_verification = True
    where, files = _files(kubeconfig)
    subject = f"the kubeconfig {where}"
    try:
        if files:
            with _logged() as failures:
                config = KubeConfigMerger(files).config
                await kube_config.load_kube_config_from_dict(config, context, configuration)
            if failures:
                raise errors.UnavailableError(f"{subject} cannot be used: the login failed: {'; '.join(failures)}")
            _check_certificates(configuration)
            configuration.proxy = configuration.proxy or proxy_of(configuration.host)
            _check_proxy(configuration.proxy)
            impersonate = impersonate.over(Impersonation.of(_user(config, context)))
        elif kubeconfig is None and context is None and os.environ.get(_IN_POD):
            subject = "the pod's service account"
            kube_config.load_incluster_config(client_configuration=configuration, try_refresh_token=False)
            _renew_token(configuration)
        else:
            hint = ": --kubeconfig or $KUBECONFIG names one" if kubeconfig is None else ""
            raise errors.UnavailableError(f"there is no kubeconfig {where}{hint}")
        configuration.client_session_kwargs = {"headers": impersonate.headers()}
    except kube_config.ConfigException as error:
        message = _absent(files, context) or error
        raise errors.UnavailableError(f"{subject} cannot be used: {message}") from error
    except _BROKEN as error:
        raise errors.UnavailableError(f"{subject} cannot be used: {_absent(files, context) or _why(error)}") from error
    return configuration


def _renew_token(configuration: Configuration) -> None:
    """Have the pod's token read each minute, not as the library does, which waits for a clock that was set back."""
    read_at = time.monotonic()

    def renew(configuration: Configuration) -> None:
        nonlocal read_at
        if (now := time.monotonic()) - read_at >= _TOKEN_S:
            read_at = now
            with contextlib.suppress(OSError):
                if token := Path(SERVICE_TOKEN_FILENAME).read_text():
                    configuration.api_key["BearerToken"] = f"bearer {token}"

    configuration.refresh_api_key_hook = renew


def namespace(kubeconfig: Path | None = None, context: str | None = None) -> str:
    """Return the namespace of a context, by default the current one; ``default`` if nothing names one."""
    if not (files := _files(kubeconfig)[1]):
        return "default"
    try:
        contexts, active = kube_config.list_kube_config_contexts(files)
    except (kube_config.ConfigException, *_BROKEN):
        return "default"
    chosen = next((each for each in contexts if each["name"] == context), active)
    return str(chosen["context"].get("namespace") or "default")


def _user(config: Any, context: str | None) -> dict[str, Any]:
    """Return the user of a context of a kubeconfig that was loaded; an empty one if the context names none."""
    chosen = config["contexts"].get_with_name(context or config["current-context"])["context"]
    named = config["users"].get_with_name(chosen.safe_get("user"), safe=True)
    return dict(named["user"].value) if named is not None else {}


def _files(kubeconfig: Path | None) -> tuple[str, str]:
    """Return where the kubeconfig is looked for, and the files of it that exist, as $KUBECONFIG lists them."""
    where = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or _DEFAULT
    paths = [Path(text).expanduser() for text in where.split(os.pathsep) if text]
    return where, os.pathsep.join(str(path) for path in paths if path.exists())


@contextlib.contextmanager
def _logged() -> Iterator[list[str]]:
    """Yield the errors that the library logs: it goes on without credentials if their program fails."""
    logged: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(_ERRNO.sub("", record.getMessage()))

    logger, collector = logging.getLogger(_LOGGER), Collector(logging.ERROR)
    propagates = logger.propagate
    logger.addHandler(collector)
    logger.propagate = False
    try:
        yield logged
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagates


def _why(error: Exception) -> str:
    """Return an error of reading a kubeconfig in words for people."""
    if isinstance(error, ssl.SSLError):
        return f"its certificates cannot be read ({error.reason or error})"
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {errors.why(error)}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text"
    return str(error) if isinstance(error, yaml.YAMLError | ValueError) else "it is no kubeconfig"


def _absent(files: str, context: str | None) -> str | None:
    """Return which context, or which user or cluster of the context, a kubeconfig does not have; None if none is."""
    if not files:
        return None
    try:
        merged = KubeConfigMerger(files).config.value
        named = {kind: {str(each["name"]): each for each in merged[kind]} for kind in ("contexts", *_PARTS)}
        wanted = str(context or merged["current-context"])
        if wanted not in named["contexts"]:
            return f"it has no context {wanted!r}, but {', '.join(named['contexts']) or 'none'}"
        parts = named["contexts"][wanted]["context"]
        for kind, singular in _PARTS.items():
            if (name := parts.safe_get(singular)) and name not in named[kind]:
                return f"its context {wanted!r} names a {singular} {name!r} that it does not have"
    except (kube_config.ConfigException, *_BROKEN):
        return None
    return None


def _check_proxy(proxy: str | None) -> None:
    """Raise UnavailableError if the library cannot use a proxy: it would speak HTTP to it."""
    if proxy and (scheme := urlsplit(proxy).scheme) not in ("http", "https"):
        raise errors.UnavailableError(f"the proxy of the API server cannot be used: it is {scheme}, not http or https")


def _check_certificates(configuration: Configuration) -> None:
    """Read the files that the connection needs. Raises OSError or ValueError, which say what is wrong."""
    if not configuration.host.startswith(("https://", "http://")):
        raise ValueError(f"the server {configuration.host!r} does not begin with https://")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if configuration.ssl_ca_cert:
        tls.load_verify_locations(configuration.ssl_ca_cert)
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
