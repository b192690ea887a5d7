"""Serves tiny models with `ascend-vl serve` on emulated chips and asks them everything; prints a line a check.

usage: python -m benchmarks.emulated_serving [--keep DIR] [SCENARIO ...]   (default: all; --list names them)

With --keep the checkpoints, the answers of probes and vLLM's logs stay in DIR and are used again.

Everything it prints is emulated: the unmodified vllm-ascend ran on a CPU against `npu_emulator`. Exit 1 when a check
failed. `tests/npu_emulator/test_served.py` runs a part of this.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "npu_emulator"))

import served_checks  # noqa: E402
import served_scenarios  # noqa: E402


class Printer:
    """Runs checks one by one, prints what each saw, and counts the failed ones."""

    def __init__(self) -> None:
        self.failed = 0

    def check(self, scenario: str, name: str, run: Callable[[], Any]) -> None:
        """One line: emulated, scenario, check, what it saw or why it failed, seconds."""
        begin = time.monotonic()
        try:
            saw = json.dumps(run(), ensure_ascii=False, default=str)
        except Exception as error:
            self.failed += 1
            traceback.print_exc()
            saw = f"FAILED {type(error).__name__}: {str(error)[:1500]}"
        print(f"emulated  {scenario}  {name}: {saw}  ({time.monotonic() - begin:.1f} s)", flush=True)


def main() -> int:
    """0 when every check of the scenarios passed."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    made.add_argument("--list", action="store_true")
    made.add_argument("--keep", type=Path, help="folder for checkpoints, answers of probes and logs")
    options = made.parse_args()
    if options.list:
        print("\n".join(served_scenarios.SCENARIOS))
        return 0
    # A shell ignores it for what runs in the background; servers are stopped by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    printer = Printer()
    with tempfile.TemporaryDirectory(prefix="emulated-serving-") as scratch:
        folder = (options.keep or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        models = served_scenarios.Models(folder)
        for name in options.scenarios or served_scenarios.SCENARIOS:
            begin = time.monotonic()
            try:
                served_scenarios.run(name, models, printer.check)
            except Exception as error:
                printer.check(name, "start", lambda error=error: served_checks.again(error))
            print(f"emulated  {name}  all: {time.monotonic() - begin:.1f} s", flush=True)
    return int(printer.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
