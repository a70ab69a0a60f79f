"""How long the processor works on something, however many others wait for it."""

import contextlib
import gc
import time
from collections.abc import Iterator


class Taken:
    """The seconds of a block, once it has ended."""

    seconds = 0.0


@contextlib.contextmanager
def processor_time() -> Iterator[Taken]:
    """Measure a block. The collector waits: it would look at all that other tests have left, at any time."""
    taken = Taken()
    gc.disable()
    began = time.process_time()
    try:
        yield taken
    finally:
        taken.seconds = time.process_time() - began
        gc.enable()
