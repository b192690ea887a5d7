"""One way to read a picture, for `ask`, `capture` and the server alike: every form people send has one result.

| sent as                                   | result                                                    |
|-------------------------------------------|-----------------------------------------------------------|
| PNG, JPEG (MPO), WebP, GIF, BMP, TIFF      | RGB, 8 bits                                               |
| any EXIF orientation                      | turned upright; unreadable EXIF is ignored                |
| animation, several pages                  | the first frame                                           |
| palette, grey, black and white            | RGB                                                       |
| transparency (RGBA, LA, PA, palette, tRNS) | laid over white                                           |
| 16-bit grey                               | 0..65535 scaled to 0..255 (never clipped)                 |
| 16-bit colour PNG                         | the high byte of each channel                             |
| CMYK                                      | Pillow's plain conversion; colour profiles are not applied |
| one pixel                                 | itself                                                    |
| sides as 200 : 1                          | itself; more extreme: refused (`image-aspect`)            |
| more than 64 Mi pixels by its header      | refused before decoding (`image-too-large`)               |
| cut off, damaged                          | refused (`image-damaged`)                                 |
| 32-bit grey, float, Lab                   | refused (`image-mode`)                                    |
| anything else                             | refused (`image-unreadable`)                              |
"""

import base64
import binascii
import contextlib
import io
import os
import struct
import threading
import warnings
from pathlib import Path
from typing import IO
from urllib.parse import unquote_to_bytes

from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

# Readers that take part; Pillow's others start helper programs (EPS) or are not pictures people send.
# (MPO, several JPEGs in one file, is read by the JPEG reader.)
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_PIXELS = 64 * 2**20
MAX_ASPECT = 200
# Decoding takes several copies of a picture; those above this are decoded one at a time.
LARGE_PIXELS = 8 * 2**20
MAX_PIXELS_VARIABLE = "ASCEND_VL_MAX_IMAGE_PIXELS"

_LARGE = threading.Lock()
_TRANSPARENT = ("RGBA", "RGBa", "LA", "La", "PA")
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_DAMAGED = (OSError, SyntaxError, EOFError, ValueError, IndexError, TypeError, KeyError, struct.error, OverflowError)


class ImageRefused(AscendVLError, ValueError):
    """A picture that is not taken. Also a ValueError, which vLLM's server answers with status 400."""


def load_image(source: bytes | str | Path) -> Image.Image:
    """The picture as PIL RGB. `source` is the file's bytes, a path, or a `data:` URL.

    Raises ImageRefused with code `image-not-found`, `image-unreadable`, `image-damaged`, `image-too-large`,
    `image-aspect` or `image-mode`; its texts hold no path and no address but the path the caller gave.
    """
    if isinstance(source, bytes):
        return decode(source)
    if isinstance(source, str) and source[:5].lower() == "data:":
        return decode(read_data_url(source))
    if isinstance(source, str) and "://" in source[:10]:
        raise ImageRefused(
            "image-not-found",
            Text(f"{source} is an address, not a file.", f"{source} 是网址，不是文件。"),
            Text("Pictures are read from files and data: URLs.", "图片只从文件或 data: URL 读取。"),
            Text("Download it and give its path.", "请先下载，再给出文件路径。"),
        )
    return decode(read_file(Path(source)))


def read_file(path: Path) -> bytes:
    """The bytes of an image file. Raises ImageRefused `image-not-found`."""
    try:
        return path.expanduser().read_bytes()
    except RuntimeError:
        # A home directory that nobody has.
        raise _not_found(path, Text("There is no such user.", "没有该用户。")) from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None)
        raise _not_found(path, Text(f"{said or 'It is not a file'}.", f"{said or '它不是文件'}。")) from None


def _not_found(path: Path, why: Text) -> ImageRefused:
    return ImageRefused(
        "image-not-found",
        Text(f"{path} cannot be read.", f"无法读取 {path}。"),
        why,
        Text("Give the path of an image file.", "请给出图片文件的路径。"),
    )


def read_data_url(url: str) -> bytes:
    """The bytes in `data:[type][;base64],DATA` (RFC 2397). Raises ImageRefused `image-unreadable`."""
    header, comma, data = url[5:].partition(",")
    try:
        if not comma:
            raise ValueError
        if header.lower().endswith(";base64"):
            # People paste base64 with line breaks.
            return base64.b64decode(b"".join(unquote_to_bytes(data).split()), validate=True)
        return unquote_to_bytes(data)
    except (ValueError, binascii.Error):
        raise _unreadable(
            Text("The data URL is not valid base64 after a comma.", "data URL 的逗号之后不是有效的 base64。")
        ) from None


def decode(data: bytes) -> Image.Image:
    """Bytes of a picture file -> PIL RGB; see load_image."""
    with warnings.catch_warnings():
        # Pillow warns of large pictures and odd EXIF; the limits here are our own.
        warnings.simplefilter("ignore")
        picture = _open(data)
        _check_size(*picture.size)
        with _LARGE if picture.width * picture.height > LARGE_PIXELS else contextlib.nullcontext():
            try:
                picture.load()
            except _DAMAGED:
                raise _damaged() from None
            plain = _rgb(_upright(picture))
    # EXIF and comments have no say any more, neither in a cache key nor by being unreadable.
    plain.info = {}
    return plain


def _open(data: bytes) -> ImageFile.ImageFile:
    """The header only; nothing is decoded yet."""
    stream: IO[bytes] = io.BytesIO(data)
    try:
        return Image.open(stream, formats=FORMATS)
    except Image.DecompressionBombError:
        raise _too_large(Text("It is far beyond it.", "远超限制。")) from None
    except UnidentifiedImageError:
        known = data[:16].startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*"))
        if known or data[8:12] == b"WEBP":
            raise _damaged() from None
        raise _unreadable(
            Text("It is none of PNG, JPEG, WebP, GIF, BMP, TIFF.", "它不是 PNG、JPEG、WebP、GIF、BMP 或 TIFF。")
        ) from None
    except _DAMAGED:
        raise _damaged() from None


def max_pixels() -> int:
    """The limit in force. Raises AscendVLError `setting-invalid` for a variable that is no positive number."""
    text = os.environ.get(MAX_PIXELS_VARIABLE) or str(MAX_PIXELS)
    if not text.isdecimal() or int(text) < 1:
        raise AscendVLError(
            "setting-invalid",
            Text(f"{MAX_PIXELS_VARIABLE}={text} cannot be used.", f"{MAX_PIXELS_VARIABLE}={text} 无效。"),
            Text("It must be a number of pixels, 1 or more.", "必须是像素数，且不小于 1。"),
            Text(f"Correct it or unset it (then {MAX_PIXELS}).", f"请改正或取消设置（默认 {MAX_PIXELS}）。"),
        )
    return int(text)


def _check_size(width: int, height: int) -> None:
    limit = max_pixels()
    if width * height > limit:
        raise _too_large(Text(f"It is {width} × {height}.", f"它是 {width} × {height}。"), limit)
    if width < 1 or height < 1:
        raise _damaged()
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ImageRefused(
            "image-aspect",
            Text(f"The picture is {width} × {height}.", f"图片尺寸为 {width} × {height}。"),
            Text(
                f"The model takes sides up to {MAX_ASPECT} : 1.",
                f"模型只接受长宽比不超过 {MAX_ASPECT} : 1 的图片。",
            ),
            Text("Cut it into pieces.", "请将其切成几块。"),
        )


def _upright(picture: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(picture) or picture
    except _DAMAGED:
        return picture


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode in _SIXTEEN_BITS or (picture.mode == "I" and _within_sixteen_bits(picture)):
        return _eight_bits(picture).convert("RGB")
    if picture.mode in _TRANSPARENT or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    if picture.mode not in ("RGB", "L", "P", "1", "CMYK", "YCbCr", "RGBX", "HSV"):
        raise ImageRefused(
            "image-mode",
            Text(f"The picture's pixels are of kind {picture.mode}.", f"图片的像素类型为 {picture.mode}。"),
            Text("There is no agreed way to show them in 8-bit RGB.", "没有公认的方式将其转换为 8 位 RGB。"),
            Text("Convert it to an 8-bit PNG first.", "请先转换为 8 位 PNG。"),
        )
    return picture.convert("RGB")


def _within_sixteen_bits(picture: Image.Image) -> bool:
    """Older Pillow opens 16-bit grey as 32-bit integers."""
    low, high = picture.getextrema()
    return isinstance(low, (int, float)) and isinstance(high, (int, float)) and low >= 0 and high <= 65535


def _eight_bits(picture: Image.Image) -> Image.Image:
    """16-bit grey, 0..65535 -> 8-bit grey, rounded."""
    import numpy as np

    values = np.asarray(picture).astype(np.uint32).clip(0, 65535)
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


def _unreadable(why: Text) -> ImageRefused:
    return ImageRefused(
        "image-unreadable",
        Text("This is not a picture that can be read.", "这不是可读取的图片。"),
        why,
        Text("Send a PNG or a JPEG.", "请发送 PNG 或 JPEG。"),
    )


def _damaged() -> ImageRefused:
    return ImageRefused(
        "image-damaged",
        Text("The picture is damaged or cut off.", "图片已损坏或不完整。"),
        Text("Its file ends or breaks before all pixels are there.", "文件在全部像素读出之前就结束或出错。"),
        Text("Send the whole file again.", "请重新发送完整的文件。"),
    )


def _too_large(what: Text, limit: int = MAX_PIXELS) -> ImageRefused:
    return ImageRefused(
        "image-too-large",
        Text(f"The picture has too many pixels. {what.en}", f"图片像素过多。{what.zh}"),
        Text(
            f"The limit is {limit} pixels; the model sees at most 16.8 million.",
            f"上限为 {limit} 像素；模型最多使用约 1680 万像素。",
        ),
        Text(f"Scale it down, or raise {MAX_PIXELS_VARIABLE}.", f"请缩小图片，或提高 {MAX_PIXELS_VARIABLE}。"),
    )
