"""The parts of Gateway API's objects that we read. Users install their CustomResourceDefinitions; we define none."""

from typing import Final

GROUP: Final = "gateway.networking.k8s.io"
VERSION: Final = "v1"
