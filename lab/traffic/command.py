"""The command line of ``python -m lab.traffic``."""

import argparse
import asyncio
import json
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lab.traffic import answerers, arrivals, count, echo, hammer, steady, stream, until
from lab.traffic.ask import Target

_TIMEOUT_S = 2.0
# Shorter than the second after which the kernel retransmits a SYN.
_CONNECT_TIMEOUT_S = 0.2


def run(argv: Sequence[str]) -> dict[str, Any]:
    """Run the traffic that the arguments describe and return its results. Raises SystemExit for invalid arguments.

    A hammer without --seconds runs until SIGTERM, and therefore needs the main thread.
    """
    return _run(_parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="traffic", description="Open connections and print the results as JSON.")
    actions = parser.add_subparsers(dest="action", required=True)

    counting = actions.add_parser("count", help="count the replies to N new connections by pod")
    counting.add_argument("number", type=int, metavar="N")
    _add_target(counting)
    counting.add_argument("--udp", action="store_true")
    counting.add_argument("--source", default="", metavar="IP", help="source address")
    counting.add_argument("--source-port", type=int, default=0, help="one source port for all connections")
    counting.add_argument(
        "--same-source", action="store_true", help="one source port for all connections, any free one"
    )
    counting.add_argument("--timeout", type=float, default=_TIMEOUT_S, metavar="S")

    hammering = actions.add_parser("hammer", help="open connections continuously, until SIGTERM or for --seconds")
    _add_target(hammering)
    hammering.add_argument("--seconds", type=float)
    hammering.add_argument("--threads", type=int, default=2)
    hammering.add_argument("--timeout", type=float, default=_TIMEOUT_S, metavar="S")

    streaming = actions.add_parser("stream", help="one slow download, until SIGTERM")
    _add_target(streaming)
    streaming.add_argument("--rate", type=int, required=True, help="bytes per second")
    streaming.add_argument("--timeout", type=float, default=_TIMEOUT_S, metavar="S", help="longest time without data")

    steadily = actions.add_parser("steady", help="try the targets on standard input, until SIGTERM or for --seconds")
    steadily.add_argument("--seconds", type=float)

    arriving = actions.add_parser(
        "arrivals",
        help="connect to the addresses on standard input as soon as somebody on the segment answers for them",
    )
    arriving.add_argument("port", type=int)
    arriving.add_argument("--connections", type=int, default=20, help="connections to each")
    arriving.add_argument("--every-ms", type=float, default=50)
    arriving.add_argument("--timeout", type=float, default=_TIMEOUT_S, metavar="S")
    arriving.add_argument("--tries", action="store_true", help="also try each every 10 ms until it is answered")
    arriving.add_argument("--patience", type=float, default=30, metavar="S", help="time for the last ones to arrive")

    asking = actions.add_parser("answerers", help="ask who on the segment has an address, until SIGTERM")
    asking.add_argument("host", help="an IPv4 or IPv6 address")
    asking.add_argument("--every-ms", type=float, default=50)

    echoing = actions.add_parser("echo", help="answer what `steady` sends, until SIGTERM")
    echoing.add_argument("port", type=int)

    for name, text in (
        ("until-answers", "wait for the first answer"),
        ("until-refuses", "wait for 3 failures in a row"),
    ):
        waiting = actions.add_parser(name, help=text)
        _add_target(waiting)
        waiting.add_argument("--interval-ms", type=float, default=1)
        waiting.add_argument("--timeout", type=float, default=30, metavar="S")
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", help="an IPv4 or IPv6 address")
    parser.add_argument("port", type=int)


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.action in ("steady", "echo"):
        stop = _stop_at_sigterm()
        if arguments.action == "echo":
            return echo.echo(arguments.port, stop)
        streams = [steady.Stream(*fields) for fields in json.loads(sys.stdin.readline())]
        print("begun", file=sys.stderr, flush=True)
        return steady.Steady(streams).run(stop, arguments.seconds)
    if arguments.action == "answerers":
        stop = _stop_at_sigterm()
        print("begun", file=sys.stderr, flush=True)
        return answerers.answerers(arguments.host, arguments.every_ms / 1000, stop)
    if arguments.action == "arrivals":
        print("begun", file=sys.stderr, flush=True)
        return asyncio.run(
            arrivals.arrivals(
                arguments.port,
                arguments.connections,
                arguments.every_ms / 1000,
                arguments.timeout,
                arguments.patience,
                tries=arguments.tries,
            )
        )
    if arguments.action.startswith("until"):
        target = Target(arguments.host, arguments.port, _CONNECT_TIMEOUT_S)
        wait = until.until_answers if arguments.action == "until-answers" else until.until_refuses
        return wait(target, arguments.interval_ms / 1000, arguments.timeout)
    target = Target(arguments.host, arguments.port, arguments.timeout)
    if arguments.action == "count":
        target = replace(target, source=arguments.source)
        run = count.count_udp if arguments.udp else count.count_tcp
        return run(target, arguments.number, arguments.source_port, arguments.same_source).summary()
    stop = _stop_at_sigterm()
    if arguments.action == "stream":
        return stream.stream(target, arguments.rate, stop)
    print("begun", file=sys.stderr, flush=True)
    return hammer.hammer(target, arguments.seconds, arguments.threads, stop)


def _stop_at_sigterm() -> threading.Event:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop
