"""Files that others read while they are written."""

from pathlib import Path


def replace(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a file beside another and rename it, so that who reads it finds all of the old text or all of the new one.

    ``mode`` has the permissions of the file, which are less where the umask of the process says so. Raises OSError.
    """
    written = path.with_suffix(".new")
    written.touch(mode)
    written.write_text(text)
    written.replace(path)
