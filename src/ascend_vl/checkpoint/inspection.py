"""What a checkpoint is and whether it can be served, from headers alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ascend_vl.checkpoint.companions import companion_defects
from ascend_vl.checkpoint.comparison import canonical
from ascend_vl.checkpoint.config_file import Config, read_config, read_json
from ascend_vl.checkpoint.defects import Defect, defect
from ascend_vl.checkpoint.expected import HEAD_TENSORS
from ascend_vl.checkpoint.files import Files, local_files
from ascend_vl.checkpoint.hub import RemoteFiles
from ascend_vl.checkpoint.hub_choice import chosen_hub, is_offline, is_repository_id, open_repository
from ascend_vl.checkpoint.quantisation import Quantisation, quantisation_of
from ascend_vl.checkpoint.safetensors_header import TensorInfo
from ascend_vl.checkpoint.shapes import TextShape, VisionShape
from ascend_vl.checkpoint.shards import Shards, read_shards
from ascend_vl.checkpoint.tensor_defects import Family, Judgement, judge_tensors
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

Verdict = Literal["servable", "servable with warnings", "not servable"]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as its headers describe it.

    `parameters` counts stored elements, `bytes` those of the tensors (not the files), `dtypes` gives parameters by
    safetensors dtype name. `extra_tensors` are those of the nine pixel-head tensors that are stored. Missing and
    unexpected tensors are named in the published layout.
    """

    path: str
    family: Family
    has_head: bool
    architectures: tuple[str, ...]
    parameters: int
    bytes: int
    dtypes: Mapping[str, int]
    vision: VisionShape | None
    text: TextShape | None
    config: Mapping[str, Any]
    quantisation: Quantisation | None
    extra_tensors: tuple[str, ...]
    missing_tensors: tuple[str, ...]
    unexpected_tensors: tuple[str, ...]
    defects: tuple[Defect, ...]
    tensors: Mapping[str, TensorInfo]

    @property
    def verdict(self) -> Verdict:
        """By the worst defect; notes do not count."""
        severities = {item.severity for item in self.defects}
        if "error" in severities:
            return "not servable"
        return "servable with warnings" if "warning" in severities else "servable"

    @property
    def errors(self) -> tuple[Defect, ...]:
        """The defects that forbid serving."""
        return tuple(item for item in self.defects if item.severity == "error")

    def to_json(self) -> dict[str, Any]:
        """Schema 1 of `inspect --json`; texts in the language that is spoken now."""
        return {
            "schema": 1,
            "family": self.family,
            "parameters": self.parameters,
            "bytes": self.bytes,
            "dtypes": dict(self.dtypes),
            "vision": _plain(self.vision),
            "text": _plain(self.text),
            "extra_tensors": list(self.extra_tensors),
            "missing_tensors": list(self.missing_tensors),
            "unexpected_tensors": list(self.unexpected_tensors),
            "defects": [{"code": item.code, "what": str(item.what)} for item in self.defects],
            "verdict": self.verdict,
        }

    def require_servable(self) -> None:
        """Raise AscendVLError (`checkpoint-defective`, exit 1) naming what is wrong, or return."""
        errors = self.errors
        if not errors:
            return
        rest = len(errors) - 3
        shown = [item.what for item in errors[:3]]
        raise AscendVLError(
            "checkpoint-defective",
            Text(f"{self.path} cannot be served.", f"{self.path} 无法部署。"),
            Text(
                " ".join(item.en for item in shown) + (f" And {rest} more." if rest > 0 else ""),
                "".join(item.zh for item in shown) + (f"另有 {rest} 项。" if rest > 0 else ""),
            ),
            errors[0].do,
            exit_code=1,
        )


def _plain(shape: TextShape | VisionShape | None) -> dict[str, Any] | None:
    """Field names and values, tuples as lists."""
    if shape is None:
        return None
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(shape).items()}


def inspect_checkpoint(path: str | Path, source: str | None = None, revision: str | None = None) -> Checkpoint:
    """Inspect a model directory, a hub cache entry, one safetensors file, or a repository by its id.

    `source` ("huggingface", "modelscope") and `revision` are for a repository id. Reads headers and small JSON files
    only and writes nothing. Raises AscendVLError when there is nothing to judge
    (`model-not-found`, `model-unreadable`, `model-ambiguous`, `repository-*`).
    """
    return inspect_files(open_files(path, source, revision))


def open_files(path: str | Path, source: str | None = None, revision: str | None = None) -> Files:
    """The files that `path` means. Raises AscendVLError as inspect_checkpoint does."""
    local = Path(path).expanduser()
    if local.exists():
        return _of_a_model(local_files(local), local)
    if is_repository_id(str(path)):
        return _repository_files(str(path), source, revision)
    raise AscendVLError(
        "model-not-found",
        Text(f"There is no {path}.", f"找不到 {path}。"),
        Text("It is neither a directory here nor a file.", "它既不是本地目录，也不是文件。"),
        Text("Give a model directory; ascend-vl fetch downloads one.", "请给出模型目录；可用 ascend-vl fetch 下载。"),
    )


# Names and endings that some kind of model, or an unfinished download of one, has.
_MODEL_NAMES = ("config.json", "model_index.json")
_MODEL_ENDINGS = (".safetensors", ".index.json", ".bin", ".gguf", ".pt", ".pth", ".ckpt", ".partial", ".incomplete")


def _of_a_model(files: Files, local: Path) -> Files:
    """The same files. Raises AscendVLError `model-not-found` for a directory in which nothing is a model's."""
    names = (*files.sizes, *files.broken_links)
    if not local.is_dir() or any(name in _MODEL_NAMES or name.endswith(_MODEL_ENDINGS) for name in names):
        return files
    raise AscendVLError(
        "model-not-found",
        Text(f"{local} is no model directory.", f"{local} 不是模型目录。"),
        Text("It holds no config.json and no weights.", "其中没有 config.json，也没有权重。"),
        Text("Give the directory with config.json; ascend-vl fetch downloads one.",
             "请给出含 config.json 的目录；可用 ascend-vl fetch 下载。"),
    )  # fmt: skip


def _repository_files(name: str, source: str | None, revision: str | None) -> Files:
    """A snapshot in the local hub cache if there is one, else the repository itself."""
    if chosen_hub(source) == "huggingface":
        from ascend_vl.checkpoint.hub_huggingface import cached_snapshot

        snapshot = cached_snapshot(name, revision)
        if snapshot is not None:
            return local_files(snapshot)
    if is_offline():
        raise AscendVLError(
            "model-not-found",
            Text(f"There is no {name} here.", f"本地没有 {name}。"),
            Text(
                "The environment says to stay offline and the hub cache does not hold it.",
                "环境要求离线，且本地缓存中没有。",
            ),
            Text("Give a model directory, or unset HF_HUB_OFFLINE.", "请给出模型目录，或取消 HF_HUB_OFFLINE。"),
        )
    return RemoteFiles(open_repository(name, source, revision))


def inspect_files(files: Files) -> Checkpoint:
    """Inspect opened files; see inspect_checkpoint."""
    config, shards = read_config(files), read_shards(files)
    defects = [*_directory_defects(files), *config.defects, *shards.defects]
    family = _family(config, shards)
    if family == "other" and not any(item.code in ("hidream-i1", "diffusers-pipeline") for item in defects):
        kind = config.model_type or ", ".join(config.architectures) or "?"
        defects.append(defect("family-other", f"model_type is {kind}.", f"model_type 为 {kind}。"))
    description, broken = _description(files)
    quantisation, found = quantisation_of(config.value, description)
    defects += broken + found
    extra = tuple(name for name in HEAD_TENSORS if name in shards.tensors)
    judgement = Judgement((), (), ())
    if family != "other":
        judgement = judge_tensors(config, shards, quantisation, family)
        defects += judgement.defects
        defects += companion_defects(files, config, has_head=len(extra) == len(HEAD_TENSORS))
    dtypes: Counter[str] = Counter()
    for info in shards.tensors.values():
        dtypes[info.dtype] += info.parameters
    return Checkpoint(
        path=files.where,
        family=family,
        has_head=len(extra) == len(HEAD_TENSORS),
        architectures=config.architectures,
        parameters=sum(dtypes.values()),
        bytes=sum(info.bytes for info in shards.tensors.values()),
        dtypes=dict(dtypes.most_common()),
        vision=config.vision,
        text=config.text,
        config=config.value,
        quantisation=quantisation,
        extra_tensors=extra,
        missing_tensors=judgement.missing,
        unexpected_tensors=judgement.unexpected,
        defects=tuple(defects),
        tensors=shards.tensors,
    )


def _family(config: Config, shards: Shards) -> Family:
    """HiDream-O1 by its tensors, the others by model_type; tensors alone decide when there is no config."""
    names = {canonical(name) for name in (*shards.tensors, *shards.listed)}
    kind = config.model_type
    if kind in ("", "qwen3_vl") and names & set(HEAD_TENSORS):
        return "hidream-o1"
    if kind == "qwen3_vl" or (
        not kind and any(name.startswith("model.visual.deepstack_merger_list.") for name in names)
    ):
        experts = not kind and any(".mlp.experts." in name for name in names)
        return "qwen3-vl-moe" if experts else "qwen3-vl"
    return "qwen3-vl-moe" if kind == "qwen3_vl_moe" else "other"


def _directory_defects(files: Files) -> list[Defect]:
    found = [
        defect("link-broken", f"{name} leads nowhere.", f"{name} 指向不存在的文件。")
        for name in files.broken_links
        if not name.endswith(".safetensors")
    ]
    if "model_index.json" in files.sizes:
        parsed, _ = read_json(files, "model_index.json", "side-file-broken")
        kind = parsed.value.get("_class_name", "?") if isinstance(parsed.value, dict) else "?"
        code = "hidream-i1" if str(kind).startswith("HiDreamImage") else "diffusers-pipeline"
        found.append(defect(code, f"model_index.json says {kind}.", f"model_index.json 写着 {kind}。"))
    return found


def _description(files: Files) -> tuple[Any, list[Defect]]:
    """ModelSlim's description file, parsed, or None."""
    names = [name for name in files.sizes if name.startswith("quant_model_description") and name.endswith(".json")]
    if not names:
        return None, []
    parsed, found = read_json(files, sorted(names)[0], "quant-description")
    return parsed.value, found
