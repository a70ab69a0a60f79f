"""The command ``kube-nftlb``, also as ``kubectl nftlb``: its commands, how their words are read, how errors end it."""

import contextlib
import errno
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from kube_nftlb import errors
from kube_nftlb.commands import exits
from kube_nftlb.commands.printable import printable

_Function = TypeVar("_Function", bound=Callable[..., Any])

PLUGIN: Final = "kubectl nftlb"
OF_USERS: Final = frozenset(
    ("status", "why", "get", "top", "drain", "undrain", "release-addresses", "sysdump", "trace", "preflight", "explain")
) | {"render", "version"}
"""The commands of ``kubectl nftlb``. Others work there too, but are for nodes, containers and checkouts."""
_ON_NODES: Final = frozenset(("clean", "nftlb"))
"""What people also run by hand, on a node."""
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_COMMAND: Final = f"{__name__}.command"
_DEBUG: Final = "KUBE_NFTLB_DEBUG"
_WITHOUT: Final = ("--all-namespaces", "-A")
_SHORT: Final = ("-n", "-o")
_OF_LOGIN: Final = ("--context", "--kubeconfig", "--as", "--as-uid", "--as-group", "--request-timeout")
_WITH_VALUE: Final = (*_SHORT, "--namespace", "--output", "--system-namespace", *_OF_LOGIN)
_BEFORE_COMMANDS: Final = frozenset((*_WITH_VALUE, *_WITHOUT))
_SILENCE: Final = logging.NullHandler()
"""Without any handler, Python writes what libraries log to standard error."""
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def _without_bool(params: list[Any]) -> list[Any]:
    """Return options of which flags do not show that they are of the type bool."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options."""
        return _without_bool(super().get_params(ctx))


class App(typer.Typer):
    """Typer, with these commands."""

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **more: Any
    ) -> Callable[[_Function], _Function]:
        """See ``typer.Typer``."""
        return super().command(name, cls=cls, **more)


class Commands(TyperGroup):
    """Shows users their commands, and ends those with a sentence instead of a Python error."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options."""
        return _without_bool(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Also take options before the command."""
        words = command_first(args)
        if words and (option := words[0].partition("=")[0]) in _BEFORE_COMMANDS:
            ctx.fail(f"{option} has no value, or no command behind it")
        ctx.meta[_COMMAND] = words[0] if words else ""
        return super().parse_args(ctx, words)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands to show."""
        names = super().list_commands(ctx)
        return [name for name in names if name in OF_USERS] if ctx.info_name == PLUGIN else names

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Those of users print no Python error or warning, and nothing that libraries log."""
        of_users = ctx.meta[_COMMAND] in OF_USERS | _ON_NODES
        try:
            with _for_users() if of_users else contextlib.nullcontext():
                return super().invoke(ctx)
        except errors.KubeNftlbError as error:
            typer.echo(f"kube-nftlb: {exits.message_of(error)}", err=True)
            # Those of containers have other statuses to tell their supervisors.
            raise typer.Exit(exits.status_of(error) if of_users else exits.WRONG) from None
        except BrokenPipeError:
            # Whoever reads has seen enough, such as head.
            _write_nothing_more()
            raise typer.Exit(exits.WELL) from None
        except KeyboardInterrupt:
            if of_users:
                raise typer.Exit(exits.INTERRUPTED) from None
            raise
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if _is_of_click(error) or not of_users:
                raise
            typer.echo(f"kube-nftlb: {_unexpected(error)}", err=True)
            raise typer.Exit(exits.CANNOT_TELL) from None


@contextlib.contextmanager
def _for_users() -> Iterator[None]:
    """Have nobody print warnings of Python and logs of libraries meanwhile, and write what was printed in the end.

    Raises UnavailableError without a standard output, OSError if it cannot be written.
    """
    if sys.stdout is None:
        raise errors.UnavailableError("standard output is closed")
    logging.getLogger().addHandler(_SILENCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            # As Python ends, nobody could say why this fails.
            sys.stdout.flush()


def _unexpected(error: Exception) -> str:
    """Return an error that no command expects as a sentence."""
    if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
        _write_nothing_more()
        return f"cannot write to standard output: {errors.why(error)}"
    if os.environ.get(_DEBUG):
        traceback.print_exc()
    message = printable(" ".join(f"{type(error).__name__}: {error}".split()))
    return f"a defect of this program, please report it: {message} ({_DEBUG}=1 shows where)"


def _write_nothing_more() -> None:
    """Have standard output take all: Python writes what remains as it ends, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _is_of_click(error: Exception) -> bool:
    """Return True for what the command line's parser raises and prints by itself, which then has no Python words."""
    if not (hasattr(error, "show") and hasattr(error, "exit_code")):
        return False
    vars(error)["message"] = str(getattr(error, "message", "")).removeprefix("Value error, ")
    return True


def command_first(words: Sequence[str]) -> list[str]:
    """Return a command line with the options that are before the command behind it, as kubectl takes both.

    >>> command_first(["--context", "far", "get", "web"])
    ['get', '--context', 'far', 'web']
    """
    number = 0
    while number < len(words):
        name, equals, _ = words[number].partition("=")
        if name in _WITHOUT or (name.startswith(_SHORT) and len(name) > 2 and not name.startswith("--")):
            number += 1
        elif name in _WITH_VALUE:
            number += 1 if equals else 2
        else:
            break
    return [*words[number : number + 1], *words[:number], *words[number + 1 :]]


def duration(text: str | float) -> float:
    """Return a duration in seconds: ``60s``, ``1m30s``, ``500ms``, ``2h``, or plain seconds, such as ``60``.

    Raises typer.BadParameter for anything else.
    """
    words = str(text)
    if re.fullmatch(r"\d+(\.\d+)?", words):
        return float(words)
    if not re.fullmatch(f"(?:{_PART.pattern})+", words):
        raise typer.BadParameter(f"{words!r} is not a duration, such as 60s, 2m, 1m30s or 60 (seconds)")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(words))
