"""Quantised layouts: sound ones are servable, one tensor less is named, the description file is compared both ways."""

import json

import pytest
from sparse_checkpoint import stored, tiny_config, write_checkpoint
from test_defects import found, moe_config, separate_experts

from ascend_vl.checkpoint import inspect_checkpoint

CONFIG = tiny_config()
LINEAR = tuple(f"{part}_proj" for part in ("q", "k", "v", "o", "gate", "up", "down"))


def linears(tensors: dict) -> list[str]:
    """Modules of the language model that a quantiser replaces."""
    return [
        name.removesuffix(".weight")
        for name in tensors
        if ".language_model." in name and name.removesuffix(".weight").endswith(LINEAR)
    ]


def fp8(config: dict) -> tuple[dict, dict]:
    tensors = stored(config)
    for module in linears(tensors):
        out, into = tensors[f"{module}.weight"][1]
        tensors[f"{module}.weight"] = ("F8_E4M3", (out, into))
        tensors[f"{module}.weight_scale_inv"] = ("BF16", (-(-out // 128), -(-into // 128)))
    settings = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    return config | {"quantization_config": settings}, tensors


def packed(config: dict, method: str) -> tuple[dict, dict]:
    tensors = stored(config)
    for module in linears(tensors):
        out, into = tensors.pop(f"{module}.weight")[1]
        tensors[f"{module}.qweight"] = ("I32", (into // 8, out) if method == "gptq" else (into, out // 8))
        tensors[f"{module}.qzeros"] = ("I32", (1, out // 8))
        tensors[f"{module}.scales"] = ("F16", (1, out))
        if method == "gptq":
            tensors[f"{module}.g_idx"] = ("I32", (into,))
    return config | {"quantization_config": {"quant_method": method, "bits": 4, "group_size": 128}}, tensors


def compressed(config: dict) -> tuple[dict, dict]:
    tensors = stored(config)
    for module in linears(tensors):
        out, into = tensors[f"{module}.weight"][1]
        tensors[f"{module}.weight"] = ("I8", (out, into))
        tensors[f"{module}.weight_scale"] = ("BF16", (out, 1))
    return config | {"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized"}}, tensors


def modelslim(config: dict) -> tuple[dict, dict]:
    """W8A8 static as msmodelslim writes it: seven tensors a linear module, and the types in a description file."""
    tensors = stored(config)
    types = dict.fromkeys(tensors, "FLOAT")
    for module in linears(tensors):
        out, into = tensors[f"{module}.weight"][1]
        parts = {
            "weight": ("I8", (out, into)),
            "weight_scale": ("F32", (out, 1)),
            "weight_offset": ("F32", (out, 1)),
            "input_scale": ("F32", (1,)),
            "input_offset": ("F32", (1,)),
            "quant_bias": ("I32", (out,)),
            "deq_scale": ("F32", (out,)),
        }
        tensors |= {f"{module}.{leaf}": entry for leaf, entry in parts.items()}
        types |= dict.fromkeys((f"{module}.{leaf}" for leaf in parts), "W8A8")
    return {"model_quant_type": "W8A8", "version": "1.0.0", "group_size": 0} | types, tensors


def write_modelslim(root, description: dict, tensors: dict):
    write_checkpoint(root, CONFIG, tensors)
    (root / "quant_model_description.json").write_text(json.dumps(description))
    return root


LAYOUTS = {
    "fp8": (lambda: fp8(CONFIG), "weight_scale_inv"),
    "gptq": (lambda: packed(CONFIG, "gptq"), "qzeros"),
    "awq": (lambda: packed(CONFIG, "awq"), "scales"),
    "compressed-tensors": (lambda: compressed(CONFIG), "weight_scale"),
}


@pytest.mark.parametrize("method", LAYOUTS)
def test_a_sound_quantised_checkpoint(method, tmp_path):
    config, tensors = LAYOUTS[method][0]()
    checkpoint = inspect_checkpoint(write_checkpoint(tmp_path, config, tensors))
    assert checkpoint.verdict == "servable", checkpoint.defects
    assert checkpoint.quantisation.method == method
    assert checkpoint.quantisation.bits == (4 if method in ("gptq", "awq") else 8)


@pytest.mark.parametrize("method", LAYOUTS)
def test_one_tensor_less_is_named(method, tmp_path):
    config, tensors = LAYOUTS[method][0]()
    name = f"model.language_model.layers.1.mlp.down_proj.{LAYOUTS[method][1]}"
    del tensors[name]
    assert inspect_checkpoint(write_checkpoint(tmp_path, config, tensors)).missing_tensors == (name,)


@pytest.mark.parametrize("method", LAYOUTS)
def test_a_whole_module_less_is_named(method, tmp_path):
    config, tensors = LAYOUTS[method][0]()
    module = "model.language_model.layers.1.self_attn.k_proj"
    tensors = {name: entry for name, entry in tensors.items() if not name.startswith(module)}
    assert inspect_checkpoint(write_checkpoint(tmp_path, config, tensors)).missing_tensors == (f"{module}.weight",)


@pytest.mark.parametrize("method", LAYOUTS)
def test_one_tensor_more_is_refused(method, tmp_path):
    config, tensors = LAYOUTS[method][0]()
    tensors["model.language_model.layers.0.self_attn.q_proj.lora_A"] = ("F16", (4, 4))
    assert list(found(write_checkpoint(tmp_path, config, tensors))) == ["tensor-unexpected"]


def test_an_unknown_method(tmp_path):
    config = CONFIG | {"quantization_config": {"quant_method": "rainbow"}}
    assert "rainbow" in found(write_checkpoint(tmp_path, config, stored(CONFIG)))["quant-unknown"]


def test_several_dtypes_without_quantisation_are_noted(tmp_path):
    tensors = stored(CONFIG) | {"lm_head.weight": ("F32", (320, 64))}
    assert "dtype-mixed" in found(write_checkpoint(tmp_path, CONFIG, tensors), ("note",))


def test_modelslim_by_its_description(tmp_path):
    checkpoint = inspect_checkpoint(write_modelslim(tmp_path, *modelslim(CONFIG)))
    assert checkpoint.verdict == "servable", checkpoint.defects
    quantisation = checkpoint.quantisation
    assert (quantisation.method, quantisation.bits) == ("modelslim", 8)
    assert quantisation.types["W8A8"] == 7 * 7 * 2
    assert "version 1.0.0" in quantisation.summary


def test_modelslim_described_but_not_stored(tmp_path):
    description, tensors = modelslim(CONFIG)
    name = "model.language_model.layers.0.mlp.up_proj.deq_scale"
    del tensors[name]
    assert name in found(write_modelslim(tmp_path, description, tensors))["quant-description"]


def test_modelslim_stored_but_not_described(tmp_path):
    description, tensors = modelslim(CONFIG)
    name = "model.language_model.layers.0.mlp.up_proj.deq_scale"
    del description[name]
    checkpoint = inspect_checkpoint(write_modelslim(tmp_path, description, tensors))
    assert checkpoint.unexpected_tensors == (name,)


def test_modelslim_type_and_dtype_disagree(tmp_path):
    description, tensors = modelslim(CONFIG)
    tensors["model.language_model.layers.0.mlp.up_proj.weight"] = ("BF16", (96, 64))
    assert "up_proj.weight (W8A8, BF16)" in found(write_modelslim(tmp_path, description, tensors))["quant-description"]


def test_modelslim_missing_base_tensor(tmp_path):
    """Neither described nor stored: the config still asks for it."""
    description, tensors = modelslim(CONFIG)
    module = "model.language_model.layers.0.self_attn.v_proj."
    description = {name: kind for name, kind in description.items() if not name.startswith(module)}
    tensors = {name: entry for name, entry in tensors.items() if not name.startswith(module)}
    assert inspect_checkpoint(write_modelslim(tmp_path, description, tensors)).missing_tensors == (f"{module}weight",)


def test_modelslim_with_names_already_fused(tmp_path):
    description, tensors = modelslim(CONFIG)
    name = "model.language_model.layers.0.mlp.gate_up_proj.deq_scale"
    description[name] = "W8A8"
    tensors[name] = ("F32", (192,))
    assert name in found(write_modelslim(tmp_path, description, tensors))["quant-fused-names"]


def test_a_broken_description(tmp_path):
    root = write_checkpoint(tmp_path, CONFIG, stored(CONFIG))
    (root / "quant_model_description.json").write_text("{}")
    assert "quant-description" in found(root)


def test_fp8_experts_fused_and_one_by_one(tmp_path):
    config = moe_config()
    settings = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    tensors = stored(config)
    for name in [name for name in tensors if ".experts." in name]:
        tensors[name] = ("F8_E4M3", tensors[name][1])
        tensors[f"{name}_scale_inv"] = ("BF16", (4, 1, 1))
    assert inspect_checkpoint(write_checkpoint(tmp_path / "a", config | settings, tensors)).verdict == "servable"
    tensors = separate_experts(config)
    for name in [name for name in tensors if ".experts." in name]:
        tensors[name] = ("F8_E4M3", tensors[name][1])
        tensors[f"{name}_scale_inv"] = ("BF16", (1, 1))
    assert inspect_checkpoint(write_checkpoint(tmp_path / "b", config | settings, tensors)).verdict == "servable"
