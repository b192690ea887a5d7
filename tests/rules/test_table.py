"""The table itself: complete, consistent, and refusing what is incomplete."""

import copy
import re

import pytest
from packaging.specifiers import SpecifierSet

from ascend_vl.adaptations import RECORDS, MachineFacts
from ascend_vl.adaptations.decide import known_stack
from ascend_vl.errors import AscendVLError
from ascend_vl.rules import parse_version, table
from ascend_vl.rules.rows import Symptom
from ascend_vl.rules.table import documents, read

TABLE = table()


def test_every_row_has_evidence_date_tag_and_both_languages() -> None:
    rows = list(TABLE.rows())
    assert len(rows) > 200
    for row in rows:
        assert row.evidence and row.date.year == 2026 and row.tag in "SUMH", row.id
        texts = [value for value in vars(row).values() if hasattr(value, "zh")]
        assert len(texts) >= 2, row.id
        for text in texts:
            assert re.search(r"[A-Za-z]", text.en) and not re.search(r"[\u4e00-\u9fff]", text.en), row.id
            assert text.zh.strip(), row.id


def test_causes_have_evidence_and_both_languages() -> None:
    for symptom in TABLE.symptoms:
        for cause in symptom.causes:
            assert cause.evidence and cause.text.en and cause.text.zh and cause.do.en and cause.do.zh, cause.id


@pytest.mark.parametrize("missing", ["evidence", "date", "tag", "text", "title"])
@pytest.mark.parametrize("section", ["chips", "versions", "flags", "environment", "symptoms", "pairings", "settings"])
def test_a_row_without_a_part_does_not_load(section: str, missing: str) -> None:
    parsed = copy.deepcopy(documents())
    document = next(one for one in parsed.values() if section in one)
    del document[section][0][missing]
    with pytest.raises(AscendVLError) as caught:
        read(parsed)
    assert caught.value.code == "rules-invalid"
    assert missing in str(caught.value.why)


@pytest.mark.parametrize(
    "text", [{"en": "only"}, {"zh": "只有"}, {"en": "x", "zh": ""}, {"en": "x", "zh": "y", "de": "z"}]
)
def test_a_text_in_one_language_does_not_load(text: dict[str, str]) -> None:
    parsed = copy.deepcopy(documents())
    parsed["settings"]["settings"][0]["text"] = text
    with pytest.raises(AscendVLError):
        read(parsed)


def test_an_id_used_twice_does_not_load() -> None:
    parsed = copy.deepcopy(documents())
    rows = parsed["settings"]["settings"]
    rows.append(rows[0])
    with pytest.raises(AscendVLError, match="twice"):
        read(parsed)


def test_evidence_is_an_address_or_a_port() -> None:
    parsed = copy.deepcopy(documents())
    parsed["settings"]["settings"][0]["evidence"] = ["somebody said so"]
    with pytest.raises(AscendVLError, match="evidence"):
        read(parsed)


def test_releases_are_in_order_and_their_ranges_can_be_read() -> None:
    versions = [parse_version(row.release) for row in TABLE.versions]
    assert all(versions)
    assert versions == sorted(version for version in versions if version)
    for row in TABLE.versions:
        SpecifierSet(row.transformers)


def test_the_whole_matrix_is_there() -> None:
    wanted = {
        *("0.10.0rc1", "0.11.0rc0", "0.11.0", "0.12.0rc1", "0.13.0", "0.14.0rc1", "0.15.0rc1", "0.16.0rc1"),
        *("0.17.0rc1", "0.18.0", "0.19.1rc1", "0.20.2rc1", "0.21.0rc1", "0.22.1rc1", "0.23.0rc1", "0.23.0"),
        *("0.23.0.post1", "0.24.0rc1", "0.25.1rc1", "0.26.0rc1"),
    }
    listed = [row.release for row in TABLE.versions]
    assert wanted <= set(listed)


def test_adapted_releases_are_those_the_adaptations_know() -> None:
    for row in TABLE.versions:
        release = row.release
        if row.on_310p in ("best", "adapted"):
            assert known_stack(MachineFacts(chip="310P3", vllm_ascend=release)), release


def test_adaptations_that_causes_name_exist() -> None:
    ids = {record.id for record in RECORDS}
    named = {cause.adaptation for symptom in TABLE.symptoms for cause in symptom.causes if cause.adaptation}
    assert named and named <= ids


def test_error_codes_of_the_field_are_there() -> None:
    codes = {symptom.code for symptom in TABLE.symptoms}
    assert {"507018", "507033", "507899", "107000", "207001", "561002", "161001", "561103"} <= codes


@pytest.mark.parametrize("symptom", TABLE.symptoms, ids=lambda symptom: symptom.id)
def test_a_code_is_recognised_by_its_own_pattern(symptom: Symptom) -> None:
    patterns = "|".join(f"(?:{pattern})" for pattern in symptom.patterns)
    if symptom.code:
        assert re.search(patterns, f"ret is {symptom.code}", re.IGNORECASE)
    assert not re.search(patterns, "Application startup complete.", re.IGNORECASE)


def test_chips_of_products_exist() -> None:
    chips = {chip.id for chip in TABLE.chips}
    assert {product.chip for product in TABLE.products} <= chips
    names = [alias for product in TABLE.products for alias in product.aliases]
    assert len(names) == len(set(names))
