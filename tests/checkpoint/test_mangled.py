"""Whatever is in the files, an inspection ends with a verdict or an AscendVLError, never a traceback."""

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sparse_checkpoint import stored, tiny_config, write_checkpoint, write_raw

from ascend_vl.checkpoint import inspect_checkpoint
from ascend_vl.checkpoint.json_file import parse
from ascend_vl.checkpoint.safetensors_header import read_header
from ascend_vl.errors import AscendVLError

CONFIG = tiny_config()
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.just("\ud800")
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def base() -> Path:
    with tempfile.TemporaryDirectory() as name:
        yield write_checkpoint(Path(name), CONFIG, stored(CONFIG, head=True), 2)


def judged(root: Path) -> None:
    """Inspect and use everything an inspection offers."""
    checkpoint = inspect_checkpoint(root)
    json.dumps(checkpoint.to_json(), ensure_ascii=False, allow_nan=False).encode()
    if checkpoint.errors:
        with pytest.raises(AscendVLError):
            checkpoint.require_servable()


class kept:
    """The file as it was, after the block."""

    def __init__(self, path: Path) -> None:
        self.path, self.raw = path, path.read_bytes()

    def __enter__(self) -> bytes:
        return self.raw

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.raw)


def paths_of(value: object, path: tuple = ()) -> list[tuple]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths_of(inner, (*path, key))
    return found


CONFIG_PATHS = paths_of(CONFIG)


@QUICK
@given(path=st.sampled_from(CONFIG_PATHS), value=values)
def test_any_value_anywhere_in_the_config(base, path, value):
    with kept(base / "config.json") as raw:
        config = json.loads(raw)
        place = config
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        (base / "config.json").write_text(json.dumps(config))
        judged(base)


SIDES = [
    "config.json",
    "model.safetensors.index.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "tokenizer.json",
]


@QUICK
@given(name=st.sampled_from(SIDES), value=values)
def test_any_json_in_place_of_a_file(base, name, value):
    with kept(base / name):
        (base / name).write_text(json.dumps(value))
        judged(base)


@QUICK
@given(name=st.sampled_from(SIDES), at=st.floats(0, 1), junk=st.binary(max_size=6), cut=st.booleans())
def test_any_bytes_in_a_json_file(base, name, at, junk, cut):
    with kept(base / name) as raw:
        place = int(at * len(raw))
        (base / name).write_bytes(raw[:place] + junk + (b"" if cut else raw[place:]))
        judged(base)


@QUICK
@given(at=st.integers(0, 4000), junk=st.binary(min_size=1, max_size=8))
def test_any_bytes_in_a_header(base, at, junk):
    shard = base / "model-00001-of-00002.safetensors"
    with kept(shard) as raw:
        shard.write_bytes(raw[:at] + junk + raw[at + len(junk) :])
        judged(base)


@QUICK
@given(index=st.integers(0, 10), field=st.sampled_from(["dtype", "shape", "data_offsets", None]), value=values)
def test_any_value_in_a_header_entry(base, index, field, value):
    shard = base / "model-00002-of-00002.safetensors"
    with kept(shard) as raw:
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        name = list(header)[index % len(header)]
        if field is None:
            header[name] = value
        else:
            header[name][field] = value
        write_raw(shard, json.dumps(header).encode(), 100)
        judged(base)


@QUICK
@given(
    shape=st.lists(st.integers(0, 2**62), max_size=30), offsets=st.lists(st.integers(0, 2**62), min_size=2, max_size=2)
)
def test_huge_shapes_and_offsets(shape, offsets):
    header = json.dumps({"a": {"dtype": "BF16", "shape": shape, "data_offsets": offsets}}).encode()
    raw = len(header).to_bytes(8, "little") + header
    parsed = read_header(lambda start, length: raw[start : start + length], len(raw) + 64)
    sound = offsets[1] - offsets[0] == 2 * _product(shape) and offsets == [0, 64]
    assert bool(parsed.problems) is not sound


def _product(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@QUICK
@given(raw=st.binary(max_size=200))
def test_any_file_as_safetensors(raw):
    parsed = read_header(lambda start, length: raw[start : start + length], len(raw))
    assert parsed.problems or not parsed.tensors


@QUICK
@given(raw=st.binary(max_size=200))
def test_any_file_as_json(raw):
    parsed = parse(raw)
    assert parsed.error is None or parsed.value is None


@QUICK
@given(value=values)
def test_what_json_accepts_is_read_the_same(value):
    text = json.dumps(value)
    # Half a pair becomes "?"; a whole one, of which this is the first half, stays.
    assert json.dumps(parse(text.encode()).value) == re.sub(r"\\ud800(?!\\ud[c-f])", "?", text)


def test_nan_is_not_json():
    assert parse(b'{"a": NaN}').error is not None


def test_brackets_without_end():
    assert parse(b"[" * 100_000).error is not None


@QUICK
@given(value=values)
def test_any_quantisation_description(base, value):
    path = base / "quant_model_description.json"
    path.write_text(json.dumps(value))
    try:
        judged(base)
    finally:
        path.unlink()


@QUICK
@given(value=values)
def test_any_quantisation_config(base, value):
    with kept(base / "config.json") as raw:
        (base / "config.json").write_text(json.dumps(json.loads(raw) | {"quantization_config": value}))
        judged(base)
