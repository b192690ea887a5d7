import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def tiny(tiny_hidream: Path) -> Path:
    """The checkpoint that the stored values were computed with."""
    return tiny_hidream


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


@pytest.fixture(scope="session")
def worker(tiny: Path) -> Any:
    """One worker with the model in float32, for tests that need no engine round it."""
    import bare

    made = bare.load(tiny)
    assert made.drawing_open()["released"] > 0
    return made
