"""`python -m ascend_vl.probes --model DIR`: ask this machine's operators and keep their answers for the engine."""

import argparse
import json
import sys
from pathlib import Path

from ascend_vl.adaptations.process_facts import process_facts
from ascend_vl.adaptations.record import Finding
from ascend_vl.probes import cache, of_config, runner


def main() -> int:
    """0: no fault; 1: a fault; 2: no NPU, or no verdict for some probe."""
    made = argparse.ArgumentParser(prog="python -m ascend_vl.probes", description=__doc__)
    made.add_argument("--model", required=True, type=Path, help="folder with config.json")
    made.add_argument("--dtype", default="float16")
    made.add_argument("--tensor-parallel-size", type=int, default=1)
    made.add_argument("--only", help="ids, comma separated")
    made.add_argument("--probe-anyway", action="store_true", help="although somebody else holds memory of the chip")
    made.add_argument("--fresh", action="store_true", help="ask again what is known")
    options = made.parse_args()
    facts = process_facts()
    if facts.chip is None:
        print("no NPU here", file=sys.stderr)
        return 2
    config = json.loads((options.model / "config.json").read_text(encoding="utf-8"))
    shapes = of_config(config, options.dtype, options.tensor_parallel_size)
    found = runner.run(
        facts,
        shapes,
        options.only.split(",") if options.only else None,
        anyway=options.probe_anyway,
        fresh=options.fresh,
        told=tell,
    )
    print(json.dumps({name: cache.to_json(finding) for name, finding in found.items()}, ensure_ascii=False))
    if any(finding.fault is None for finding in found.values()):
        return 2
    return int(any(finding.fault for finding in found.values()))


def tell(name: str, finding: Finding) -> None:
    """One line a probe on stderr."""
    verdict = {True: "fault", False: "fine", None: "no verdict"}[finding.fault]
    print(f"{name}: {verdict}: {finding.reason}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
