"""The training forward against Transformers on the exported checkpoint: tokens, positions, patches, logits."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from training import batches, export, language, tokenizer, world
from training.model import DemoModel

HEAD = {
    "model.x_embedder.proj1.weight": (48, 3072),
    "model.x_embedder.proj2.weight": (192, 48),
    "model.x_embedder.proj2.bias": (192,),
    "model.t_embedder1.mlp.0.weight": (192, 256),
    "model.t_embedder1.mlp.0.bias": (192,),
    "model.t_embedder1.mlp.2.weight": (192, 192),
    "model.t_embedder1.mlp.2.bias": (192,),
    "model.final_layer2.linear.weight": (3072, 192),
    "model.final_layer2.linear.bias": (3072,),
}


@pytest.fixture(scope="module")
def net():
    made = DemoModel(seed=3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in made.named_parameters():
            if "norm" in name or name.endswith("bias"):
                p.add_(0.1 * torch.randn(p.shape, generator=generator))
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def directory(net, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    export.export(net, path, torch.float32)
    return path


@pytest.fixture(scope="module")
def reference(directory):
    transformers = pytest.importorskip("transformers")
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


@pytest.fixture(scope="module")
def loaded_tokenizer(directory):
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(directory)


def test_names_are_the_published_ones(net, reference):
    mine = {n: tuple(p.shape) for n, p in net.state_dict().items()}
    assert {n: s for n, s in mine.items() if n in HEAD} == HEAD
    theirs = {n: tuple(p.shape) for n, p in reference.state_dict().items()}
    assert mine == theirs | HEAD


def test_the_checkpoint_is_small_and_its_config_says_what_differs(directory):
    config = json.loads((directory / "config.json").read_text())
    assert config["architectures"] == ["Qwen3VLForConditionalGeneration"] and not config["tie_word_embeddings"]
    assert config["hidream_o1"]["noise_scale"] == batches.NOISE_SCALE
    assert config["hidream_o1"]["tms_token_id"] == tokenizer.token("<|tms_token|>")
    # Edits were not trained.
    assert config["hidream_o1"]["tasks"] == ["image_generation"]
    shipped = json.loads((Path(__file__).parents[2] / "src/ascend_vl/demo/checkpoint/config.json").read_text())
    assert config["hidream_o1"] == shipped["hidream_o1"]
    assert (directory / "model.safetensors").stat().st_size / 2 < 18e6  # bfloat16 is half of this float32 file


@pytest.mark.parametrize("size", [(128, 128), (160, 128), (128, 192), (192, 192)])
def test_patches_equal_the_image_processor(directory, size):
    transformers = pytest.importorskip("transformers")
    processor = transformers.AutoImageProcessor.from_pretrained(directory)
    rng = world.stream("test patches", *size)
    pixels = world.render(world.random_scene(rng, "eval"), *size, rng).pixels
    out = processor([Image.fromarray(pixels)], return_tensors="pt")
    assert out["image_grid_thw"].tolist() == [[1, size[1] // 16, size[0] // 16]]
    assert (out["pixel_values"].float() - torch.from_numpy(batches.vision_patches(pixels))).abs().max() < 1e-6


@pytest.mark.parametrize(("size", "count"), [((160, 128), 1), ((128, 192), 2), ((192, 192), 1)])
def test_packed_rows_give_the_logits_of_transformers(net, reference, loaded_tokenizer, size, count):
    rng = world.stream("test logits", *size)
    scenes = [world.random_scene(rng, "eval") for _ in range(count)]
    pictures = [world.render(s, *size, rng).pixels for s in scenes]
    rows, cols = size[1] // 32, size[0] // 32
    row = batches.picture_row([(rows, cols)] * count)
    questions = [
        language.LONG["caption"](scenes[0], "en", rng),
        language.LONG["json"](scenes[0], "zh", rng),
        language.SHORT["count"](scenes[0], "zh", rng),
    ]
    for q, a in questions:
        row.answer("any", "en", q, a)
    shorter = batches.picture_row([(rows, cols)] * count)  # a second row, so that padding is in play
    shorter.answer("any", "en", "count", "1")
    packed = batches.pack([row, shorter], causal=True)
    patches = torch.from_numpy(np.stack([batches.vision_patches(p) for p in pictures]))
    with torch.no_grad():
        seen = net.see(patches.repeat(2, 1, 1), rows * 2, cols * 2)
        logits = net.lm_head(net.hidden(packed.ids, packed.positions, packed.allowed, packed.marks == 1, seen))[0]
    pad = tokenizer.token("<|image_pad|>")
    for (q, a), (_, _, start, _) in zip(questions, row.answers, strict=True):
        content = [{"type": "text", "text": q}] + [{"type": "image"}] * count
        text = loaded_tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        ids = loaded_tokenizer(text.replace("<|image_pad|>", "<|image_pad|>" * rows * cols) + a)["input_ids"]
        mine = [i for i, s in enumerate(row.segments) if s in (0, row.segments[start])]
        assert ids == [row.ids[i] for i in mine]
        ids = torch.tensor([ids])
        grids = torch.tensor([[1, rows * 2, cols * 2]] * count)
        extra = {}
        if "mm_token_type_ids" in reference.model.get_rope_index.__code__.co_varnames:
            extra["mm_token_type_ids"] = (ids == pad).int()
        positions, _ = reference.model.get_rope_index(
            input_ids=ids, image_grid_thw=grids, attention_mask=torch.ones_like(ids), **extra
        )
        assert torch.equal(positions[:, 0], packed.positions[:, 0, mine])
        with torch.no_grad():
            theirs = reference(
                input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=patches.flatten(0, 1),
                image_grid_thw=grids, **extra,
            ).logits[0]  # fmt: skip
        assert (theirs - logits[mine]).abs().max() < 1e-5


def test_the_processor_keeps_trained_sizes_and_brings_others_into_their_range(directory):
    transformers = pytest.importorskip("transformers")
    processor = transformers.AutoImageProcessor.from_pretrained(directory)
    for size, tokens in (((128, 128), (4, 4)), ((192, 192), (6, 6)), ((1024, 1024), (6, 6)), ((40, 40), (4, 4))):
        grid = processor([Image.new("RGB", size)], return_tensors="pt")["image_grid_thw"][0].tolist()
        assert (grid[1] // 2, grid[2] // 2) == tokens, size


def test_the_whole_processor_loads_without_remote_code(directory):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    processor = transformers.AutoProcessor.from_pretrained(directory)
    text = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "text", "text": "你好"}, {"type": "image"}]}], add_generation_prompt=True
    )
    out = processor(text=[text], images=[Image.new("RGB", (128, 128))], return_tensors="pt")
    assert (out["input_ids"] == tokenizer.token("<|image_pad|>")).sum() == 16
    assert text.endswith("<|vision_end|>你好<|im_end|>\n<|im_start|>assistant\n")


def test_the_saved_tokenizer_gives_the_trained_ids(loaded_tokenizer):
    rng = world.stream("test saved tokenizer", 0)
    for _ in range(50):
        scene = world.random_scene(rng, "eval")
        for text in (language.caption(scene, "en"), language.caption(scene, "zh"), language.listing(scene)):
            assert loaded_tokenizer(text)["input_ids"] == batches.encode(text)
    assert loaded_tokenizer.eos_token_id == tokenizer.token("<|im_end|>")
