"""An nftlb that ends over one farm: a real one behind a forwarder, which kills it when the farm's name comes by.

The name is in ``KUBE_NFTLB_TEST_DEADLY``. ``folder`` makes a folder with this program under nftlb's name, for PATH.
"""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

FARM = "deadly--http"
_CHUNK = 1 << 16
_BEHIND = "5556"


def folder(made: Path, program: str) -> Path:
    """Write a program ``nftlb`` that starts ``program`` behind this forwarder. Return its folder."""
    made.mkdir()
    script = made / "nftlb"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {program} "$@"\n')
    script.chmod(0o755)
    return made


def main(program: str, *arguments: str) -> None:
    deadly = os.environ["KUBE_NFTLB_TEST_DEADLY"].encode()
    port = int(arguments[arguments.index("-P") + 1])
    behind = [*arguments]
    behind[arguments.index("-P") + 1] = _BEHIND
    if "-c" in arguments and deadly in Path(arguments[arguments.index("-c") + 1]).read_bytes():
        print("ended over the start-up file", file=sys.stderr)
        os._exit(1)
    nftlb = subprocess.Popen([program, *behind])

    def end() -> NoReturn:
        nftlb.kill()
        nftlb.wait()
        print("ended over a request", file=sys.stderr, flush=True)
        os._exit(1)

    def copy(source: socket.socket, to: socket.socket, *, looks: bool) -> None:
        seen = b""
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                seen = seen[-len(deadly) :] + chunk
                if looks and deadly in seen:
                    end()
                to.sendall(chunk)
            to.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", int(_BEHIND)))
            except OSError:
                near.close()
                if nftlb.poll() is not None:
                    os._exit(1)
                continue
            threading.Thread(target=copy, args=(far, near), kwargs={"looks": False}, daemon=True).start()
            threading.Thread(target=copy, args=(near, far), kwargs={"looks": True}, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
