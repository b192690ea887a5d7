import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import oracle


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint that the stored values were computed with."""
    out = tmp_path_factory.mktemp("tiny-hidream")
    subprocess.run([sys.executable, oracle.DATA / "make_tiny_checkpoint.py", "--out", out], check=True)
    return out


@pytest.fixture(scope="session")
def tokenizer(tiny: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny)


@pytest.fixture(scope="session")
def image_processor(tiny: Path) -> Any:
    from transformers import AutoImageProcessor

    return AutoImageProcessor.from_pretrained(tiny)


@pytest.fixture(scope="session")
def reference(tiny: Path) -> Any:
    from ascend_vl.drawing.reference import ReferenceDrawer

    return ReferenceDrawer(tiny)
