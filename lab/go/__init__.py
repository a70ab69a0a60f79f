"""Go: a toolchain that is new enough, and builds with it that count their packages."""

from lab.go.compile import BUILD, BUILD_TESTS, build, download
from lab.go.modules import source
from lab.go.toolchain import find, required_version

__all__ = ["BUILD", "BUILD_TESTS", "build", "download", "find", "required_version", "source"]
