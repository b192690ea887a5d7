"""The tiny random Qwen3-VL checkpoint of tests/data/oracle, in a form that Transformers 4.57 and 5 both load."""

import json
import subprocess
import sys
from pathlib import Path

MAKER = Path(__file__).parents[1] / "data" / "oracle" / "make_tiny_checkpoint.py"
# Random vision attention is near uniform, so that a wrong border changes nothing; these gains make it choose.
PEAK = {"attn.qkv.weight": 12.0, "attn.proj.weight": 6.0}


def make(folder: Path, *, peak: bool = True) -> Path:
    """Write the checkpoint without its pixel head to `folder`, once; `peak` sharpens the vision attention."""
    if (folder / "ready").exists():
        return folder
    subprocess.run(
        [sys.executable, str(MAKER), "--out", str(folder), "--without-head"], check=True, capture_output=True
    )
    if peak:
        _sharpen(folder)
    _name_the_tokenizer(folder)
    _limit_pictures(folder)
    (folder / "ready").touch()
    return folder


def _sharpen(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    for file in sorted(folder.glob("*.safetensors")):
        tensors = load_file(file)
        for name, tensor in tensors.items():
            for ending, gain in PEAK.items():
                if ".visual." in name and name.endswith(ending):
                    tensors[name] = tensor * gain
        save_file(tensors, file, metadata={"format": "pt"})


def _name_the_tokenizer(folder: Path) -> None:
    """Transformers 4.57 checks a Qwen3-VL processor's tokenizer class by name."""
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    settings["tokenizer_class"] = "Qwen2TokenizerFast"
    settings.pop("backend", None)
    file.write_text(json.dumps(settings, indent=1))


def _limit_pictures(folder: Path) -> None:
    """vLLM profiles with the largest picture allowed; 384x384 is enough here and quick on a CPU."""
    file = folder / "preprocessor_config.json"
    settings = json.loads(file.read_text())
    settings["size"] = {"longest_edge": 384 * 384, "shortest_edge": 32 * 32}
    file.write_text(json.dumps(settings, indent=1))
