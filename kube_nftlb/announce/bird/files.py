"""The files that the agent and BIRD's container share, and what both read there. Pure."""

import re
from typing import Final

CONFIG: Final = "bird.conf"
SOCKET: Final = "bird.ctl"
AGENT: Final = "agent.lock"
"""The agent has it locked as long as it needs BIRD. The kernel unlocks it however the agent ends."""
PASSWORDS: Final = "/run/kube-nftlb-bird-passwords"
"""The folder in which BIRD's container, and nobody else, has a piece of configuration for each password."""

_DETECTION: Final = "bfd_detection_ms"


def detection_line(milliseconds: int) -> str:
    """Return the line of the configuration with the longest Detection Time of BFD (RFC 5880, 6.8.4)."""
    return f"define {_DETECTION} = {milliseconds};"


def detection_s(config: str) -> float:
    """Return the longest Detection Time of a configuration in seconds; 0 if it has none."""
    match = re.search(rf"^define {_DETECTION} = (\d+);$", config, re.MULTILINE)
    return int(match[1]) / 1000 if match else 0.0


def password_file(key: str) -> str:
    """Return the name of the piece of configuration with the password of a key of the Secret."""
    return f"key-{key}.conf"


def password_pattern(key: str) -> str:
    """Return a pattern that has its path: BIRD includes what matches, and a file that is missing is no error then.

    glob(7) finds no name that begins with a dot by it, as a key may.
    """
    name = password_file(key)
    return f"{PASSWORDS}/[{name[0]}]{name[1:]}"


def password_config(password: str) -> str:
    """Return the piece of configuration with a password; empty if BIRD has no way to write it."""
    usable = password.isprintable() and '"' not in password and 0 < len(password.encode()) <= 80
    return f'disabled off; description ""; password "{password}";\n' if usable else ""
