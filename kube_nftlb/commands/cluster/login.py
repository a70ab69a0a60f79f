"""The options that say which cluster a command asks, and as whom; kubectl has the same."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from kube_nftlb import errors
from kube_nftlb.commands.group import duration
from kube_nftlb.kube.impersonation import Impersonation


class Login(NamedTuple):
    """The cluster that is meant, as whom to ask it, and how long to wait for an answer."""

    kubeconfig: Path | None
    context: str | None
    impersonate: Impersonation
    """Beside what the kubeconfig says."""
    timeout_s: float | None
    """0: as long as it takes; None: as long as is usual."""


def _login(
    context: Annotated[
        str | None, typer.Option(help="Context of the kubeconfig to use. Default: the current one.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig to use. Default: $KUBECONFIG, ~/.kube/config or the pod's account.")
    ] = None,
    as_: Annotated[str | None, typer.Option("--as", help="User to impersonate.")] = None,
    as_uid: Annotated[str | None, typer.Option(help="UID to impersonate.")] = None,
    as_group: Annotated[list[str] | None, typer.Option(help="Group to impersonate; can be repeated.")] = None,
    request_timeout: Annotated[
        float | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="How long to wait for each answer of the API server; 0: for ever. Default: 30s, for lists 60s.",
        ),
    ] = None,
) -> Login:
    impersonate = Impersonation(as_ or "", as_uid or "", tuple(as_group or ()))
    if "" in (as_, as_uid, *impersonate.groups):
        raise errors.UsageError("--as, --as-uid and --as-group must not be empty")
    return Login(kubeconfig, context, impersonate, request_timeout)


def with_login(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with these options instead of its parameter ``login``."""
    options = inspect.signature(_login).parameters
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "login"]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        command(login=_login(**{name: given.pop(name) for name in options}), **given)

    parameters = [*own, *options.values()]
    vars(with_options)["__signature__"] = inspect.Signature(parameters)
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options
