"""`ascend-vl demo`: serve the bundled model, look at a picture, draw one, verify, report."""

import shlex
import shutil
import sys
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
    """The verdict, where everything is, and what to do next here and on an Ascend machine."""
    from ascend_vl.demo import flow
    from ascend_vl.verify.wording import words

    line = output.console.print
    record = result.verify
    for stage in record["stages"]:
        line(f"{stage['key']} {Text(**stage['title'])}: {words(stage['status'])}", markup=False)
    line(f"{Text('verdict', '结论')}: {words(record['verdict'])}   {result.seconds['all']} s", markup=False)
    line(f"\n[bold]{Text('Where everything is', '文件位置')}[/bold]")
    report = result.out / "verify" / "report.html"
    places = [(Text("report", "报告"), report), (Text("recorded answers", "记录的回答"), result.out / "verify")]
    if result.drawn is not None:
        places.append((Text("drawn picture", "画出的图"), result.drawn))
    for name, path in places:
        line(f"  {name}: {path}", markup=False, soft_wrap=True)
    line(f"\n[bold]{Text('Next, here', '下一步：在本机')}[/bold]")
    program = _program()
    picture = _short(flow.PICTURES / "row-white.png")
    for command in (
        f"{program} serve {_short(Path(result.model))}",
        f'{program} ask http://127.0.0.1:8000 "What is in the picture?" --image {picture}',
        f'{program} draw http://127.0.0.1:8000 "a yellow star on a black background" -o star.png',
    ):
        line(f"  {command}", markup=False, soft_wrap=True)
    following = Text(
        "Next, on an Ascend machine, in the vllm-ascend container", "下一步：在昇腾机器的 vllm-ascend 容器中"
    )
    line(f"\n[bold]{following}[/bold]")
    for command in (
        "pip install .",
        "ascend-vl doctor --probe",
        "ascend-vl fetch Qwen/Qwen3-VL-8B-Instruct",
        "ascend-vl serve Qwen3-VL-8B-Instruct",
        "ascend-vl verify Qwen3-VL-8B-Instruct",
    ):
        line(f"  {command}", markup=False)


def _program() -> str:
    """How this program is called: by its name where the shell finds this one, else by its path."""
    here = Path(sys.executable).with_name("ascend-vl")
    found = shutil.which("ascend-vl")
    return _short(here) if here.is_file() and (found is None or Path(found) != here) else "ascend-vl"


def _short(path: Path) -> str:
    """A path from the current directory where it is below it."""
    try:
        return shlex.quote(str(path.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(path))
