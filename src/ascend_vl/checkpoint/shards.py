"""The weight files of a checkpoint together with their index: which tensor is where, and where the two disagree."""

from collections.abc import Mapping
from dataclasses import dataclass

from ascend_vl.checkpoint import json_file
from ascend_vl.checkpoint.defects import Defect, defect, some
from ascend_vl.checkpoint.files import Files
from ascend_vl.checkpoint.safetensors_header import Header, TensorInfo, read_header

INDEX_ENDING = ".safetensors.index.json"


@dataclass(frozen=True)
class Shards:
    """`tensors` is what the headers say (a name stored twice: the last file in name order, as loaders do).

    `files` is tensor to file as stored, `listed` the same by the index (empty without one).
    """

    headers: Mapping[str, Header]
    tensors: Mapping[str, TensorInfo]
    files: Mapping[str, str]
    listed: Mapping[str, str]
    defects: tuple[Defect, ...]

    @property
    def metadata(self) -> dict[str, str]:
        """The headers' own metadata, merged."""
        return {key: value for header in self.headers.values() for key, value in header.metadata.items()}


def read_shards(files: Files) -> Shards:
    """Read the index and every header. Never raises for what is in them."""
    listed, total, found = _read_index(files)
    names = sorted(name for name in files.sizes if name.endswith(".safetensors"))
    # Loaders leave out what the index does not name.
    used = [name for name in names if not listed or name in set(listed.values())]
    headers = {name: _read(files, name) for name in used}
    found += [
        defect(code, f"{name}: {en}.", f"{name}：{zh}。")
        for name, header in headers.items()
        for code, en, zh in header.problems
    ]
    if not names and not listed:
        found.append(defect("weights-missing", "There is no *.safetensors file.", "没有 *.safetensors 文件。"))
    found += _file_defects(names, listed, files)
    tensors: dict[str, TensorInfo] = {}
    where: dict[str, str] = {}
    twice: list[str] = []
    for name in used:
        for tensor, info in headers[name].tensors.items():
            if tensor in tensors:
                twice.append(f"{tensor} ({where[tensor]}, {name})")
            tensors[tensor], where[tensor] = info, name
    if twice:
        found.append(
            defect("tensor-duplicated", f"Stored in two shards: {some(twice)}.", f"存于两个分片：{some(twice)}。")
        )
    if listed:
        found += _label_defects(where, listed, headers)
        found += _total_defects(tensors, total, found)
    return Shards(headers, tensors, where, listed, tuple(found))


def _read(files: Files, name: str) -> Header:
    try:
        return read_header(lambda start, length: files.read(name, start, length), files.sizes[name])
    except OSError as error:
        return Header(problems=(("header-broken", f"cannot be read ({error.strerror or error})", "无法读取"),))


def _read_index(files: Files) -> tuple[dict[str, str], int | None, list[Defect]]:
    """(tensor to file, total_size, defects) of the index that loaders take."""
    indexes = sorted(name for name in files.sizes if name.endswith(INDEX_ENDING))
    if not indexes:
        shards = sum(name.endswith(".safetensors") for name in files.sizes)
        if shards > 1:
            return (
                {},
                None,
                [defect("index-missing", f"{shards} shards and no index.", f"有 {shards} 个分片，但没有索引。")],
            )
        return {}, None, []
    found = []
    chosen = f"model{INDEX_ENDING}" if f"model{INDEX_ENDING}" in indexes else indexes[0]
    if len(indexes) > 1:
        found.append(
            defect(
                "index-several",
                f"{', '.join(indexes)}; {chosen} is read.",
                f"{'、'.join(indexes)}；读取的是 {chosen}。",
            )
        )
    parsed = _parse(files, chosen)
    value = parsed.value if isinstance(parsed.value, dict) else {}
    weight_map = value.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(item, str) for item in weight_map.values()):
        en, zh = parsed.error or ("no weight_map", "没有 weight_map")
        return {}, None, [*found, defect("index-broken", f"{chosen}: {en}.", f"{chosen}：{zh}。")]
    if parsed.has_bom or parsed.trailing_comma:
        found.append(defect("index-broken", f"{chosen} is not strict JSON.", f"{chosen} 不是严格的 JSON。"))
    if parsed.duplicate_keys:
        names = some(parsed.duplicate_keys)
        found.append(defect("index-broken", f"{chosen} lists twice: {names}.", f"{chosen} 重复列出：{names}。"))
    metadata = value.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return weight_map, total if type(total) in (int, float) else None, found


def _parse(files: Files, name: str) -> json_file.JsonFile:
    size = files.sizes[name]
    if size > json_file.LARGEST:
        return json_file.JsonFile(error=(f"{size} bytes is no JSON file", f"{size} 字节，不像 JSON 文件"))
    try:
        return json_file.parse(files.read(name, 0, size))
    except OSError as error:
        return json_file.JsonFile(error=(f"cannot be read ({error.strerror or error})", "无法读取"))


def _file_defects(names: list[str], listed: Mapping[str, str], files: Files) -> list[Defect]:
    found = []
    for name in sorted(set(listed.values()) - set(names)):
        count = sum(file == name for file in listed.values())
        code = "link-broken" if name in files.broken_links else "shard-missing"
        found.append(defect(code, f"{name} is not there ({count} tensors).", f"{name} 不存在（{count} 个张量）。"))
    extra = [name for name in names if name not in set(listed.values())] if listed else []
    if extra:
        en, zh = f"{some(extra)}: not in the index, not loaded.", f"{some(extra)}：不在索引中，不会被加载。"
        found.append(defect("shard-unindexed", en, zh))
    return found


def _label_defects(where: Mapping[str, str], listed: Mapping[str, str], headers: Mapping[str, Header]) -> list[Defect]:
    found = []
    unlisted = sorted(set(where) - set(listed))
    if unlisted:
        found.append(
            defect("tensor-unindexed", f"Not in the index: {some(unlisted)}.", f"不在索引中：{some(unlisted)}。")
        )
    wrong = sorted(
        f"{tensor} ({file} -> {where[tensor]})"
        for tensor, file in listed.items()
        if tensor in where and tensor not in headers.get(file, Header()).tensors
    )
    if wrong:
        found.append(
            defect(
                "tensor-mislabelled",
                f"In another shard than indexed: {some(wrong)}.",
                f"实际所在分片与索引不符：{some(wrong)}。",
            )
        )
    return found


def _total_defects(tensors: Mapping[str, TensorInfo], total: float | None, found: list[Defect]) -> list[Defect]:
    """total_size is judged only when every shard could be read whole."""
    stored = sum(info.bytes for info in tensors.values())
    unread = any(
        item.code in ("shard-missing", "link-broken", "header-broken", "shard-truncated", "lfs-pointer")
        for item in found
    )
    if total is None or unread or stored == total:
        return []
    return [
        defect(
            "total-size",
            f"The index says {total:.0f} bytes, the shards hold {stored}.",
            f"索引写 {total:.0f} 字节，分片共 {stored} 字节。",
        )
    ]
