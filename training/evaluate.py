"""Score the demo checkpoint on held-out scenes and write its model card: `python -m training.evaluate`.

Questions and captions to draw go to a served model (`--url`, `--serve`), or through the training forward and the
training sampler (`--local`). Drawings are judged by the classical detector.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ascend_vl.plan import Wishes
from ascend_vl.serve.process import running

from . import batches, card, detector, language, sampler, world
from .language import LANGS, Lang
from .model import DemoModel

CHECKPOINT = Path(__file__).resolve().parent.parent / "src" / "ascend_vl" / "demo" / "checkpoint"
# Captions and as many seeds -> pictures, uint8 [height, width, 3].
Draw = Callable[[list[str], list[int]], list[np.ndarray]]
SIZES = ((128, 128), (160, 160), (192, 128), (128, 160), (192, 192))


@dataclass(frozen=True)
class Case:
    kind: str
    lang: Lang
    question: str
    answer: str


@dataclass(frozen=True)
class Sheet:
    """One picture, two or none, and what is asked about it."""

    images: tuple[np.ndarray, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Mark:
    case: Case
    said: str | None  # None where only right or wrong is known
    right: bool


def scene_sheet(purpose: str, seed: int, index: int, sizes: tuple[tuple[int, int], ...] = SIZES) -> Sheet:
    """Held-out scene number `index`: caption and list in one language each, every short question in one of the two."""
    rng = world.stream(purpose, seed, index)
    scene = world.random_scene(rng, "eval")
    width, height = sizes[index % len(sizes)]
    cases = []
    for i, (kind, ask) in enumerate({**language.LONG, **language.SHORT}.items()):
        lang = LANGS[(index + i) % 2]
        qa = ask(scene, lang, rng)
        if qa is not None:
            cases.append(Case(kind, lang, *qa))
    return Sheet((world.render(scene, width, height, rng).pixels,), tuple(cases))


def pair_sheet(purpose: str, seed: int, index: int) -> Sheet:
    """Two held-out scenes in one prompt."""
    rng = world.stream(purpose + " pairs", seed, index)
    scenes = language.random_pair(rng, lambda: world.random_scene(rng, "eval"))
    width, height = SIZES[index % len(SIZES)]
    cases = []
    for i, (kind, ask) in enumerate(language.PAIR.items()):
        lang = LANGS[(index + i) % 2]
        qa = ask(scenes, lang, rng)
        if qa is not None:
            cases.append(Case(kind, lang, *qa))
    return Sheet(tuple(world.render(s, width, height, rng).pixels for s in scenes), tuple(cases))


def text_sheet(purpose: str, seed: int, count: int = 60) -> Sheet:
    """Greetings, and questions about a picture that is not there."""
    rng = world.stream(purpose + " text", seed)
    cases = []
    for i in range(count):
        lang = LANGS[i % 2]
        qa = language.ask_without_picture(lang, rng, lambda: world.random_scene(rng, "eval"))
        cases.append(Case("no_picture", lang, *qa))
    return Sheet((), tuple(cases))


def drawing_request(purpose: str, seed: int, index: int) -> tuple[world.Scene, Lang, str]:
    rng = world.stream(purpose + " drawings", seed, index)
    scene, lang = world.random_scene(rng, "eval"), LANGS[index % 2]
    return scene, lang, language.caption(scene, lang)


# --- answering ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def answer_locally(net: DemoModel, sheets: list[Sheet]) -> list[Mark]:
    """Whether the most likely token is right at every place of the answer, which is what greedy decoding would give."""
    marks = []
    groups: dict[tuple, list[Sheet]] = defaultdict(list)
    for sheet in sheets:
        groups[(sheet.images[0].shape if sheet.images else (0, 0, 3), len(sheet.images))].append(sheet)
    for (shape, count), group in groups.items():
        for start in range(0, len(group), 16):
            some = group[start : start + 16]
            rows = []
            for sheet in some:
                row = batches.picture_row([(shape[0] // world.CELL, shape[1] // world.CELL)] * count)
                for c in sheet.cases:
                    row.answer(c.kind, c.lang, c.question, c.answer)
                rows.append(row)
            packed = batches.pack(rows, causal=True)
            slots: torch.Tensor | None = None
            seen: tuple[torch.Tensor, list[torch.Tensor]] = (torch.empty(0), [])
            if count:
                patches = torch.from_numpy(np.stack([batches.vision_patches(i) for s in some for i in s.images]))
                slots, seen = packed.marks == 1, net.see(patches, shape[0] // 16, shape[1] // 16)
            hidden = net.hidden(packed.ids, packed.positions, packed.allowed, slots, seen)
            for i, (row, sheet) in enumerate(zip(rows, some, strict=True)):
                best = net.lm_head(hidden[i]).argmax(-1)
                for (_, _, a, b), case in zip(row.answers, sheet.cases, strict=True):
                    right = bool((best[a:b] == packed.targets[i, a:b]).all())
                    marks.append(Mark(case, case.answer if right else None, right))
    return marks


def data_url(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def address(url: str, api_key: str | None) -> tuple[str, dict[str, str]]:
    """Base URL with /v1, and the headers that carry the key."""
    return url.rstrip("/").removesuffix("/v1") + "/v1", {"Authorization": f"Bearer {api_key}"} if api_key else {}


def draw_served(url: str, api_key: str | None) -> Draw:
    """Draws captions, each with its seed, by a server's POST /v1/images/generations, one after another."""
    import httpx

    base, headers = address(url, api_key)

    def draw(captions: list[str], seeds: list[int]) -> list[np.ndarray]:
        drawn = []
        with httpx.Client(headers=headers, timeout=600, trust_env=False) as client:
            for caption, seed in zip(captions, seeds, strict=True):
                body = {"prompt": caption, "seed": seed, "size": "128x128", "response_format": "b64_json"}
                reply = client.post(f"{base}/images/generations", json=body)
                reply.raise_for_status()
                png = base64.b64decode(reply.json()["data"][0]["b64_json"])
                drawn.append(np.asarray(Image.open(io.BytesIO(png)).convert("RGB")))
        return drawn

    return draw


async def answer_served(
    url: str, sheets: list[Sheet], concurrency: int, api_key: str | None, tick: Callable[[], None]
) -> list[Mark]:
    """Ask a server, greedily, one request per question."""
    import httpx

    base, headers = address(url, api_key)
    async with httpx.AsyncClient(headers=headers, timeout=600, trust_env=False) as client:
        listing = await client.get(f"{base}/models")
        listing.raise_for_status()
        model = listing.json()["data"][0]["id"]
        gate = asyncio.Semaphore(concurrency)

        async def one(images: list[str], case: Case) -> Mark:
            content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": u}} for u in images]
            content.append({"type": "text", "text": case.question})
            body = {
                "model": model, "messages": [{"role": "user", "content": content}], "temperature": 0, "top_p": 1,
                "max_tokens": 96,
            }  # fmt: skip
            async with gate:
                reply = await client.post(f"{base}/chat/completions", json=body)
            reply.raise_for_status()
            said = reply.json()["choices"][0]["message"]["content"] or ""
            tick()
            return Mark(case, said, said.strip() == case.answer)

        jobs = []
        for sheet in sheets:
            images = [data_url(i) for i in sheet.images]
            jobs += [one(images, c) for c in sheet.cases]
        return list(await asyncio.gather(*jobs))


# --- scoring --------------------------------------------------------------------------------------------------------


def table(marks: Iterable[Mark]) -> dict[str, dict[str, dict[str, float]]]:
    """kind -> language (and "all") -> n, share right, and what always giving the commonest answer would score."""
    groups: dict[str, dict[str, list[Mark]]] = defaultdict(lambda: defaultdict(list))
    for m in marks:
        groups[m.case.kind][m.case.lang].append(m)
    out: dict[str, dict[str, dict[str, float]]] = {}
    for kind, by_lang in groups.items():
        out[kind] = {}
        for lang, some in by_lang.items():
            commonest = Counter(m.case.answer for m in some).most_common(1)[0][1]
            out[kind][lang] = {
                "n": len(some), "right": sum(m.right for m in some) / len(some), "constant": commonest / len(some),
            }  # fmt: skip
        n = sum(v["n"] for v in out[kind].values())
        out[kind]["all"] = {
            "n": n,
            "right": sum(v["n"] * v["right"] for v in out[kind].values()) / n,
            "constant": sum(v["n"] * v["constant"] for v in out[kind].values()) / n,
        }
    return out


def score_drawings(
    draw: Draw, requests: list[tuple[world.Scene, Lang, str]], first_seed: int, tick: Callable[[int], None]
) -> tuple[dict[str, dict[str, float]], list[np.ndarray]]:
    """language (and "all") -> n and share right in each respect."""
    verdicts: dict[str, list[dict[str, bool]]] = defaultdict(list)
    pictures: list[np.ndarray] = []
    for start in range(0, len(requests), 32):
        some = requests[start : start + 32]
        drawn = draw([r[2] for r in some], [first_seed + start + i for i in range(len(some))])
        for (scene, lang, _), pixels in zip(some, drawn, strict=True):
            verdict = detector.judge(scene, detector.detect(pixels))
            verdicts[lang].append(verdict)
            verdicts["all"].append(verdict)
        pictures += drawn
        tick(len(some))
    shares = {
        lang: {"n": float(len(v))} | {key: sum(x[key] for x in v) / len(v) for key in v[0]}
        for lang, v in verdicts.items()
    }
    return shares, pictures


def contact_sheet(pictures: list[np.ndarray], columns: int = 8) -> Image.Image:
    rows = [np.hstack(pictures[i : i + columns]) for i in range(0, len(pictures) - columns + 1, columns)]
    return Image.fromarray(np.vstack(rows))


def quick_look(net: DemoModel, picture_path: Path) -> dict[str, Any]:
    """A small look during training; its scenes are not those of the final evaluation."""
    sheets = [scene_sheet("look", 0, i) for i in range(80)] + [pair_sheet("look", 0, i) for i in range(40)]
    result: dict[str, Any] = {
        kind: {lang: round(v["right"], 3) for lang, v in by_lang.items() if lang != "all"}
        for kind, by_lang in table(answer_locally(net, sheets)).items()
    }
    requests = [drawing_request("look", 0, i) for i in range(32)]
    shares, pictures = score_drawings(partial(sampler.draw, net), requests, 1000, lambda n: None)
    contact_sheet(pictures).save(picture_path)
    return result | {"drawings": {k: round(v, 3) for k, v in shares["all"].items()}}


def load_checkpoint(directory: Path) -> DemoModel:
    """The exported (rounded) weights, computing in float32."""
    from safetensors.torch import load_file

    net = DemoModel()
    net.load_state_dict({k: v.float() for k, v in load_file(directory / "model.safetensors").items()})
    return net.eval().requires_grad_(False)


class Ticker:
    def __init__(self, what: str, total: int):
        self.what, self.total, self.done, self.begun, self.shown = what, total, 0, time.monotonic(), 0.0

    def __call__(self, n: int = 1) -> None:
        self.done += n
        now = time.monotonic()
        if now - self.shown > 2 or self.done >= self.total:
            self.shown = now
            left = (now - self.begun) / self.done * (self.total - self.done)
            print(f"\r{self.what}: {self.done}/{self.total}, {left:.0f} s left ", end="", file=sys.stderr, flush=True)
            if self.done >= self.total:
                print(file=sys.stderr)


def commit() -> str:
    where = Path(__file__).resolve().parent
    found = subprocess.run(["git", "-C", str(where), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else "unknown"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="training.evaluate", description=__doc__)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--url", help="base URL of a server with the checkpoint loaded")
    how.add_argument("--serve", action="store_true", help="serve the checkpoint with ascend-vl for this evaluation")
    how.add_argument("--local", action="store_true", help="no server: the training forward, teacher-forced")
    parser.add_argument("--api-key")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--scenes", type=int, default=500)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--drawings", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7, help="of the held-out scenes; 7 is the one the card is about")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dry-run", action="store_true", help="print the numbers, leave the card alone")
    args = parser.parse_args(argv)
    if args.serve:
        with running(args.checkpoint, Wishes(max_model_len=2048)) as server:
            args.url = server.url
            return evaluate(args)
    return evaluate(args)


def evaluate(args: argparse.Namespace) -> int:
    """Ask, draw, judge and write the card; 1 when a bar that must be met is missed, else 0."""
    torch.set_num_threads(args.threads)
    net = load_checkpoint(args.checkpoint)

    sheets = [scene_sheet("evaluation", args.seed, i) for i in range(args.scenes)]
    sheets += [pair_sheet("evaluation", args.seed, i) for i in range(args.pairs)]
    sheets.append(text_sheet("evaluation", args.seed))
    begun = time.monotonic()
    if args.url:
        tick = Ticker("questions", sum(len(s.cases) for s in sheets))
        marks = asyncio.run(answer_served(args.url, sheets, args.concurrency, args.api_key, tick))
    else:
        marks = answer_locally(net, sheets)
    asked = time.monotonic()
    requests = [drawing_request("evaluation", args.seed, i) for i in range(args.drawings)]
    draw = draw_served(args.url, args.api_key) if args.url else partial(sampler.draw, net)
    shares, _ = score_drawings(draw, requests, 10_000 * args.seed, Ticker("drawings", len(requests)))

    judged = []
    for i in range(args.scenes):
        rng = world.stream("evaluation detector", args.seed, i)
        scene = world.random_scene(rng, "eval")
        judged.append(detector.judge(scene, detector.detect(world.render(scene, 128, 128, rng, "draw").pixels))["all"])
    result = {
        "schema": 1,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "how": "served" if args.url else "local",
        "seed": args.seed,
        "scenes": args.scenes,
        "pairs": args.pairs,
        "questions": table(marks),
        "drawings": shares,
        "detector_on_rendered": {"n": len(judged), "right": sum(judged) / len(judged)},
        "seconds": {"questions": round(asked - begun), "drawings": round(time.monotonic() - asked)},
    }
    wrong = [m for m in marks if not m.right and m.said is not None]
    result["wrong_examples"] = [
        {"kind": m.case.kind, "question": m.case.question, "wanted": m.case.answer, "said": m.said} for m in wrong[:20]
    ]
    print(card.scores(result))
    if not args.dry_run:
        text = json.dumps(result, ensure_ascii=False, indent=1)
        (args.checkpoint / "evaluation.json").write_text(text + "\n", encoding="utf-8")
        (args.checkpoint / "README.md").write_text(card.text(args.checkpoint, result), encoding="utf-8")
        print(f"written: {args.checkpoint / 'README.md'}")
    return 0 if card.bars_met(result) else 1


if __name__ == "__main__":
    sys.exit(main())
