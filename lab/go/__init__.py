"""Go: a toolchain that is new enough, and builds with it that count their packages."""

from lab.go.compile import BUILD, BUILD_TESTS, build, download, download_zip
from lab.go.source import copy_source
from lab.go.toolchain import find, required_version

__all__ = ["BUILD", "BUILD_TESTS", "build", "copy_source", "download", "download_zip", "find", "required_version"]
