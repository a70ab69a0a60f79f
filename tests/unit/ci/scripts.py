"""Loads the programs of the folder ``.ci``, most of which have no suffix."""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

from tests.distribution import ROOT


def load(name: str) -> ModuleType:
    """Return what a program of that folder defines; it is not run."""
    loader = importlib.machinery.SourceFileLoader(f"ci_{Path(name).stem}", str(ROOT / ".ci" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None, "it has a loader"
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
