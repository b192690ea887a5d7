"""What can be asked: a server by its URL, a checkpoint directory, or `transformers:DIR`."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.verify.routes import VARIABLE

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Target:
    """`kind` is server, engine or transformers; `place` the URL or the directory."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"transformers:{self.place}" if self.kind == "transformers" else self.place


def parse(text: str) -> Target:
    """Raises AscendVLError `target-unknown` for a directory that is not there."""
    if text.startswith(("http://", "https://")):
        return Target("server", text)
    kind, place = (
        ("transformers", text.removeprefix("transformers:")) if text.startswith("transformers:") else ("engine", text)
    )
    if not Path(place).is_dir():
        raise AscendVLError(
            "target-unknown",
            Text(f"There is nothing to ask at {text!r}.", f"{text!r} 处没有可提问的对象。"),
            Text(f"{place} is not a directory.", f"{place} 不是目录。"),
            Text(
                "Give http://HOST:PORT, a model directory, or transformers:DIRECTORY.",
                "请给出 http://主机:端口、模型目录或 transformers:目录。",
            ),
        )
    return Target(kind, place)


def check_dtype(dtype: str | None) -> None:
    """Raises AscendVLError `dtype-unknown`."""
    if dtype is not None and dtype not in DTYPES:
        raise AscendVLError(
            "dtype-unknown",
            Text(f"There is no dtype {dtype!r}.", f"没有数据类型 {dtype!r}。"),
            Text(f"There are: {', '.join(DTYPES)}.", f"可用：{'、'.join(DTYPES)}。"),
            Text("Name one of them.", "请使用其中之一。"),
        )


@contextlib.contextmanager
def engine(model: Path, dtype: str | None, dummy: bool = False, on_stage: Any = None, **wishes: Any) -> Iterator[Any]:
    """Our server for a checkpoint, started to be looked into, and stopped; yields serve's RunningServer."""
    from ascend_vl.plan import Wishes
    from ascend_vl.serve.process import running

    chosen: dict[str, Any] = {**({"dtype": dtype} if dtype else {}), **wishes}
    wanted = dataclasses.replace(Wishes(), **chosen)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        with running(model, wanted, dummy=dummy, on_stage=on_stage) as server:
            yield server
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
