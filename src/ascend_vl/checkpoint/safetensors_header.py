"""The header of one safetensors file: names, dtypes, shapes and byte ranges, without reading a tensor.

Format: 8 bytes little-endian header length, that many bytes of JSON, then the data. Every tensor is
`{"dtype", "shape", "data_offsets": [begin, end]}` with offsets relative to the end of the header.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeGuard

from ascend_vl.checkpoint.json_file import strict_json

# Bits an element takes, for every dtype name the format defines.
DTYPE_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}
# The reference implementation refuses longer headers.
LONGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class TensorInfo:
    """One entry of a header. `begin` and `end` are bytes from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def parameters(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes the file gives it."""
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """What one file says about itself.

    `problems` holds (code, English detail, Chinese detail); codes are those of `defects.CATALOGUE`. A header that
    cannot be parsed at all has no tensors and exactly one problem.
    """

    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[tuple[str, str, str], ...] = ()


def read_header(read: Callable[[int, int], bytes], size: int) -> Header:
    """Parse the header of a file of `size` bytes; `read(start, length)` returns bytes of it (fewer at its end).

    Raises whatever `read` raises; a malformed file is described in `problems`, never raised.
    """
    start = read(0, min(size, 64))
    if start.startswith(b"version https://git-lfs"):
        return _broken("lfs-pointer", "a Git LFS pointer, not the weights", "这是 Git LFS 指针，不是权重")
    if len(start) < 8:
        return _broken(
            "shard-truncated", f"{size} bytes; even the header length is cut", f"仅 {size} 字节，连头长度都不全"
        )
    length = int.from_bytes(start[:8], "little")
    if length > LONGEST_HEADER:
        return _broken(
            "header-broken", f"claims a header of {length} bytes; not safetensors", f"头长度声称为 {length} 字节"
        )
    if 8 + length > size:
        return _broken(
            "shard-truncated",
            f"{size} bytes, the header alone needs {8 + length}",
            f"{size} 字节，仅文件头就需 {8 + length}",
        )
    raw = read(8, length)
    if len(raw) < length:
        return _broken("shard-truncated", "the header is cut off", "文件头被截断")
    try:
        entries, repeated = strict_json(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return _broken("header-broken", f"the header is not JSON ({type(error).__name__})", "文件头不是有效 JSON")
    if not isinstance(entries, dict):
        return _broken("header-broken", "the header is not a JSON object", "文件头不是 JSON 对象")
    return _check(entries, repeated, size - 8 - length)


def _broken(code: str, en: str, zh: str) -> Header:
    return Header(problems=((code, en, zh),))


def _check(entries: dict[str, Any], repeated: list[str], data_bytes: int) -> Header:
    problems = [
        ("tensor-duplicated", f"{name} stands twice in the header", f"{name} 在文件头中出现两次") for name in repeated
    ]
    metadata = entries.pop("__metadata__", {})
    tensors: dict[str, TensorInfo] = {}
    for name, entry in entries.items():
        tensor = _tensor(entry)
        if tensor is None:
            problems.append(("header-broken", f"the entry of {name} is malformed", f"{name} 的条目格式错误"))
            continue
        tensors[name] = tensor
        bits = DTYPE_BITS.get(tensor.dtype)
        if bits is None:
            problems.append(
                ("header-broken", f"{name} has unknown dtype {tensor.dtype}", f"{name} 的类型 {tensor.dtype} 未知")
            )
        elif tensor.bytes * 8 != tensor.parameters * bits:
            needed = -(-tensor.parameters * bits // 8)
            problems.append(
                (
                    "tensor-bytes",
                    f"{name}: {tensor.dtype} {list(tensor.shape)} is {needed} bytes, the header says {tensor.bytes}",
                    f"{name} 为 {tensor.dtype} {list(tensor.shape)}，应为 {needed} 字节，文件头给了 {tensor.bytes}",
                )
            )
    problems += _layout_problems(tensors, data_bytes)
    clean = {str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {}
    return Header(tensors, clean, tuple(problems))


def _tensor(entry: Any) -> TensorInfo | None:
    """The entry, or None when a field is missing or of the wrong kind."""
    if not isinstance(entry, dict):
        return None
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not (isinstance(dtype, str) and _naturals(shape) and _naturals(offsets) and len(offsets) == 2):
        return None
    begin, end = offsets
    return TensorInfo(dtype, tuple(shape), begin, end) if begin <= end else None


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _layout_problems(tensors: dict[str, TensorInfo], data_bytes: int) -> list[tuple[str, str, str]]:
    """Overlaps, holes, a cut end and bytes nobody owns: the data must be covered exactly once."""
    found: list[tuple[str, str, str]] = []
    position, before = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin < position:
            found.append(("offsets-overlap", f"{name} overlaps {before}", f"{name} 与 {before} 重叠"))
        elif tensor.begin > position:
            gap = tensor.begin - position
            found.append(
                ("offsets-gap", f"{gap} bytes before {name} belong to no tensor", f"{name} 之前有 {gap} 字节无主")
            )
        if tensor.end >= position:
            position, before = tensor.end, name
    if position > data_bytes:
        lost = sum(tensor.end > data_bytes for tensor in tensors.values())
        found.append(
            (
                "shard-truncated",
                f"{position - data_bytes} bytes are missing at the end; {lost} tensors cut, the last is {before}",
                f"末尾缺少 {position - data_bytes} 字节，{lost} 个张量被截断，最后一个是 {before}",
            )
        )
    elif position < data_bytes:
        extra = data_bytes - position
        found.append(("offsets-gap", f"{extra} bytes at the end belong to no tensor", f"末尾有 {extra} 字节无主"))
    return found
