"""Each defect planted by itself gives its own code, with the name of what is wrong, and the right verdict."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sparse_checkpoint import (
    config_of,
    stored,
    tiny_config,
    write_checkpoint,
    write_index,
    write_raw,
    write_shard,
    write_sharded,
)

from ascend_vl.checkpoint import inspect_checkpoint
from ascend_vl.checkpoint.defects import CATALOGUE
from ascend_vl.checkpoint.expected import HEAD_TENSORS
from ascend_vl.errors import AscendVLError

CONFIG = tiny_config()
Q = "model.language_model.layers.0.self_attn.q_proj.weight"
K = "model.language_model.layers.1.self_attn.k_proj.weight"
UP = "model.language_model.layers.0.mlp.up_proj.weight"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def root(tmp_path) -> Path:
    """A sound tiny checkpoint with the pixel head, in two shards."""
    return write_checkpoint(tmp_path / "m", CONFIG, stored(CONFIG, head=True), 2)


def found(path: Path, severity: tuple[str, ...] = ("error", "warning")) -> dict[str, str]:
    """Code to what, of the severities that decide the verdict."""
    return {item.code: item.what.en for item in inspect_checkpoint(path).defects if item.severity in severity}


def edit_json(path: Path, change: Callable[[dict], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_header(path: Path, change: Callable[[dict], None]) -> None:
    """Rewrite a shard's header, keeping its data length."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    write_raw(path, json.dumps(header).encode(), len(raw) - 8 - length)


def index_of(root: Path) -> dict[str, str]:
    return json.loads((root / "model.safetensors.index.json").read_text())["weight_map"]


def test_the_base_is_sound(root):
    assert found(root) == {}


@pytest.mark.parametrize(
    "name", [Q, K, UP, "model.visual.blocks.1.attn.qkv.bias", "model.visual.deepstack_merger_list.1.norm.weight"]
)
def test_one_missing_tensor(name, tmp_path):
    tensors = stored(CONFIG)
    del tensors[name]
    checkpoint = inspect_checkpoint(write_checkpoint(tmp_path, CONFIG, tensors))
    assert checkpoint.missing_tensors == (name,)
    assert [item.code for item in checkpoint.errors] == ["tensor-missing"]
    with pytest.raises(AscendVLError) as caught:
        checkpoint.require_servable()
    assert caught.value.code == "checkpoint-defective"
    assert caught.value.exit_code == 1
    assert name in caught.value.why.en and name in caught.value.why.zh


def test_one_unexpected_tensor(tmp_path):
    tensors = stored(CONFIG) | {"model.language_model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (8,))}
    checkpoint = inspect_checkpoint(write_checkpoint(tmp_path, CONFIG, tensors))
    assert checkpoint.unexpected_tensors == ("model.language_model.layers.0.self_attn.rotary_emb.inv_freq",)
    assert [item.code for item in checkpoint.errors] == ["tensor-unexpected"]


def test_a_tenth_head_tensor_is_refused(tmp_path):
    tensors = stored(CONFIG, head=True) | {"model.t_embedder2.mlp.0.weight": ("BF16", (64, 256))}
    checkpoint = inspect_checkpoint(write_checkpoint(tmp_path, CONFIG, tensors))
    assert checkpoint.unexpected_tensors == ("model.t_embedder2.mlp.0.weight",)
    assert checkpoint.has_head
    assert checkpoint.verdict == "not servable"


@pytest.mark.parametrize("name", HEAD_TENSORS)
def test_eight_of_nine_head_tensors(name, tmp_path):
    tensors = stored(CONFIG, head=True)
    del tensors[name]
    checkpoint = inspect_checkpoint(write_checkpoint(tmp_path, CONFIG, tensors))
    assert checkpoint.family == "hidream-o1"
    assert not checkpoint.has_head
    assert name in checkpoint.missing_tensors
    assert name in next(item.what.en for item in checkpoint.errors if item.code == "head-incomplete")


@pytest.mark.parametrize(
    ("tied", "there", "codes"),
    [(True, False, []), (False, True, []), (False, False, ["lm-head-missing"]), (True, True, ["lm-head-unused"])],
)
def test_the_four_combinations_of_tying_and_lm_head(tied, there, codes, tmp_path):
    tensors = stored(CONFIG)
    if not there:
        del tensors["lm_head.weight"]
    root = write_checkpoint(tmp_path, CONFIG | {"tie_word_embeddings": tied}, tensors)
    assert list(found(root)) == codes
    missing = inspect_checkpoint(root).missing_tensors
    assert missing == (("lm_head.weight",) if codes == ["lm-head-missing"] else ())


def test_tie_flags_that_disagree(root):
    edit_json(root / "config.json", lambda config: config["text_config"].update(tie_word_embeddings=True))
    assert list(found(root)) == ["tie-flag-conflict"]


def test_a_wrong_shape(tmp_path):
    tensors = stored(CONFIG) | {Q: ("BF16", (64, 63))}
    what = found(write_checkpoint(tmp_path, CONFIG, tensors))
    assert list(what) == ["shape-mismatch"]
    assert what["shape-mismatch"] == f"{Q} is [64, 63], not [64, 64]."


# Shards and index


def test_a_shard_that_is_not_there(root):
    (root / SECOND).unlink()
    what = found(root)
    assert set(what) >= {"shard-missing", "tensor-missing"}
    assert SECOND in what["shard-missing"]


def test_a_truncated_shard(root):
    size = (root / SECOND).stat().st_size
    with open(root / SECOND, "r+b") as file:
        file.truncate(size - 10)
    what = found(root)
    assert list(what) == ["shard-truncated"]
    assert what["shard-truncated"].startswith(f"{SECOND}: 10 bytes are missing")


@pytest.mark.parametrize("length", [0, 4, 8, 100])
def test_a_shard_cut_in_its_header(root, length):
    with open(root / SECOND, "r+b") as file:
        file.truncate(length)
    what = found(root)
    assert "shard-truncated" in what
    assert "tensor-missing" in what


def test_bytes_behind_the_last_tensor(root):
    with open(root / SECOND, "ab") as file:
        file.write(b"\0" * 16)
    assert list(found(root)) == ["offsets-gap"]


def test_overlapping_offsets(root):
    def overlap(header):
        first, second = list(header)[1:3]
        header[second]["data_offsets"][0] -= 4
        header[second]["data_offsets"][1] -= 4
        assert header[first]["data_offsets"][1] > header[second]["data_offsets"][0]

    edit_header(root / FIRST, overlap)
    assert {"offsets-overlap", "offsets-gap"} <= set(found(root))


def test_bytes_that_do_not_fit_dtype_and_shape(root):
    edit_header(root / FIRST, lambda header: header[list(header)[1]].update(dtype="F32"))
    assert "tensor-bytes" in found(root)


def test_an_unknown_dtype(root):
    edit_header(root / FIRST, lambda header: header[list(header)[1]].update(dtype="Q4_K"))
    assert "header-broken" in found(root)


def test_the_same_tensor_in_two_shards(root):
    weight_map = index_of(root)
    name = next(tensor for tensor, file in weight_map.items() if file == FIRST)
    (root / "extra").mkdir()
    shard = {tensor: stored(CONFIG, head=True)[tensor] for tensor, file in weight_map.items() if file == SECOND}
    write_shard(root / SECOND, shard | {name: stored(CONFIG, head=True)[name]})
    what = found(root)
    assert list(what) == ["tensor-duplicated"]
    assert name in what["tensor-duplicated"]


def test_the_same_tensor_twice_in_a_header(tmp_path):
    config = CONFIG
    root = write_checkpoint(tmp_path, config, stored(config))
    raw = (root / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + length].rstrip()
    entry = json.loads(header)[Q]
    doubled = header[:-1] + f', "{Q}": {json.dumps(entry)}'.encode() + b"}"
    write_raw(root / "model.safetensors", doubled, len(raw) - 8 - length)
    assert "tensor-duplicated" in found(root)


def test_a_tensor_the_index_does_not_list(root):
    edit_json(root / "model.safetensors.index.json", lambda index: index["weight_map"].pop(Q))
    what = found(root)
    assert list(what) == ["tensor-unindexed"]
    assert Q in what["tensor-unindexed"]


def test_a_tensor_in_another_shard_than_indexed(root):
    other = {FIRST: SECOND, SECOND: FIRST}

    def swap(index):
        index["weight_map"][Q] = other[index["weight_map"][Q]]

    edit_json(root / "model.safetensors.index.json", swap)
    what = found(root)
    assert list(what) == ["tensor-mislabelled"]
    assert Q in what["tensor-mislabelled"]


def test_a_shard_the_index_does_not_know(root):
    write_shard(root / "consolidated.safetensors", {Q: ("BF16", (64, 64))})
    assert list(found(root)) == ["shard-unindexed"]
    assert inspect_checkpoint(root).verdict == "servable with warnings"


def test_several_shards_without_an_index(root):
    (root / "model.safetensors.index.json").unlink()
    assert list(found(root)) == ["index-missing"]


def test_two_indexes(root):
    index = root / "model.safetensors.index.json"
    (root / "other.safetensors.index.json").write_bytes(index.read_bytes())
    assert list(found(root)) == ["index-several"]


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"weight_map": []}', b'{"weight_map": {"a": 1}}', b"\xff\xfe"])
def test_a_broken_index(root, raw):
    (root / "model.safetensors.index.json").write_bytes(raw)
    assert "index-broken" in found(root)


def test_a_wrong_total_size(root):
    edit_json(root / "model.safetensors.index.json", lambda index: index["metadata"].update(total_size=1234))
    what = found(root)
    assert list(what) == ["total-size"]
    assert "1234" in what["total-size"]


def test_a_git_lfs_pointer(root):
    (root / SECOND).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n")
    assert "lfs-pointer" in found(root)


def test_left_overs_of_a_download(root):
    (root / f"{SECOND}.incomplete").write_bytes(b"")
    assert list(found(root)) == ["download-unfinished"]


def test_no_weights_at_all(tmp_path):
    root = write_checkpoint(tmp_path, CONFIG, stored(CONFIG))
    (root / "model.safetensors").unlink()
    assert "weights-missing" in found(root)


# config.json


def test_no_config(root):
    (root / "config.json").unlink()
    assert "config-missing" in found(root)
    assert inspect_checkpoint(root).family == "hidream-o1"


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xff\xfe"])
def test_a_byte_order_mark(root, mark):
    text = (root / "config.json").read_text()
    (root / "config.json").write_bytes(mark + text.encode("utf-8" if len(mark) == 3 else "utf-16-le"))
    assert list(found(root)) == ["config-bom"]
    assert inspect_checkpoint(root).text is not None


def test_a_trailing_comma(root):
    text = (root / "config.json").read_text()
    (root / "config.json").write_text(re.sub(r"}\s*$", ", }", text))
    assert list(found(root)) == ["config-trailing-comma"]
    assert inspect_checkpoint(root).parameters > 0


def test_commas_inside_strings_are_no_trailing_commas(root):
    edit_json(root / "config.json", lambda config: config.update(note="a, } b, ]"))
    assert found(root) == {}


def test_a_config_that_is_not_json(root):
    (root / "config.json").write_text("{'a': 1}")
    assert "config-broken" in found(root)


def test_a_key_twice(root):
    text = (root / "config.json").read_text()
    (root / "config.json").write_text('{"model_type": "qwen3_vl",' + text.lstrip()[1:])
    assert list(found(root)) == ["config-duplicate-key"]


@pytest.mark.parametrize("value", [None, "36", 0, -1, 2.5, True, 10**9, [], {}])
def test_a_number_that_cannot_be(root, value):
    edit_json(root / "config.json", lambda config: config["text_config"].update(num_hidden_layers=value))
    assert "text_config.num_hidden_layers" in found(root)["config-incomplete"]


@pytest.mark.parametrize(
    ("section", "change", "word"),
    [
        ("text_config", {"num_key_value_heads": 3}, "kv heads"),
        ("text_config", {"rope_scaling": {"mrope_section": [1, 1, 1]}}, "mrope_section"),
        ("vision_config", {"num_heads": 5}, "vision width"),
        ("vision_config", {"deepstack_visual_indexes": [0, 9]}, "deepstack"),
        ("vision_config", {"out_hidden_size": 32}, "out_hidden_size"),
    ],
)
def test_numbers_that_contradict_each_other(root, section, change, word):
    edit_json(root / "config.json", lambda config: config[section].update(change))
    assert word in " ".join(
        item.what.en for item in inspect_checkpoint(root).defects if item.code == "config-inconsistent"
    )


def test_an_architecture_of_another_model(root):
    edit_json(root / "config.json", lambda config: config.update(architectures=["Qwen2VLForConditionalGeneration"]))
    assert list(found(root)) == ["architecture-unexpected"]


def test_rope_in_the_spelling_of_transformers_5_only(root):
    def respell(config):
        text = config["text_config"]
        text["rope_parameters"] = text.pop("rope_scaling") | {"rope_theta": text.pop("rope_theta")}

    edit_json(root / "config.json", respell)
    assert list(found(root)) == ["config-rope-parameters"]
    assert inspect_checkpoint(root).text.rope["theta"] == 5_000_000


@pytest.mark.parametrize(
    ("top", "code"),
    [
        ({"dtype": "bfloat16", "torch_dtype": "float16"}, "dtype-conflict"),
        ({"dtype": "bfloat16"}, "dtype-spelling"),
        ({"torch_dtype": "bfloat16"}, "dtype-spelling"),
    ],
)
def test_dtype_and_torch_dtype(root, top, code):
    def change(config):
        config["text_config"].pop("dtype")
        config.update(top)

    edit_json(root / "config.json", change)
    assert code in found(root, ("warning", "note"))


def test_both_spellings_alike_are_fine(root):
    edit_json(root / "config.json", lambda config: config.update(dtype="bfloat16", torch_dtype="bfloat16"))
    assert found(root, ("error", "warning", "note")) == {}


def test_stored_otherwise_than_configured(tmp_path):
    root = write_checkpoint(tmp_path, CONFIG, stored(CONFIG, "F32"))
    assert "dtype-differs" in found(root, ("note",))


def test_integers_without_a_quantisation(tmp_path):
    root = write_checkpoint(tmp_path, CONFIG, stored(CONFIG) | {Q: ("I8", (64, 64))})
    assert list(found(root)) == ["dtype-unexpected"]


# Layouts and repackagings


def renamed(rename: Callable[[str], str]) -> dict:
    return {rename(name): entry for name, entry in stored(CONFIG).items()}


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name.replace("model.language_model.", "model.").replace("model.visual.", "visual."),
        lambda name: (
            name.replace("model.language_model.", "language_model.model.")
            .replace("lm_head", "language_model.lm_head")
            .replace("model.visual.", "visual.")
        ),
        lambda name: f"base_model.model.{name}",
    ],
)
def test_older_key_layouts(rename, tmp_path):
    checkpoint = inspect_checkpoint(write_checkpoint(tmp_path, CONFIG, renamed(rename)))
    assert checkpoint.family == "qwen3-vl"
    assert [item.code for item in checkpoint.errors] == ["key-layout"]
    assert checkpoint.missing_tensors == checkpoint.unexpected_tensors == ()


def test_the_comfy_repackaging(tmp_path):
    tensors = {
        name.removeprefix("model."): entry
        for name, entry in stored(CONFIG, head=True).items()
        if "lm_head" not in name and "deepstack" not in name
    }
    write_shard(tmp_path / "hidream_o1_image_bf16.safetensors", tensors)
    for path in (tmp_path, tmp_path / "hidream_o1_image_bf16.safetensors"):
        checkpoint = inspect_checkpoint(path)
        assert checkpoint.family == "hidream-o1"
        assert not checkpoint.has_head
        what = found(path)["comfy-repackaging"]
        assert "lm_head and deepstack_merger_list" in what
        assert "lm_head.weight" in checkpoint.missing_tensors
    write_checkpoint(tmp_path, CONFIG, tensors)
    (tmp_path / "hidream_o1_image_bf16.safetensors").unlink()
    assert {"comfy-repackaging", "lm-head-missing", "tensor-missing"} == set(found(tmp_path))


def test_hidream_i1_is_another_model(tmp_path):
    (tmp_path / "model_index.json").write_text('{"_class_name": "HiDreamImagePipeline"}')
    assert "hidream-i1" in found(tmp_path)
    assert inspect_checkpoint(tmp_path).verdict == "not servable"


def test_any_other_diffusers_pipeline(tmp_path):
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    assert "FluxPipeline" in found(tmp_path)["diffusers-pipeline"]


# Beside the weights


@pytest.mark.parametrize("name", ["TokenizersBackend"])
def test_a_tokenizer_class_of_transformers_5(root, name):
    edit_json(root / "tokenizer_config.json", lambda settings: settings.update(tokenizer_class=name))
    assert name in found(root)["tokenizer-class"]


def test_no_tokenizer(root):
    (root / "tokenizer.json").unlink()
    assert list(found(root)) == ["tokenizer-missing"]
    for name in ("vocab.json", "merges.txt"):
        (root / name).write_text("{}")
    assert found(root) == {}


def test_no_chat_template(root):
    edit_json(root / "tokenizer_config.json", lambda settings: settings.pop("chat_template"))
    assert list(found(root)) == ["chat-template-missing"]
    (root / "chat_template.jinja").write_text("{{ messages }}")
    assert found(root) == {}


def test_no_processor(root):
    settings = json.loads((root / "preprocessor_config.json").read_text())
    (root / "preprocessor_config.json").unlink()
    assert list(found(root)) == ["processor-missing"]
    (root / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    assert list(found(root)) == ["processor-new"]


def test_a_processor_of_another_patch_size(root):
    edit_json(root / "preprocessor_config.json", lambda settings: settings.update(patch_size=14))
    assert "patch_size 14" in found(root)["processor-differs"]


def test_drawing_tokens_that_the_tokenizer_lacks(root):
    edit_json(root / "tokenizer_config.json", lambda settings: settings["added_tokens_decoder"].popitem())
    assert "<|tms_token|>" in found(root)["head-tokens-missing"]


def test_drawing_tokens_only_in_the_tokenizer_itself(root):
    settings = json.loads((root / "tokenizer_config.json").read_text())
    added = list(settings.pop("added_tokens_decoder").values())
    (root / "tokenizer_config.json").write_text(json.dumps(settings))
    (root / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    assert found(root) == {}


def test_sampling_defaults_are_pointed_out(root):
    values = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05}
    (root / "generation_config.json").write_text(json.dumps(values))
    what = found(root, ("note",))["sampling-defaults"]
    assert "temperature 0.7" in what and "repetition_penalty 1.05" in what
    (root / "generation_config.json").write_text(json.dumps({"do_sample": False, "temperature": 0.7}))
    assert "sampling-defaults" not in found(root, ("note",))


def test_a_broken_file_beside(root):
    (root / "generation_config.json").write_text("{,")
    assert list(found(root)) == ["side-file-broken"]


# Mixture of experts


def moe_config() -> dict:
    config = config_of("qwen3-vl-30b-a3b")
    tiny = tiny_config()
    config["vision_config"] |= {**tiny["vision_config"], "model_type": "qwen3_vl_moe"}
    sizes = {key: tiny["text_config"][key] for key in tiny["text_config"] if key not in ("model_type", "dtype")}
    config["text_config"] |= {**sizes, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    return config


def test_a_missing_expert_tensor(tmp_path):
    config = moe_config()
    tensors = stored(config)
    name = "model.language_model.layers.1.mlp.experts.down_proj"
    del tensors[name]
    assert inspect_checkpoint(write_checkpoint(tmp_path, config, tensors)).missing_tensors == (name,)


def separate_experts(config: dict) -> dict:
    tensors = {name: entry for name, entry in stored(config).items() if ".experts." not in name}
    for layer in range(2):
        for expert in range(4):
            stem = f"model.language_model.layers.{layer}.mlp.experts.{expert}"
            tensors |= {
                f"{stem}.gate_proj.weight": ("BF16", (48, 64)),
                f"{stem}.up_proj.weight": ("BF16", (48, 64)),
                f"{stem}.down_proj.weight": ("BF16", (64, 48)),
            }
    return tensors


def test_experts_stored_one_by_one(tmp_path):
    config = moe_config()
    tensors = separate_experts(config)
    assert inspect_checkpoint(write_checkpoint(tmp_path / "a", config, tensors)).verdict == "servable"
    name = "model.language_model.layers.0.mlp.experts.3.up_proj.weight"
    del tensors[name]
    assert inspect_checkpoint(write_checkpoint(tmp_path / "b", config, tensors)).missing_tensors == (name,)


def test_experts_stored_the_other_way_round(tmp_path):
    config = moe_config()
    name = "model.language_model.layers.0.mlp.experts.gate_up_proj"
    tensors = stored(config) | {name: ("BF16", (4, 96, 64))}
    assert list(found(write_checkpoint(tmp_path, config, tensors))) == ["shape-mismatch"]


# The catalogue


def test_every_kind_speaks_both_languages():
    for code, kind in CATALOGUE.items():
        assert re.fullmatch(r"[a-z0-9-]+", code)
        for text in (kind.title, kind.do):
            assert text.en and re.search("[\u4e00-\u9fff]", text.zh), code


def test_every_kind_is_planted_somewhere():
    """A code nobody plants could be misspelt and never seen."""
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    unplanted = [code for code in CATALOGUE if f'"{code}"' not in sources]
    assert unplanted == []


def test_a_sharded_writer_that_lies_is_noticed(tmp_path):
    """The helper's own index is right, so that the index tests prove what they say."""
    tensors = stored(CONFIG)
    write_checkpoint(tmp_path, CONFIG, tensors, 3)
    assert set(index_of(tmp_path)) == set(tensors)
    write_sharded(tmp_path, tensors, 3)
    assert found(tmp_path) == {}
    write_index(tmp_path, dict.fromkeys(tensors, "model-00001-of-00003.safetensors"), 0)
    assert "tensor-missing" in found(tmp_path)


def test_a_config_that_says_nothing_is_not_servable(root):
    (root / "config.json").write_text("{}")
    assert found(root)["config-incomplete"] == "config.json: model_type is absent."
    assert inspect_checkpoint(root).verdict == "not servable"
