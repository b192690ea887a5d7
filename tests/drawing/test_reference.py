"""The independent implementation against the stored reference values."""

from typing import Any

import oracle
import pytest
import torch

from ascend_vl.drawing.reference import ReferenceDrawer, dense_mask


@pytest.mark.parametrize("case", oracle.CASES)
def test_it_draws_what_the_reference_drew(case: str, reference: ReferenceDrawer) -> None:
    job = oracle.job(case, reference.tokenizer, reference.image_processor)
    picture, arrays = reference.draw(job)
    assert picture.shape == (job.height, job.width, 3)
    oracle.check(arrays, case)


def test_the_mask_hides_the_picture_from_the_prompt_and_nothing_else() -> None:
    seen = dense_mask(torch.tensor([0, 0, 1, 1]))[0, 0] == 0
    assert seen.tolist() == [[True, False, False, False], [True, True, False, False], [True] * 4, [True] * 4]


def test_a_missing_tensor_is_not_made_up(tiny: Any, tmp_path: Any) -> None:
    from safetensors.torch import load_file, save_file

    for file in tiny.iterdir():
        if file.suffix != ".safetensors" and "index" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = {}
    for shard in tiny.glob("*.safetensors"):
        tensors |= load_file(shard)
    del tensors["model.language_model.layers.1.self_attn.k_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(KeyError, match="k_proj"):
        ReferenceDrawer(tmp_path)
