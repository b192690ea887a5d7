"""What adaptations cost, as ratios with both sides in one run on this CPU.

usage: python -m benchmarks.cost [--json] [--rounds N]

A ratio is of the fastest of interleaved rounds, so that other work on the machine falls on both sides. It says how the
same arithmetic compares on a CPU, nothing about an NPU. What grouping thumbnails saves is calls, and a call costs next
to nothing on a CPU: the work given to the device is therefore counted, on the emulated chip, and so are copies from it.
Exit 1 when a value is above its bound.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn import functional

from ascend_vl.adaptations.seams.attention_operators import padded, plain
from ascend_vl.adaptations.seams.lengths import Lengths
from ascend_vl.probes.references import peaked_heads

# One 1280x720 picture on one rank of Qwen3-VL-8B's tower: 3520 patches, 16 heads 72 wide.
LARGE, HEADS, SIZE = 3520, 16, 72
SCALE = SIZE**-0.5
THREADS = 2
# Counts in a process of its own, because the device is chosen when it starts.
ROOT = Path(__file__).resolve().parents[1]
COPIES = ROOT / "tests" / "adaptations" / "count_copies.py"
CALLS = ROOT / "benchmarks" / "cost_emulated.py"
THUMBNAILS = 32


@dataclass(frozen=True)
class Ratio:
    """`value` = time of the first side over time of the second, or a count; `bound` None means reported only."""

    name: str
    value: float
    bound: float | None

    @property
    def kept(self) -> bool:
        """Whether the bound holds."""
        return self.bound is None or self.value <= self.bound


def ratio(first: Callable[[], object], second: Callable[[], object], rounds: int) -> float:
    """Fastest time of `first` over fastest time of `second`, interleaved."""
    fastest = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, side in enumerate((first, second)):
            begin = time.perf_counter()
            side()
            fastest[index] = min(fastest[index], time.perf_counter() - begin)
    return fastest[0] / fastest[1]


def padding(rounds: int) -> list[Ratio]:
    """Heads padded from 72 to 80, and to upstream's 128, against unpadded heads."""
    q, k, v = peaked_heads(LARGE, HEADS, SIZE, torch.float32)
    lengths = Lengths.of((LARGE,), LARGE)

    def attend(width: int) -> Callable[[], object]:
        return lambda: padded("plain", q, k, v, lengths, SCALE, width)

    return [
        Ratio("attention padded to 80 / unpadded 72", ratio(attend(80), attend(72), rounds), 1.25),
        Ratio("attention padded to 128 / unpadded 72", ratio(attend(128), attend(72), rounds), None),
    ]


def one_by_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pictures: tuple[int, ...]) -> list[torch.Tensor]:
    """The published port's way: one call for each picture."""
    results = []
    for parts in zip(q.split(pictures), k.split(pictures), v.split(pictures), strict=True):
        heads_first = (t.transpose(0, 1)[None] for t in parts)
        results.append(functional.scaled_dot_product_attention(*heads_first, scale=SCALE)[0].transpose(0, 1))
    return results


def grouping(rounds: int) -> list[Ratio]:
    """Equal pictures in one call against one call each: eight large ones, thirty-two thumbnails."""
    ratios = []
    for name, pictures, bound in (
        ("8 equal pictures together / 8 alone", (880,) * 8, 1.05),
        (f"{THUMBNAILS} thumbnails together / a loop", (64,) * THUMBNAILS, 1.05),
    ):
        q, k, v = peaked_heads(sum(pictures), HEADS, SIZE, torch.float32)
        lengths = Lengths.of(pictures, sum(pictures))
        together, alone = plain(q, k, v, lengths, SCALE), torch.cat(one_by_one(q, k, v, pictures))
        if not torch.allclose(together, alone, atol=1e-5):
            raise AssertionError(f"{name}: the two sides differ")
        value = ratio(
            lambda q=q, k=k, v=v, n=lengths: plain(q, k, v, n, SCALE),
            lambda q=q, k=k, v=v, p=pictures: one_by_one(q, k, v, p),
            rounds,
        )
        ratios.append(Ratio(name, value, bound))
    return ratios


def on_emulated_chip(script: Path, word: str, *arguments: str) -> dict[str, int]:
    """What a script counts on an emulated 310P3: its line that begins with `word`."""
    command = [sys.executable, "-m", "npu_emulator", "--chip", "310P3", "--", sys.executable, str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(word + " "))
    counted: dict[str, int] = json.loads(line.removeprefix(word + " "))
    return counted


def calls() -> list[Ratio]:
    """Work given to the emulated device for thumbnails through the fallback's operator, in one call and in a loop."""
    found = on_emulated_chip(CALLS, "THUMBNAILS", str(THUMBNAILS))
    name = f"{THUMBNAILS} thumbnails together / a loop, operators given to the emulated device"
    return [Ratio(name, found["together"] / found["loop"], 0.3)]


def copies() -> list[Ratio]:
    """Copies from the device in one forward of a tower, ours and the framework's, counted on an emulated chip."""
    found = on_emulated_chip(COPIES, "COPIES")
    name = f"copies from the emulated device in a forward of {found['depth']} layers"
    return [Ratio(f"{name}, ours", found["ours"], 1), Ratio(f"{name}, vllm-ascend 0.18's", found["stock"], None)]


def main() -> int:
    """1 when a bound is broken."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--json", action="store_true")
    made.add_argument("--rounds", type=int, default=7)
    options = made.parse_args()
    # A call costs more than its arithmetic, as on an NPU, only where it starts threads.
    torch.set_num_threads(THREADS)
    with torch.inference_mode():
        ratios = padding(options.rounds) + grouping(options.rounds) + calls() + copies()
    if options.json:
        print(json.dumps([asdict(r) | {"kept": r.kept} for r in ratios], indent=1))
    else:
        for r in ratios:
            bound = "reported only" if r.bound is None else f"bound {r.bound}"
            print(f"{r.value:6.2f}  {bound:<14} {'' if r.kept else 'BROKEN '}{r.name}")
    return int(not all(r.kept for r in ratios))


if __name__ == "__main__":
    sys.exit(main())
