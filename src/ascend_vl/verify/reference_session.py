"""The reference kept loaded, for many small questions: a child that reads one JSON command a line and answers alike.

Commands: {"point", "out", "following", "last"} runs one prefill of the case and the token ids that follow it and writes
out.dtype.npy and out.golden.npy, the tensor at a place (`last`: its last row) at the model's dtype and in float64
(float32 where float64 would not fit).
"""

import contextlib
import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

# Beyond this many parameters the golden model is float32, not float64.
LARGEST_DOUBLE = 2_000_000_000


class ReferenceSession:
    """The parent's handle on the child."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self._process, self._errors = process, errors

    def point(self, name: str, out: Path, following: list[int] | None = None, last: bool = False) -> None:
        """Have both tensors of a place written. Raises AscendVLError `reference-failed`."""
        self._say({"point": name, "out": str(out), "following": following or [], "last": last})

    def _say(self, command: dict[str, Any]) -> None:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            while line := self._process.stdout.readline():
                if line.startswith('{"done"'):
                    return
        except BrokenPipeError:
            pass
        said = self._errors.read_text(errors="replace").strip().splitlines()
        why = said[-1] if said else "it ended"
        raise AscendVLError(
            "reference-failed",
            Text("Transformers could not answer the cases.", "Transformers 无法回答这些用例。"),
            Text(why, why),
            Text("inspect names what is wrong with a checkpoint.", "用 inspect 查看权重目录的问题。"),
        )


@contextlib.contextmanager
def session(model: Path, dtype: str, cases: Path, case: str) -> Iterator[ReferenceSession]:
    """Start the child for one case; it is gone at the end."""
    with tempfile.TemporaryDirectory() as scratch:
        errors = Path(scratch) / "stderr"
        words = [sys.executable, "-m", "ascend_vl.verify.reference_session", str(model), dtype, str(cases), case]
        with errors.open("w") as log:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                yield ReferenceSession(process, errors)
            finally:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe:
                        with contextlib.suppress(BrokenPipeError):
                            pipe.close()


def main(model: str, dtype: str, cases: str, identifier: str) -> None:
    """The child."""
    import numpy as np
    import torch

    from ascend_vl.verify.cases import read_cases
    from ascend_vl.verify.points import PointWatch
    from ascend_vl.verify.reference import Reference, followed

    reference = Reference(Path(model), dtype)
    case = next(case for case in read_cases(Path(cases)) if case.id == identifier)
    small = sum(p.numel() for p in reference.model.parameters()) <= LARGEST_DOUBLE
    golden = copy.deepcopy(reference.model).to(torch.float64 if small else torch.float32)
    inputs = reference.inputs(case)
    if "pixel_values" in inputs:
        # What enters the tower is rounded to the model's dtype on every side; golden begins after that.
        inputs["pixel_values"] = inputs["pixel_values"].to(getattr(torch, dtype))
    for line in sys.stdin:
        command = json.loads(line)
        whole = followed(inputs, command["following"])
        for name, side in (("dtype", reference.model), ("golden", golden)):
            watch = PointWatch(side, command["point"], command["last"])
            with torch.inference_mode():
                given = {k: v.to(side.dtype) if v.is_floating_point() else v for k, v in whole.items()}
                side(**given)
            np.save(f"{command['out']}.{name}.npy", watch.take().numpy())
        print(json.dumps({"done": command["point"]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
