"""Building and loading the C++ part of the device, once per source, torch and interpreter."""

import functools
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from npu_emulator.contract import NpuError
from npu_emulator.stacks import cache, locked

SOURCES = Path(__file__).parent / "csrc"


def key() -> str:
    """Names a build: hash of the sources, of torch's version and of the interpreter's."""
    import torch

    digest = hashlib.sha256(f"{torch.__version__} {sys.version_info[:2]} {torch.compiled_with_cxx11_abi()}".encode())
    for source in sorted(SOURCES.glob("*.*")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def load() -> ModuleType:
    """The extension module, built on first use. Raises NpuError (code 0) when there is no C++ compiler or it fails."""
    name = "npu_emulator_device"
    folder = cache() / f"device-{key()}"
    library = folder / f"{name}.so"
    if not library.exists():
        # The lock goes with its holder, however that ends; the library appears whole or not at all.
        with locked(folder.name):
            if not library.exists():
                _build(name, library)
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_can_build() -> None:
    """Raises NpuError (code 0) on a computer where no device was ever built and there is no C++ compiler.

    A launcher asks before it starts anything: an error inside `import torch` is hard to read.
    """
    if not any(cache().glob("device-*/*.so")):
        _compiler()


def _compiler() -> str:
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        raise NpuError(
            f"npu_emulator builds its device once and needs a C++ compiler; {compiler!r} was not found "
            "(install one, for example the package g++, or set CXX)",
            0,
        )
    return compiler


def _build(name: str, library: Path) -> None:
    from torch.utils import cpp_extension

    compiler = _compiler()
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as folder:
        try:
            cpp_extension.load(
                name=name,
                sources=[str(source) for source in sorted(SOURCES.glob("*.cpp"))],
                build_directory=folder,
                extra_cflags=["-O2", "-std=c++20", "-w"],
                is_python_module=False,
                verbose=False,
            )
            (Path(folder) / library.name).rename(library)
        except (RuntimeError, OSError) as error:
            raise NpuError(f"npu_emulator could not build its device with {compiler!r}: {error}", 0) from error
