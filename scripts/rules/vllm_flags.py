#!/usr/bin/env python
"""Writes src/ascend_vl/rules/data/vllm_flags.json: the options of `vllm serve` by release, from vLLM's own parser.

vllm_flags.py RELEASE    adds or renews one vllm-ascend release (or `cpu`), in an environment that has it

PYTHON=.venv-ascend-0.18.0/bin/python
.venv/bin/python -m npu_emulator --chip 910B3 --stack 0.18.0 -- $PYTHON scripts/rules/vllm_flags.py 0.18.0
.venv/bin/python scripts/rules/vllm_flags.py cpu
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[2] / "src/ascend_vl/rules/data/vllm_flags.json"


def names() -> list[str]:
    """Every option that the parser of `vllm serve` here has, in all its spellings."""
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser
    parser: Any = make_arg_parser(FlexibleArgumentParser())
    known = {spelled for action in parser._actions for spelled in action.option_strings}
    return sorted(known - {"-h", "--help"})


def write(found: dict[str, list[str]]) -> None:
    """What all releases have once, under `all`; the rest by release."""
    shared = set.intersection(*map(set, found.values()))
    document = {"all": sorted(shared)} | {name: sorted(set(flags) - shared) for name, flags in sorted(found.items())}
    TABLE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read() -> dict[str, list[str]]:
    """The flags of every release in the file."""
    if not TABLE.is_file():
        return {}
    document = json.loads(TABLE.read_text(encoding="utf-8"))
    shared = document.pop("all")
    return {name: sorted({*shared, *flags}) for name, flags in document.items()}


def main() -> int:
    """Renew one release."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("release")
    release = options.parse_args().release
    write(read() | {release: names()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
