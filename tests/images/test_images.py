"""Every form in which people send pictures has the one result that `ascend_vl.images` documents."""

import base64
import io
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from ascend_vl import images
from ascend_vl.errors import AscendVLError
from ascend_vl.images import ImageRefused, load_image

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
LEAK = re.compile(r"0x[0-9a-fA-F]{4,}|/(?:work|root|home|usr|tmp)/")


def encode(picture: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def two_halves() -> Image.Image:
    """40x20, left red, right blue."""
    picture = Image.new("RGB", (40, 20), RED)
    picture.paste(BLUE, (20, 0, 40, 20))
    return picture


def near(pixel: object, wanted: tuple[int, int, int], tolerance: int = 12) -> bool:
    return bool(np.all(np.abs(np.subtract(pixel, wanted)) <= tolerance))  # type: ignore[arg-type]


def refused(source: bytes | str | Path) -> ImageRefused:
    with pytest.raises(ImageRefused) as caught:
        load_image(source)
    assert not LEAK.search(str(caught.value)) or isinstance(source, Path)
    return caught.value


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_each_form_is_read_to_plain_rgb(form: str) -> None:
    options = {"quality": 95} if form in ("JPEG", "WEBP") else {}
    picture = load_image(encode(two_halves(), form, **options))
    assert (type(picture), picture.mode, picture.size) == (Image.Image, "RGB", (40, 20))
    assert near(picture.getpixel((5, 10)), RED)
    assert near(picture.getpixel((35, 10)), BLUE)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_comes_out_upright(form: str, orientation: int) -> None:
    upright = two_halves()
    transpositions = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(transpositions[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if form in ("JPEG", "WEBP") else {}
    picture = load_image(encode(stored, form, exif=exif.tobytes(), **options))
    assert picture.size == (40, 20)
    assert near(picture.getpixel((5, 10)), RED)
    assert near(picture.getpixel((35, 10)), BLUE)


def test_no_metadata_is_left() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x013B] = "somebody"
    for form in ("JPEG", "PNG", "WEBP", "TIFF"):
        picture = load_image(encode(two_halves(), form, exif=exif.tobytes()))
        assert (picture.info, dict(picture.getexif())) == ({}, {})


def test_unreadable_exif_is_ignored() -> None:
    data = encode(two_halves(), "JPEG", exif=b"Exif\0\0" + b"\xff" * 40, quality=95)
    assert load_image(data).size == (40, 20)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_several_frames_the_first_counts(form: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
    data = encode(frames[0], form, save_all=True, append_images=frames[1:])
    assert near(load_image(data).getpixel((4, 4)), RED)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_lies_over_white(mode: str) -> None:
    clear = (0, 0, 0, 0) if mode == "RGBA" else (0, 0)
    assert load_image(encode(Image.new(mode, (4, 4), clear), "PNG")).getpixel((1, 1)) == WHITE
    half = (0, 0, 0, 128) if mode == "RGBA" else (0, 128)
    assert near(load_image(encode(Image.new(mode, (4, 4), half), "PNG")).getpixel((1, 1)), (127, 127, 127), 1)


def test_a_transparent_palette_entry_becomes_white_not_its_hidden_colour() -> None:
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([255, 0, 0, 0, 255, 0])
    data = encode(picture, "PNG", transparency=1)
    assert load_image(data).getpixel((0, 0)) == WHITE
    assert load_image(encode(picture, "PNG")).getpixel((0, 0)) == (0, 255, 0)


def test_a_transparent_colour_of_a_plain_png_becomes_white() -> None:
    data = encode(Image.new("RGB", (4, 4), RED), "PNG", transparency=RED)
    assert load_image(data).getpixel((0, 0)) == WHITE


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 256, dtype=np.uint16)[None, :].repeat(2, axis=0)
    for form in ("PNG", "TIFF"):
        values = np.asarray(load_image(encode(Image.fromarray(ramp), form)))[0, :, 0]
        assert values.tolist() == list(range(256))


def test_sixteen_bit_colour_keeps_the_high_byte() -> None:
    row = b"\0" + struct.pack(">6H", 65535, 0, 0x8000, 0x1234, 0xFFFF, 0)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">2I5B", 2, 1, 16, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    assert list(np.asarray(load_image(data))[0].tolist()) == [[255, 0, 128], [0x12, 255, 0]]


def test_cmyk_and_black_and_white() -> None:
    assert near(
        load_image(encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95)).getpixel((4, 4)), RED
    )
    assert load_image(encode(Image.new("1", (8, 8), 1), "PNG")).getpixel((4, 4)) == WHITE


@pytest.mark.parametrize("size", [(1, 1), (1, 200), (200, 1), (3, 17)])
def test_tiny_and_narrow_pictures_are_taken(size: tuple[int, int]) -> None:
    assert load_image(encode(Image.new("RGB", size, RED), "PNG")).size == size


@pytest.mark.parametrize("size", [(1, 201), (20000, 1)])
def test_more_extreme_than_200_to_1_is_refused(size: tuple[int, int]) -> None:
    assert refused(encode(Image.new("RGB", size, RED), "PNG")).code == "image-aspect"


def test_too_many_pixels_are_refused_from_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = encode(Image.new("1", (9000, 9000)), "PNG")
    decoded: list[int] = []
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: decoded.append(1))
    assert refused(picture).code == "image-too-large"
    far_too_large = bytearray(picture)
    far_too_large[16:24] = struct.pack(">2I", 100_000, 100_000)
    far_too_large[29:33] = struct.pack(">I", zlib.crc32(bytes(far_too_large[12:29])))
    assert refused(bytes(far_too_large)).code == "image-too-large"
    assert not decoded


def test_the_limit_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(images.MAX_PIXELS_VARIABLE, "100")
    data = encode(Image.new("RGB", (11, 10)), "PNG")
    assert refused(data).code == "image-too-large"
    monkeypatch.setenv(images.MAX_PIXELS_VARIABLE, "110")
    assert load_image(data).size == (11, 10)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_cut_off_file_is_refused(form: str) -> None:
    rng = np.random.default_rng(0)
    data = encode(Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)), form)
    for length in (len(data) // 2, 40, 12):
        assert refused(data[:length]).code in ("image-damaged", "image-unreadable")


@pytest.mark.parametrize("data", [b"", b"hello", b"<svg xmlns='x'/>", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"%PDF-1.7\n"])
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    assert refused(data).code == "image-unreadable"


@pytest.mark.parametrize("mode", ["F", "I"])
def test_pixels_without_an_agreed_8_bit_form_are_refused(mode: str) -> None:
    picture = Image.new(mode, (4, 4), 100_000)
    assert refused(encode(picture, "TIFF")).code == "image-mode"


def test_data_urls(tmp_path: Path) -> None:
    data = encode(two_halves(), "PNG")
    text = base64.b64encode(data).decode()
    wrapped = "\n".join(text[i : i + 76] for i in range(0, len(text), 76))
    percent = "".join(f"%{byte:02x}" for byte in data)
    for url in (f"data:image/png;base64,{text}", f"DATA:;base64,{wrapped}", f"data:image/png,{percent}"):
        assert load_image(url).size == (40, 20)
    for url in ("data:image/png;base64", "data:image/png;base64,@@@", "data:,"):
        assert refused(url).code == "image-unreadable"


def test_a_path_is_read_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(encode(two_halves(), "PNG"))
    assert load_image(path).tobytes() == load_image(str(path)).tobytes() == two_halves().tobytes()
    assert refused(tmp_path / "nowhere.png").code == "image-not-found"
    assert refused(tmp_path).code == "image-not-found"


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"]), st.data())
def test_damage_anywhere_gives_a_picture_or_a_refusal(form: str, choose: st.DataObject) -> None:
    data = bytearray(encode(two_halves(), form))
    for _ in range(choose.draw(st.integers(1, 4))):
        data[choose.draw(st.integers(0, len(data) - 1))] = choose.draw(st.integers(0, 255))
    try:
        assert load_image(bytes(data)).mode == "RGB"
    except ImageRefused as error:
        assert not LEAK.search(str(error))
        assert isinstance(error, ValueError)


@pytest.mark.parametrize("value", ["abc", "-5", "0"])
def test_a_limit_that_is_no_number_of_pixels_is_a_setting_to_correct(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(images.MAX_PIXELS_VARIABLE, value)
    with pytest.raises(AscendVLError) as refused:
        images.max_pixels()
    assert refused.value.code == "setting-invalid" and not isinstance(refused.value, ImageRefused)


@pytest.mark.parametrize("source", ["http://127.0.0.1:1/x.png", "file:///x.png", "~nobody-of-that-name/x.png"])
def test_what_is_no_path_is_named_as_it_was_given(source: str) -> None:
    with pytest.raises(ImageRefused) as refused:
        load_image(source)
    assert refused.value.code == "image-not-found" and source in refused.value.what.en
