"""Every number, date, time and amount in a text, English or Chinese, as exact values in order of appearance.

A value is a decimal, never a float. `1,024.50`, `1024.5` and `1024.50` are the same number; `007` is a code and not 7;
`1.5万` is 15000; a unit belongs to its number (`5 kg` is not `5 g`, `¥5` is `5元`).
"""

import re
import unicodedata
from decimal import Decimal
from typing import NamedTuple


class Quantity(NamedTuple):
    """One value found in a text: what it is, the value written one way, its unit written one way ('' for none)."""

    kind: str
    value: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.value} {self.unit}".strip()


_MONTH_NAMES = """January|Jan February|Feb March|Mar April|Apr May June|Jun July|Jul August|Aug September|Sept|Sep
    October|Oct November|Nov December|Dec"""
_MONTHS = {name: i for i, names in enumerate(_MONTH_NAMES.split(), 1) for name in names.split("|")}
_UNIT_SPELLINGS = {
    "%": "% percent per\\s+cent",
    "‰": "‰",
    "kg": "kg kilograms? 千克 公斤",
    "mg": "mg milligrams? 毫克",
    "g": "g grams? 克",
    "t": "t tons? tonnes? 吨",
    "lb": "lbs? pounds? 磅",
    "km": "km kilomet(?:er|re)s? 千米 公里",
    "cm": "cm centimet(?:er|re)s? 厘米",
    "mm": "mm millimet(?:er|re)s? 毫米",
    "m": "m met(?:er|re)s? 米",
    "ml": "ml mL millilit(?:er|re)s? 毫升",
    "l": "l L lit(?:er|re)s? 升",
    "h": "h hours? 小时",
    "ms": "ms milliseconds? 毫秒",
    "min": "min minutes? 分钟",
    "s": "s secs? seconds? 秒",
    "day": "days? 天",
    "°C": "°C 摄氏度",
    "°F": "°F 华氏度",
    "°": "° degrees? 度",
    "px": "px pixels? 像素",
    "kW": "kW 千瓦",
    "W": "W watts? 瓦",
    "V": "V volts? 伏",
    "Hz": "Hz",
    "TB": "TB",
    "GB": "GB",
    "MB": "MB",
    "KB": "KB kB",
    "GiB": "GiB",
    "MiB": "MiB",
    "USD": "USD (?:US\\s+)?dollars? 美元",
    "CNY": "CNY RMB yuan 人民币 元",
    "EUR": "EUR euros? 欧元 €",
    "GBP": "GBP 英镑",
    "JPY": "JPY yen 日元",
    "HKD": "HKD 港元 港币",
}
_SPELLING = {spelling: unit for unit, line in _UNIT_SPELLINGS.items() for spelling in line.split()}
_CURRENCY_SIGNS = {"$": "USD", "US$": "USD", "HK$": "HKD", "¥": "CNY", "€": "EUR", "£": "GBP"}
_UNIT = re.compile(
    r"\s?(?:" + "|".join(f"(?P<u{i}>{s})" for i, s in enumerate(sorted(_SPELLING, key=len, reverse=True))) + r")"
)
_UNIT_BY_GROUP = {f"u{i}": _SPELLING[s] for i, s in enumerate(sorted(_SPELLING, key=len, reverse=True))}
_UNIT_STARTS = {" ", "\t", "\n", "\u2009", "\xa0"} | {s.lstrip("(?:\\")[0] for s in _SPELLING}

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ZH_SCALES = {"百": 10**2, "千": 10**3, "万": 10**4, "亿": 10**8}
_SCALE = re.compile(
    r"\s+(thousand|million|billion|trillion)\b|\s?([百千]?万亿|[百千十]?[万亿]|[百千])(?![克米瓦分])", re.I
)

_ZH_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_ZH = "零〇一二两三四五六七八九十百千万亿"
# A single Chinese numeral is a number only before one of these ('三个' is 3, '三角形' is a triangle).
_MEASURES = (
    "个張张只条块元年月日号点分秒次位名件种本页台辆头匹颗棵朵座栋层间片根支枝杯瓶碗盒箱包袋组对双套行列排章节"
    "岁度米克斤吨升里天周人倍%"
)
_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {w: i for i, w in enumerate(_SMALL.split())} | {w: 10 * i for i, w in enumerate(_TENS.split(), 2)}
_WORD = "|".join(sorted([*_WORDS, "hundred", *_SCALES], key=len, reverse=True))
_MONTH = "|".join(sorted([*_MONTHS, *(m.upper() for m in _MONTHS)], key=len, reverse=True))
_Z = rf"[\d{_ZH}]"

_TOKEN = re.compile(
    # The look-ahead only saves trying every alternative at characters where none can begin.
    rf"""
    (?=[-+$¥€£\d第{_ZH}]|(?<!\w)[zotfsenhmbZOTFSENHMBJADU])(?:
    (?P<iso>(?<![\d.])(?P<iy>\d{{4}})(?P<isep>[-/.])(?P<im>0?[1-9]|1[0-2])(?P=isep)(?P<id>[12]\d|3[01]|0?[1-9])(?!\d|\.\d))
  | (?P<zhdate>(?:(?P<zy>\d{{4}}|[〇零一二三四五六七八九]{{4}})\s*年\s*)(?P<zm>{_Z}{{1,3}})\s*月
      (?:\s*(?P<zd>{_Z}{{1,3}})\s*[日号]?)?
      |(?P<zm2>{_Z}{{1,3}})\s*月\s*(?P<zd2>{_Z}{{1,3}})\s*[日号])
  | (?P<mdy>\b(?P<mm>{_MONTH})\b\.?\s+
      (?:(?P<md>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,?\s+(?P<my>\d{{4}})(?!\d))?|(?P<myo>\d{{4}})(?!\d)))
  | (?P<dmy>(?<![\d.,])(?P<dd>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<dm>{_MONTH})\b\.?
      (?:,?\s+(?P<dy>\d{{4}})(?!\d))?)
  | (?P<slash>(?<![\d/])\d{{1,2}}/\d{{1,2}}/(?:\d{{4}}|\d{{2}})(?![\d/]))
  | (?P<time>(?<![\d:])(?P<th>\d{{1,2}}):(?P<tm>[0-5]\d)(?::(?P<ts>[0-5]\d))?(?!\d)(?:\s?(?P<ampm>[apAP]\.?[mM]\b\.?))?)
  | (?P<zhpercent>百分之(?P<zp>{_Z}+(?:\.\d+)?))
  | (?P<version>(?<![\d.])\d+(?:\.\d+){{2,}}(?!\.?\d))
  | (?P<number>(?P<sign>(?<![\w.)])[-+](?=[\d$¥€£UH]))?(?:(?P<cur>US\$|HK\$|[$¥€£])\s?)?(?P<sign2>(?<=[$¥€£])-)?
      (?P<digits>\d{{1,3}}(?:,\d{{3}})+(?!\d)(?:\.\d+)?|\d{{1,3}}(?:\.\d{{3}})+,\d+|\d+(?:\.\d+)?(?:[eE][+-]?\d+(?![\w]))?))
  | (?P<zh>第?[{_ZH}]+)
  | (?P<words>(?i:\b(?:{_WORD})(?:(?:\s+and\s+|[\s-]+)(?:{_WORD}))*\b)))
    """,
    re.VERBOSE,
)


def quantities(text: str) -> list[Quantity]:
    """All quantities of `text` in order of appearance."""
    text = unicodedata.normalize("NFKC", re.sub(r"(?<=\d)(?=[¼-¾⅐-⅞])", " ", text)).replace("−", "-")
    found: list[Quantity] = []
    position = 0
    while match := _TOKEN.search(text, position):
        position = match.end()
        if match["number"]:
            quantity, position = _number(match, text)
            found.append(quantity)
        elif match["zh"]:
            chinese, position = _chinese_number(match, text)
            found.extend(chinese)
        elif match["words"]:
            values = _word_values(match["words"].lower())
            unit, position = _unit(text, match.end())
            found += [Quantity("number", _plain(v)) for v in values[:-1]]
            found.append(Quantity("number", _plain(values[-1]), unit))
        else:
            found.append(_dated(match))
    return found


def same_quantities(a: str, b: str) -> bool:
    """Whether two texts state the same quantities in the same order."""
    return quantities(a) == quantities(b)


def _dated(match: re.Match[str]) -> Quantity:
    group = match.groupdict()
    if group["iso"]:
        return _date(group["iy"], group["im"], group["id"])
    if group["zhdate"]:
        year, month, day = group["zy"], group["zm"] or group["zm2"], group["zd"] or group["zd2"]
        return _date(_zh_int(year), _zh_int(month), _zh_int(day))
    if group["mdy"]:
        return _date(group["my"] or group["myo"], _month(group["mm"]), group["md"])
    if group["dmy"]:
        return _date(group["dy"], _month(group["dm"]), group["dd"])
    if group["slash"]:
        # 05/06/2024 is May in one country and June in another: kept as written.
        return Quantity("date", "/".join(str(int(part)) for part in group["slash"].split("/")))
    if group["time"]:
        return _time(group)
    if group["zhpercent"]:
        return Quantity("number", _plain(Decimal(_zh_int(group["zp"]) or "0")), "%")
    return Quantity("code", group["version"])


def _date(year: object, month: object, day: object) -> Quantity:
    y = f"{int(str(year)):04d}" if year else "----"
    return Quantity("date", f"{y}-{int(str(month)):02d}" + (f"-{int(str(day)):02d}" if day else ""))


def _month(name: str) -> int:
    return _MONTHS[name.capitalize()]


def _time(group: dict[str, str | None]) -> Quantity:
    hour, half = int(group["th"] or 0), (group["ampm"] or "").lower()[:1]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return Quantity("time", f"{hour:02d}:{group['tm']}:{group['ts'] or '00'}")


def _number(match: re.Match[str], text: str) -> tuple[Quantity, int]:
    digits, end = match["digits"], match.end()
    negative = "-" in (match["sign"] or "") + (match["sign2"] or "")
    currency = _CURRENCY_SIGNS.get((match["cur"] or "").upper(), "")
    if digits[0] == "0" and len(digits) > 1 and digits.isdigit():
        return Quantity("code", digits), end
    if 0 < digits.find(".") < digits.find(","):
        digits = digits.replace(".", "").replace(",", ".")
    value = Decimal(digits.replace(",", ""))
    if scale := _SCALE.match(text, end):
        value *= _scale(scale)
        end = scale.end()
    unit, end = _unit(text, end)
    return Quantity("number", _plain(-value if negative else value), currency or unit), end


def _scale(match: re.Match[str]) -> int:
    if match[1]:
        return _SCALES[match[1].lower()]
    product = 1
    for character in match[2]:
        product *= {"十": 10}.get(character) or _ZH_SCALES[character]
    return product


def _unit(text: str, position: int) -> tuple[str, int]:
    if text[position : position + 1] not in _UNIT_STARTS:
        return "", position
    match = _UNIT.match(text, position)
    if not match or not match.lastgroup:
        return "", position
    last = match.group()[-1]
    if last.isascii() and last.isalpha() and text[match.end() : match.end() + 1].isascii():
        following = text[match.end() : match.end() + 1]
        if following.isalnum() or following == "_":
            return "", position
    return _UNIT_BY_GROUP[match.lastgroup], match.end()


def _chinese_number(match: re.Match[str], text: str) -> tuple[list[Quantity], int]:
    written, end = match["zh"], match.end()
    ordinal, numeral = written.startswith("第"), written.removeprefix("第")
    following = text[end : end + 1]
    if numeral == "十" and following == "分" and text[end + 1 : end + 2] not in ("钟", "之"):
        return [], end
    value = _zh_value(numeral)
    if value is None or (len(numeral) == 1 and not ordinal and (following not in _MEASURES or not following)):
        return [], end
    unit, end = _unit(text, end)
    return [Quantity("number", _plain(Decimal(value)), unit)], end


def _zh_value(numeral: str) -> int | None:
    """A Chinese numeral's value, or None when the characters are not one (万一, 千万)."""
    if not numeral or not any(c in _ZH_DIGITS or c == "十" for c in numeral) or numeral[0] in "百千万亿":
        return None
    if all(c in _ZH_DIGITS for c in numeral):
        return int("".join(str(_ZH_DIGITS[c]) for c in numeral))
    total = section = digit = 0
    for character in numeral:
        if character in _ZH_DIGITS:
            digit = _ZH_DIGITS[character]
        elif character in "十百千":
            section += (digit or (1 if character == "十" else 0)) * {"十": 10, "百": 100, "千": 1000}[character]
            digit = 0
        else:
            total = (total + section + digit) * _ZH_SCALES[character]
            section = digit = 0
    return total + section + digit


def _zh_int(written: str | None) -> str | None:
    if not written:
        return None
    if re.fullmatch(r"\d+(?:\.\d+)?", written):
        return written
    value = _zh_value(written)
    return str(value) if value is not None else None


def _word_values(words: str) -> list[Decimal]:
    """English number words as values; 'one two' is two numbers, 'twenty-one' is one."""
    values: list[int] = []
    total = current = 0
    size = None  # magnitude of the last word: 1 unit or teen, 10 tens, 100, 1000 ...
    for word in re.split(r"[\s-]+", words):
        if word == "and":
            continue
        if word in _SCALES:
            total, current, size = total + (current or 1) * _SCALES[word], 0, _SCALES[word]
        elif word == "hundred":
            current, size = (current or 1) * 100, 100
        else:
            value = _WORDS[word]
            fits = size is None or size >= 100 or (size == 10 and 0 < value < 10)
            if not fits:
                values.append(total + current)
                total = current = 0
            current += value
            size = 10 if value >= 20 else 1
    return [Decimal(v) for v in [*values, total + current]]


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
