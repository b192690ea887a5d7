"""Sound checkpoints of every published size, from sparse files: family, numbers, verdict, cost, nothing changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sparse_checkpoint import config_of, stored, tiny_config, write_checkpoint

from ascend_vl.checkpoint import inspect_checkpoint
from ascend_vl.checkpoint.expected import HEAD_TENSORS
from ascend_vl.checkpoint.files import local_files
from ascend_vl.checkpoint.inspection import inspect_files
from ascend_vl.errors import AscendVLError

ORACLE = Path(__file__).parent.parent / "data" / "oracle"

# Parameters by architecture arithmetic, cross-checked against torch's own count in test_names_against_transformers.
PUBLISHED = [
    ("qwen3-vl-2b", "qwen3-vl", "BF16", 1, 2_127_532_032),
    ("qwen3-vl-4b", "qwen3-vl", "BF16", 2, 4_437_815_808),
    ("qwen3-vl-8b", "qwen3-vl", "BF16", 4, 8_767_123_696),
    ("qwen3-vl-32b", "qwen3-vl", "BF16", 14, 33_357_390_064),
    ("qwen3-vl-30b-a3b", "qwen3-vl-moe", "BF16", 13, 31_070_754_032),
    ("hidream-o1", "hidream-o1", "F32", 8, 8_804_887_792),
]


@pytest.mark.parametrize(("name", "family", "dtype", "shards", "parameters"), PUBLISHED)
def test_published_sizes_are_servable(name, family, dtype, shards, parameters, tmp_path):
    config = config_of(name)
    head = family == "hidream-o1"
    checkpoint = inspect_checkpoint(write_checkpoint(tmp_path / name, config, stored(config, dtype, head), shards))
    assert checkpoint.family == family
    assert checkpoint.verdict == "servable", checkpoint.defects
    assert checkpoint.parameters == parameters
    assert checkpoint.bytes == parameters * (4 if dtype == "F32" else 2)
    assert checkpoint.dtypes == {dtype: parameters}
    assert checkpoint.has_head is head
    assert checkpoint.extra_tensors == (HEAD_TENSORS if head else ())
    checkpoint.require_servable()


def test_the_hidream_numbers(tmp_path):
    config = config_of("hidream-o1")
    checkpoint = inspect_checkpoint(write_checkpoint(tmp_path, config, stored(config, "F32", head=True), 8))
    assert checkpoint.bytes == 35_219_551_168
    assert len(checkpoint.extra_tensors) == 9
    vision, text = checkpoint.vision, checkpoint.text
    assert (vision.depth, vision.hidden, vision.head_dim, vision.patch, vision.merge) == (27, 1152, 72, 16, 2)
    assert (text.layers, text.hidden, text.heads, text.kv_heads, text.head_dim) == (36, 4096, 32, 8, 128)
    assert text.rope["mrope_section"] == [24, 20, 20]
    assert text.rope["theta"] == 5_000_000


def test_33_gb_takes_little_memory(tmp_path):
    """Under 200 MB, in a fresh process."""
    config = config_of("hidream-o1")
    write_checkpoint(tmp_path / "m", config, stored(config, "F32", head=True), 8)
    script = (
        "import sys, re; from ascend_vl.checkpoint import inspect_checkpoint;"
        "print(inspect_checkpoint(sys.argv[1]).verdict);"
        # Not ru_maxrss: that one is carried over from the process that started this one.
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "m")]
    verdict, kilobytes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert verdict == "servable"
    assert int(kilobytes) * 1024 < 200e6


def test_only_headers_are_read(tmp_path):
    config = config_of("hidream-o1")
    files = local_files(write_checkpoint(tmp_path / "m", config, stored(config, "F32", head=True), 8))
    read: dict[str, int] = {}

    class Counting:
        where, sizes, broken_links = files.where, files.sizes, files.broken_links

        def read(self, name, start, length):
            part = files.read(name, start, length)
            read[name] = read.get(name, 0) + len(part)
            return part

    assert inspect_files(Counting()).verdict == "servable"
    shards = [name for name in read if name.endswith(".safetensors")]
    assert len(shards) == 8
    assert all(read[name] < 100_000 < files.sizes[name] / 1000 for name in shards)


def test_neither_torch_nor_vllm_nor_transformers_is_imported(tmp_path):
    config = tiny_config()
    root = write_checkpoint(tmp_path / "m", config, stored(config))
    script = (
        "import sys; from ascend_vl.checkpoint import inspect_checkpoint; inspect_checkpoint(sys.argv[1]);"
        "heavy = ('torch', 'vllm', 'transformers', 'huggingface_hub', 'modelscope');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_against_transformers():
    """The expected names and shapes are those of the published model classes, built without memory."""
    import torch
    from transformers import AutoConfig, Qwen3VLForConditionalGeneration, Qwen3VLMoeForConditionalGeneration

    for name, family, _, _, parameters in PUBLISHED:
        if family == "hidream-o1":
            continue
        raw = config_of(name)
        config = AutoConfig.for_model(**raw)
        classes = {"qwen3-vl": Qwen3VLForConditionalGeneration, "qwen3-vl-moe": Qwen3VLMoeForConditionalGeneration}
        with torch.device("meta"):
            model = classes[family](config)
        shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
        if raw["tie_word_embeddings"]:
            del shapes["lm_head.weight"]
        for key, shape in shapes.items():
            if ".experts." in key:
                # In memory output-major since Transformers 5; its conversion table transposes the published files.
                shapes[key] = (shape[0], shape[2], shape[1])
        assert {key: shape for key, (_, shape) in stored(raw).items()} == shapes
        assert sum(value.numel() for key, value in model.state_dict().items() if key in shapes) == parameters


def test_the_oracle_names_are_the_expected_ones():
    """A second source of the nine head tensors: the names and shapes the reference class wrote."""
    config = json.loads((ORACLE / "files" / "config.json").read_text())
    written = {name: tuple(shape) for name, shape in json.loads((ORACLE / "tensors.json").read_text()).items()}
    assert {name: shape for name, (_, shape) in stored(config, head=True).items()} == written


def test_nothing_changes_in_the_directory(tmp_path):
    config = tiny_config()
    root = write_checkpoint(tmp_path / "m", config, stored(config, head=True), 2)

    def state():
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(root.rglob("*")) if path.is_file()
        }

    before = state()
    for path in root.rglob("*"):
        path.chmod(0o444)
    root.chmod(0o555)
    try:
        inspect_checkpoint(root)
    finally:
        root.chmod(0o755)
    assert state() == before


def test_hub_cache_of_links_and_a_dangling_one(tmp_path):
    config = tiny_config()
    plain = write_checkpoint(tmp_path / "plain", config, stored(config), 2)
    cache = tmp_path / "models--owner--name"
    snapshot, blobs = cache / "snapshots" / "0123abc", cache / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(plain.iterdir())):
        path.rename(blobs / str(number))
        os.symlink(f"../../blobs/{number}", snapshot / path.name)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0123abc")
    assert inspect_checkpoint(cache).verdict == "servable"
    assert inspect_checkpoint(snapshot).verdict == "servable"
    shard = snapshot / "model-00001-of-00002.safetensors"
    shard.resolve().unlink()
    checkpoint = inspect_checkpoint(cache)
    assert [item.code for item in checkpoint.errors] == ["link-broken", "tensor-missing"]
    assert shard.name in checkpoint.errors[0].what.en


def test_several_snapshots_need_a_choice(tmp_path):
    for commit in ("aaa", "bbb"):
        (tmp_path / "snapshots" / commit).mkdir(parents=True)
    with pytest.raises(AscendVLError) as caught:
        inspect_checkpoint(tmp_path)
    assert caught.value.code == "model-ambiguous"
    assert "aaa, bbb" in caught.value.do.en


def test_a_path_that_is_not_there():
    with pytest.raises(AscendVLError) as caught:
        inspect_checkpoint("/nonexistent/model/dir")
    assert caught.value.code == "model-not-found"
    assert caught.value.exit_code == 2


def test_one_file_by_itself(tmp_path):
    config = tiny_config()
    root = write_checkpoint(tmp_path / "m", config, stored(config, head=True))
    checkpoint = inspect_checkpoint(root / "model.safetensors")
    assert checkpoint.family == "hidream-o1"
    assert "config-missing" in [item.code for item in checkpoint.errors]


def test_other_families_are_named_and_refused(tmp_path):
    config = {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"]}
    root = write_checkpoint(tmp_path / "m", config, {"lm_head.weight": ("BF16", (4, 4))})
    checkpoint = inspect_checkpoint(root)
    assert checkpoint.family == "other"
    assert [item.code for item in checkpoint.errors] == ["family-other"]


def test_hidream_is_told_by_its_tensors_not_by_the_class(tmp_path):
    config = tiny_config()
    with_head = inspect_checkpoint(write_checkpoint(tmp_path / "a", config, stored(config, head=True)))
    without = inspect_checkpoint(write_checkpoint(tmp_path / "b", config, stored(config)))
    assert with_head.architectures == without.architectures
    assert (with_head.family, without.family) == ("hidream-o1", "qwen3-vl")


def test_the_json_has_exactly_the_keys_of_schema_1(tmp_path):
    config = tiny_config()
    document = inspect_checkpoint(write_checkpoint(tmp_path / "m", config, stored(config))).to_json()
    assert list(document) == [
        "schema",
        "family",
        "parameters",
        "bytes",
        "dtypes",
        "vision",
        "text",
        "extra_tensors",
        "missing_tensors",
        "unexpected_tensors",
        "defects",
        "verdict",
    ]
    assert document["schema"] == 1
    assert all(set(item) == {"code", "what"} for item in document["defects"])
    json.dumps(document)
