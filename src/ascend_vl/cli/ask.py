"""`ascend-vl ask TARGET QUESTION --image P ...`: one answer from a server or a model."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ascend_vl.cli import output


def command(
    target: Annotated[str, typer.Argument(help="http://HOST:PORT, a model directory, or transformers:DIRECTORY")],
    question: Annotated[str, typer.Argument(help="what to ask")],
    image: Annotated[list[str] | None, typer.Option("--image", help="a picture file or data: URL; repeatable")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="longest answer, in tokens")] = 512,
    api_key: Annotated[str | None, typer.Option(envvar="ASCEND_VL_API_KEY", help="for a server that wants one")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Ask one question, at temperature 0, about any number of pictures."""

    def body() -> int:
        from ascend_vl.serve import asking
        from ascend_vl.verify import targets

        with tempfile.TemporaryDirectory(prefix="ascend-vl-") as scratch:
            pictures = asking.pictures(image or [], Path(scratch))
            answer = ask(targets.parse(target), asking.case(question, pictures, max_tokens), api_key)
        if as_json:
            output.print_json({"schema": 1, **answer})
        else:
            output.console.print(answer["text"], markup=False, soft_wrap=True)
        return 0

    output.run(body, as_json=as_json, lang=lang)


def ask(target: Any, case: Any, api_key: str | None) -> dict[str, Any]:
    """The answer of whatever `target` is; an engine is started and stopped for a directory."""
    from ascend_vl.serve import asking, display, process

    if target.kind == "server":
        return asking.of_server(target.place, case, api_key)
    if target.kind == "transformers":
        return asking.of_transformers(Path(target.place), case)
    with (
        display.starting(target.place, output.remarks) as on_stage,
        process.running(target.place, on_stage=on_stage) as server,
    ):
        return asking.of_server(server.url, case, server.api_key)
