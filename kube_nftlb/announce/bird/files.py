"""The names of the files that the agent and BIRD's container share. Pure."""

from typing import Final

CONFIG: Final = "bird.conf"
SOCKET: Final = "bird.ctl"
ENDED: Final = "agent-ended"
"""It is there once the agent has ended, and BIRD may."""
PASSWORDS: Final = "/run/kube-nftlb-bird-passwords"
"""The folder in which BIRD's container, and nobody else, has a piece of configuration for each password."""


def password_file(key: str) -> str:
    """Return the name of the piece of configuration with the password of a key of the Secret."""
    return f"{key}.conf"


def password_config(password: str) -> str:
    """Return the piece of configuration with a password; empty if BIRD has no way to write it."""
    usable = password.isprintable() and '"' not in password and 0 < len(password.encode()) <= 80
    return f'disabled off; description ""; password "{password}";\n' if usable else ""
