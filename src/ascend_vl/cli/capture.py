"""`ascend-vl capture TARGET --cases F --out RUN`: record answers and what led to them."""

from pathlib import Path
from typing import Annotated

import typer

from ascend_vl.cli import output
from ascend_vl.language import Text


def command(
    target: Annotated[str, typer.Argument(help="http://HOST:PORT, a model directory, or transformers:DIRECTORY")],
    cases: Annotated[Path, typer.Option(help="JSONL of {id, images, prompt, max_tokens, key_fields}")],
    out: Annotated[Path, typer.Option(help="directory of the RUN to write; new or empty")],
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16")] = None,
    repeats: Annotated[int, typer.Option(min=0, help="further answers to each request: self-agreement")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="also ask all cases this many at a time")] = 1,
    tensors: Annotated[bool, typer.Option(help="also store pixel values and tower outputs")] = False,
    force: Annotated[Path | None, typer.Option(help="a RUN whose answers to follow, position by position")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="ASCEND_VL_API_KEY", help="for a server that wants one")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Record answers, token ids, log probabilities and hashes of every stage, at temperature 0."""

    def body() -> int:
        from ascend_vl.verify import capture, runs, targets

        answers = runs.read_run(force).answers if force else {}
        options = capture.Options(
            dtype=dtype,
            repeats=repeats,
            concurrency=concurrency,
            tensors=tensors,
            api_key=api_key,
            forced={name: (a.text, a.token_ids) for name, a in answers.items() if a.token_ids is not None} or None,
        )
        with output.remarks.status(str(Text("capturing", "记录中"))) as shown:

            def on_case(done: int, total: int) -> None:
                shown.update(f"{Text('answered', '已回答')} {done}/{total}")

            run = capture.capture(targets.parse(target), cases, out, options, on_case)
        if as_json:
            output.print_json({"schema": 1, "run": str(out), "cases": len(run.answers), "info": run.info})
        else:
            for name, answer in run.answers.items():
                output.console.print(f"{name}: {answer.text}", markup=False, soft_wrap=True)
            output.console.print(f"{Text('recorded', '已记录')}: {out}", markup=False, soft_wrap=True)
        return 0

    output.run(body, as_json=as_json, lang=lang)
