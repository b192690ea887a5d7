"""`ascend-vl fetch REPO`: download a model with progress, resume and checksums, then inspect it."""

import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ascend_vl.cli import inspect as inspect_command
from ascend_vl.cli import output
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text


def command(
    repo: Annotated[str, typer.Argument(help="owner/name")],
    source: Annotated[str | None, typer.Option("--from", help="modelscope | huggingface")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="branch, tag or commit")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="target directory (default: ./NAME)")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="use what is here; never the network")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="download even what cannot be served")] = False,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Download a model: only the files serving needs, resuming, with checksums; ends with inspect."""

    def body() -> int:
        from ascend_vl.checkpoint import inspect_checkpoint
        from ascend_vl.checkpoint.hub_choice import is_offline

        where = offline_directory(repo, out, source, revision) if offline or is_offline() else None
        if where is None:
            where = out or Path(repo.rpartition("/")[2])
            download(repo, where, source, revision, anyway)
        checkpoint = inspect_checkpoint(where)
        if as_json:
            output.print_json({**checkpoint.to_json(), "path": str(where)})
        else:
            inspect_command.show(checkpoint)
        return 1 if checkpoint.verdict == "not servable" else 0

    output.run(body, as_json=as_json, lang=lang)


def offline_directory(repo: str, out: Path | None, source: str | None, revision: str | None) -> Path:
    """Where the model already is: the target directory, else the hub cache. Raises AscendVLError (`fetch-offline`)."""
    from ascend_vl.checkpoint.hub_choice import chosen_hub
    from ascend_vl.checkpoint.hub_huggingface import cached_snapshot

    target = out or Path(repo.rpartition("/")[2])
    if any(target.glob("*.safetensors")):
        return target
    cached = cached_snapshot(repo, revision) if chosen_hub(source) == "huggingface" else None
    if cached is not None:
        return cached
    raise AscendVLError(
        "fetch-offline",
        Text(f"{repo} is not here.", f"本地没有 {repo}。"),
        Text(
            f"Neither {target} nor the hub cache holds it, and the network is not to be used.",
            f"{target} 与缓存中都没有，且不允许联网。",
        ),
        Text("Fetch it on a machine with network and copy the directory.", "请在联网机器上下载后复制目录。"),
    )


def download(repo: str, out: Path, source: str | None, revision: str | None, anyway: bool) -> None:
    """List, judge by headers, download; a progress bar on stderr. Raises AscendVLError."""
    from ascend_vl.checkpoint.fetching import Fetch
    from ascend_vl.checkpoint.hub_choice import open_repository

    repository = open_repository(repo, source, revision)
    fetch = Fetch(repository, out, remark=lambda text: output.remarks.print(f"[yellow]{text}[/yellow]"))
    output.remarks.print(f"{repository.hub}: {repo}@{repository.revision[:12]} -> {out}")
    if not anyway:
        fetch.remote_checkpoint().require_servable()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    stopped = threading.Event()
    with Progress(*columns, console=output.remarks, transient=True) as bar:
        task = bar.add_task(repo, total=None)

        def follow() -> None:
            while not stopped.wait(0.3):
                state = fetch.progress
                label = Text("checking", "校验").format() if state.checking else Text("fetching", "下载")
                bar.update(
                    task, description=f"{label} {state.name}", completed=state.arrived(), total=state.total or None
                )

        watcher = threading.Thread(target=follow, daemon=True)
        watcher.start()
        try:
            fetch.run()
        finally:
            stopped.set()
            watcher.join()
