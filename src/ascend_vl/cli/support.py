"""`ascend-vl support -o OUT.zip`: logs, status, plan, versions, redacted, in one archive."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ascend_vl.cli import output
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text


def command(
    model: Annotated[str | None, typer.Argument(help="also the plan for this model")] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="the archive to write")] = Path("ascend-vl-support.zip"),
    log: Annotated[list[Path] | None, typer.Option("--log", help="a log to add; may be given several times")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Collect logs, status, plan and versions into one archive without keys, names and addresses."""

    def body() -> int:
        from ascend_vl.machine import detect
        from ascend_vl.machine.support import write_archive
        from ascend_vl.plan.diagnosis import examine

        machine = detect(hashes=True)
        names = write_archive(out, examine(machine).to_json(), log, _plan(model, machine) if model else None)
        if as_json:
            output.print_json({"schema": 1, "archive": str(out), "files": names})
        else:
            output.console.print(f"{out}", markup=False)
            for name in names:
                output.console.print(f"  {name}", markup=False)
            note = Text(
                "Keys, names and addresses were taken out; look before you send it.",
                "已去除密钥、名称与地址；发送前请自行检查。",
            )
            output.console.print(str(note), markup=False)
        return 0

    output.run(body, as_json=as_json, lang=lang)


def _plan(model: str, machine: Any) -> dict[str, Any]:
    """The plan, or the error there is instead of one."""
    from ascend_vl.cli.plan import find
    from ascend_vl.plan import DoesNotFit, Wishes, resolve
    from ascend_vl.plan.outputs import plan_json

    try:
        return plan_json(resolve(find(model), Wishes(), machine))
    except DoesNotFit as refusal:
        return plan_json(refusal.plan) | refusal.to_json()
    except AscendVLError as error:
        return error.to_json()
