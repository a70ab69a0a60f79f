"""Logging: one line per event on standard error, ours through structlog, other packages' through ``logging``.

The keys for objects are the same everywhere: namespace, and service, farm, policy, pod or node.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from kube_nftlb.settings import LogFormat, LogLevel

_SECRET = re.compile(r"(?i)(bearer\s+|['\"]?key['\"]?\s*[:=]\s*['\"]?)[A-Za-z0-9._~+/=-]{16,}")


def configure(level: LogLevel, log_format: LogFormat) -> None:
    """Configure logging, once per program. Other packages log from WARNING on."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_secrets,
    ]
    renderer: list[Any]
    if log_format == "json":
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        renderer = [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def _without_secrets(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask secrets: errors of other packages may contain request headers with the API server's token or nftlb's key."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = _SECRET.sub(r"\1...", value)
    return event
