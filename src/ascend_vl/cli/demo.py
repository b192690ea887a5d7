"""`ascend-vl demo`: serve the bundled model, look at a picture, draw one, verify, report."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ascend_vl.cli import output
from ascend_vl.language import Text

if TYPE_CHECKING:
    from PIL import Image


def command(
    out: Annotated[Path | None, typer.Option(help="directory for pictures and report; new")] = None,
    model: Annotated[Path | None, typer.Option(help="another model directory")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Serve the bundled model, look at pictures, draw one, verify, report: exit 0 when the verification passed."""

    def body() -> int:
        from ascend_vl.demo import flow
        from ascend_vl.serve import display

        place = out or Path(time.strftime("ascend-vl-demo-%Y%m%d-%H%M%S"))
        console = output.remarks if as_json else output.console
        with _shown(console) as screen:

            def starting(path: Path) -> AbstractContextManager[Any]:
                return display.starting(path, output.remarks)

            result = flow.run(model or flow.CHECKPOINT, place, screen, starting)
        if as_json:
            output.print_json(result.to_json())
        else:
            show(result)
        return 0 if result.verify["verdict"] == "pass" else 1

    output.run(body, as_json=as_json, lang=lang)


@contextmanager
def _shown(console: Console) -> Iterator["_Screen"]:
    screen = _Screen(console)
    try:
        yield screen
    finally:
        screen.busy("")


class _Screen:
    """flow.Screen on a console; what is being done now stands in a line that goes away."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Any = None

    def step(self, title: Text) -> None:
        self.busy("")
        self._console.print(f"\n[bold]{escape(str(title))}[/bold]")

    def say(self, text: str) -> None:
        self.busy("")
        self._console.print(text, markup=False, soft_wrap=True)

    def picture(self, picture: "Image.Image", path: Path) -> None:
        from ascend_vl.demo import terminal

        self.say(str(path))
        if terminal.can_draw(self._console):
            self._console.print(terminal.half_blocks(picture))

    def answer(self, question: str, answer: str) -> None:
        self.say(f"  {question}\n    {answer}")

    def busy(self, text: str) -> None:
        if not text:
            if self._status is not None:
                self._status.stop()
                self._status = None
            return
        if self._status is None:
            self._status = output.remarks.status("")
            self._status.start()
        self._status.update(escape(text))


def show(result: Any) -> None:
    """The verdict, where everything is, and what to do next on an Ascend machine."""
    line = output.console.print
    record = result.verify
    for stage in record["stages"]:
        line(f"{stage['key']} {Text(**stage['title'])}: {stage['status']}", markup=False)
    line(f"{Text('verdict', '结论')}: {record['verdict']}   {result.seconds['all']} s", markup=False)
    line(f"\n[bold]{Text('Where everything is', '文件位置')}[/bold]")
    report = result.out / "verify" / "report.html"
    places = [(Text("report", "报告"), report), (Text("recorded answers", "记录的回答"), result.out / "verify")]
    if result.drawn is not None:
        places.append((Text("drawn picture", "画出的图"), result.drawn))
    for name, path in places:
        line(f"  {name}: {path}", markup=False, soft_wrap=True)
    following = Text(
        "Next, on an Ascend machine, in the vllm-ascend container", "下一步：在昇腾机器的 vllm-ascend 容器中"
    )
    line(f"\n[bold]{following}[/bold]")
    for command in (
        "pip install .",
        "ascend-vl doctor --probe",
        "ascend-vl serve MODEL",
        "ascend-vl verify MODEL",
    ):
        line(f"  {command}", markup=False)
