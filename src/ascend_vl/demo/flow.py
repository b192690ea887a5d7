"""The demo: serve the bundled model, show it a picture, ask, draw, verify, say where everything is."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from ascend_vl.errors import AscendVLError
from ascend_vl.images import load_image
from ascend_vl.language import Text
from ascend_vl.serve.startup_log import OnStage

HERE = Path(__file__).parent
CHECKPOINT = HERE / "checkpoint"
PICTURES = HERE / "pictures"
DRAWING_PROMPT = "a red circle to the left of a blue square on a white background"
SEED = 7
# Ids of the bundled cases that are shown; verification asks all of them.
QUESTIONS = ("caption-en", "caption-zh", "json-en", "count-zh", "background-en", "color-zh")


class Screen(Protocol):
    """What the flow tells, step by step; the command line shows it."""

    def step(self, title: Text) -> None: ...
    def say(self, text: str) -> None: ...
    def picture(self, picture: Image.Image, path: Path) -> None: ...
    def answer(self, question: str, answer: str) -> None: ...
    def busy(self, text: str) -> None: ...


@dataclass
class Result:
    """What the demo did. `verify` is the record of the verification, `seconds` by step."""

    out: Path
    model: str
    answers: list[dict[str, Any]] = field(default_factory=list)
    drawn: Path | None = None
    verify: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Schema 1 of `demo --json`."""
        return {
            "schema": 1,
            "out": str(self.out),
            "model": self.model,
            "answers": self.answers,
            "drawn": None if self.drawn is None else str(self.drawn),
            "report": str(self.out / "verify" / "report.html"),
            "verify": self.verify,
            "seconds": self.seconds,
        }


def require_checkpoint(model: Path) -> None:
    """Raises AscendVLError `demo-missing` when the bundled checkpoint is not in this installation."""
    if (model / "config.json").is_file():
        return
    raise AscendVLError(
        "demo-missing",
        Text(f"There is no checkpoint in {model}.", f"{model} 中没有权重。"),
        Text("This installation was packed without the demo model.", "此安装包未附带演示模型。"),
        Text("Install from the repository, or give --model DIRECTORY.", "请从代码仓库安装，或用 --model 指定目录。"),
    )


def run(model: Path, out: Path, screen: Screen, starting: Callable[[Path], AbstractContextManager[OnStage]]) -> Result:
    """Walk through everything into the new directory `out`.

    `starting(model)` gives the `on_stage` of serve.process. Raises what its parts raise; no process is left then.
    """
    from ascend_vl.verify import targets
    from ascend_vl.verify.capture import require_empty

    require_checkpoint(model)
    require_empty(out)
    out.mkdir(parents=True, exist_ok=True)
    result = Result(out, str(model))
    screen.step(Text("Serving the bundled model with vLLM", "用 vLLM 启动内置模型"))
    began = time.monotonic()
    with starting(model) as on_stage, targets.engine(model, None, on_stage=on_stage) as server:
        result.seconds["serve"] = _since(began)
        screen.say(f"{server.url}  ({result.seconds['serve']} s)")
        for name, part in (("look", _look), ("draw", _draw), ("verify", _verify)):
            began = time.monotonic()
            part(result, server, screen)
            result.seconds[name] = _since(began)
    result.seconds["all"] = round(sum(result.seconds.values()), 1)
    return result


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


def _look(result: Result, server: Any, screen: Screen) -> None:
    """Show each picture that is asked about in English and in Chinese, and what the model says."""
    from ascend_vl.verify.cases import read_cases
    from ascend_vl.verify.remote import Server

    screen.step(Text("Looking at pictures, in English and Chinese", "看图问答（英文与中文）"))
    asked, shown = Server(server.url, server.api_key), set()
    for case in sorted(read_cases(PICTURES / "cases.jsonl"), key=lambda case: case.images):
        if case.id not in QUESTIONS:
            continue
        for path in case.images:
            if path not in shown:
                screen.picture(load_image(path), path)
                shown.add(path)
        answer, _ = asked.ask(case)
        screen.answer(case.prompt, answer.text)
        result.answers.append({"id": case.id, "question": case.prompt, "answer": answer.text})


def _draw(result: Result, server: Any, screen: Screen) -> None:
    """One picture, when the served model can draw."""
    if not any(worker["drawing"] for worker in (server.status or {}).get("workers", [])):
        return
    from ascend_vl.drawing import client

    screen.step(Text("Drawing, with the same weights", "用同一份权重画图"))
    with server.client() as http:
        drawn = client.draw(
            http, DRAWING_PROMPT, on_progress=lambda step, steps: screen.busy(f"{step}/{steps}"), seed=SEED
        )
    result.drawn = result.out / "drawn.png"
    result.drawn.write_bytes(drawn.data)
    screen.say(DRAWING_PROMPT)
    screen.picture(load_image(drawn.data), result.drawn)


def _verify(result: Result, server: Any, screen: Screen) -> None:
    """Stages A to C, and D when it drew, on the running server; the report."""
    from ascend_vl.verify import requirements, verification
    from ascend_vl.verify.stages import Session

    title = Text(
        "Verifying: dummy weights, real weights, against Transformers",
        "验证：虚拟权重、真实权重、对照 Transformers",
    )
    if result.drawn:
        title = Text(f"{title.en}, each step of drawing", f"{title.zh}、逐步对照绘图")
    screen.step(title)
    session = Session(
        model=Path(result.model),
        cases=PICTURES / "cases.jsonl",
        out=result.out / "verify",
        requirements=requirements.of_recipe("default"),
        progress=screen.busy,
    )
    session.use(server)
    result.verify = verification.verify(session, ["A", "B", "C", *("D" if result.drawn else "")], "default")
