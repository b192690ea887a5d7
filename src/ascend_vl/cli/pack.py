"""`ascend-vl pack -o DIR`: a wheelhouse for sites without a network."""

from pathlib import Path
from typing import Annotated

import typer

from ascend_vl.cli import output
from ascend_vl.language import Text


def command(
    out: Annotated[Path, typer.Option("-o", "--out", help="a new directory")] = Path("ascend-vl-pack"),
    arch: Annotated[str, typer.Option("--arch", help="aarch64, x86_64, or both with a comma")] = "aarch64,x86_64",
    python: Annotated[
        str | None, typer.Option("--python", help="Python of the container: 3.10 | 3.11 | 3.12 (default: of its image)")
    ] = None,
    chip: Annotated[str, typer.Option("--chip", help="310P | A2 | A3: the image of the Containerfile")] = "310P",
    check: Annotated[Path | None, typer.Option("--check", help="verify a pack's checksums instead")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Wheels, rules, checksums, licences and a Containerfile in one directory. --check exits 1 for a changed file."""

    def body() -> int:
        from ascend_vl.plan import pack

        if chip not in ("310P", "A2", "A3"):
            raise typer.BadParameter("--chip: 310P | A2 | A3")
        if check is not None:
            return checked(check, pack.check(check), as_json)
        components = pack.pack(out, [name for name in arch.split(",") if name], python or pack.python_of(chip), chip)
        if as_json:
            output.print_json({"schema": 1, "out": str(out), "components": [vars(one) for one in components]})
            return 0
        for one in components:
            output.console.print(f"{one.name} {one.version} ({one.licence}, {one.architecture})", markup=False)
        output.console.print(f"{Text('written to', '已写入')} {out}", markup=False)
        return 0

    output.run(body, as_json=as_json, lang=lang)


def checked(folder: Path, wrong: list[str], as_json: bool) -> int:
    """Show what a check found: 1 when a file is missing, changed or extra."""
    if as_json:
        output.print_json({"schema": 1, "out": str(folder), "wrong": wrong})
    elif wrong:
        for name in wrong:
            output.console.print(f"{Text('missing, changed or extra', '缺失、改动或多余')}: {name}", markup=False)
    else:
        output.console.print(str(Text("every file is as packed", "全部文件与打包时一致")), markup=False)
    return 1 if wrong else 0
