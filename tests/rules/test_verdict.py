"""Every release as an input, with its verdict."""

import pytest

from ascend_vl.rules import in_range, parse_version, table, version_row
from ascend_vl.rules.verdict import allows, image_of, pinned, release_verdict

BEST_310P = "quay.io/ascend/vllm-ascend:v0.23.0.post1-310p"
ON_310P = {
    "0.10.0rc1": "unsupported",
    "0.11.0rc0": "adapted",
    "0.11.0rc1": "unsupported",
    "0.11.0rc2": "unsupported",
    "0.11.0rc3": "unsupported",
    "0.11.0": "adapted",
    "0.12.0rc1": "unsupported",
    "0.13.0": "unsupported",
    "0.14.0rc1": "fails",
    "0.15.0rc1": "unverified",
    "0.16.0rc1": "unverified",
    "0.17.0rc1": "unverified",
    "0.18.0": "works",
    "0.19.1rc1": "unverified",
    "0.20.2rc1": "fails",
    "0.21.0rc1": "fails",
    "0.22.1rc1": "fails",
    "0.23.0rc1": "adapted",
    "0.23.0": "adapted",
    "0.23.0.post1": "best",
    "0.24.0rc1": "fails",
    "0.25.1rc1": "fails",
    "0.26.0rc1": "adapted",
}


def test_no_release_is_forgotten_here() -> None:
    assert list(ON_310P) == [row.release for row in table().versions]


@pytest.mark.parametrize(("release", "status"), ON_310P.items())
def test_on_310p(release: str, status: str) -> None:
    verdict = release_verdict(release, "310P")
    assert verdict.status == status
    assert verdict.image == (None if status == "best" else BEST_310P)
    assert verdict.evidence


@pytest.mark.parametrize("release", ON_310P)
def test_on_a2(release: str) -> None:
    verdict = release_verdict(release, "A2")
    assert verdict.status in ("best", "works", "unverified", "unsupported")
    assert verdict.good == (release >= "0.16" and release != "0.19.1rc1")


def test_the_ports_image_ships_a_transformers_that_is_too_old() -> None:
    verdict = release_verdict("0.11.0rc0", "310P", "4.56.2")
    assert verdict.derived == (
        "FROM quay.io/ascend/vllm-ascend:v0.11.0rc0-310p",
        'RUN pip install "transformers==4.57.1"',
    )
    assert verdict.image == BEST_310P
    assert release_verdict("0.11.0rc0", "310P", "4.57.1").derived == ()


def test_a_release_nobody_knows() -> None:
    verdict = release_verdict("0.99.0", "310P")
    assert (verdict.status, verdict.good, verdict.image) == ("unknown", False, BEST_310P)
    assert release_verdict(None, "A2").status == "unknown"


def test_images() -> None:
    assert image_of("0.18.0", "A2") == "quay.io/ascend/vllm-ascend:v0.18.0"
    assert image_of("0.18.0", "A3") == "quay.io/ascend/vllm-ascend:v0.18.0-a3"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("8.2.RC1", "8.2rc1"), ("0.23.0.post1", "0.23.0.post1"), ("0.18.0+abc", "0.18.0"), ("x", None), (None, None)],
)
def test_parsing(text: str | None, parsed: str | None) -> None:
    found = parse_version(text)
    assert (str(found) if found else None) == parsed


def test_ranges() -> None:
    assert in_range("0.18.0", "0.18.0rc1", None)
    assert not in_range("0.11.0", "0.18.0rc1", None)
    assert in_range("0.11.0", None, "0.12.0rc1")
    assert not in_range("0.12.0rc1", None, "0.12.0rc1")
    assert not in_range(None, "0.1", None)
    assert in_range(None, None, None)
    row = version_row("0.18.0+g123")
    assert row is not None and row.vllm == "0.18.0"


def test_pinning() -> None:
    assert pinned(">=4.57.0,<=4.57.1") == "==4.57.1"
    assert pinned("==5.5.4") == "==5.5.4"
    assert pinned(">=4.57.4,<5") == ">=4.57.4,<5"
    assert allows(">=4.57.4,<5", None)
    assert not allows("==5.5.4", "4.57.1")
