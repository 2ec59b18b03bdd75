"""Makes every character of a text visible to a person, even if it is invisible or looks like another character.

`visible` writes a mark such as `<U+202E>` in place of a character that is invisible, controls a terminal, or reverses
text. It also marks a character that only looks like an ordinary letter or digit, such as a Cyrillic letter in a Latin
word or a mathematical letter. `remarks` describes these characters in words.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc\U00016fe4\U0001d159"
    "\U000e0000-\U000e0fff]"
)
"""Characters that show nothing, although Unicode classifies them as letters, marks or symbols."""
UNSEEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs")
CJK = ("BOPOMOFO", "CJK", "HALFWIDTH", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA", "KATAKANA-HIRAGANA")
"""Scripts whose letters look unlike Latin letters. Ordinary words mix them with Latin letters."""
LOOKS_LATIN = {
    "CYRILLIC": "абеорсухіјѕһԁԛԝӏьАВЕКМНОРСТУХІЈЅҺԚԜӀЬԍг",
    "GREEK": "ικνουΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ",
    "ARMENIAN": "ագհյոսցօՏՍՕԼ",
    "CHEROKEE": "".join(map(chr, range(0x13A0, 0x13F6))),
}
"""Letters that most typefaces draw like a Latin letter, or nearly so."""


def visible(text: str) -> str:
    """Return a text with a mark in place of each character that is invisible or looks like another one."""
    if text.isascii() and text.isprintable():
        return text
    strange = _strange(text)
    return "".join(
        f"<U+{ord(sign):04X}>" if place in strange or unseen(sign) else sign for place, sign in enumerate(text)
    )


def visible_value(value: Any) -> Any:
    """Return a JSON value with `visible` applied to each text and key.

    The value must not be cyclic or deeply nested.
    """
    match value:
        case str():
            return visible(value)
        case dict():
            return {visible(str(key)): visible_value(each) for key, each in value.items()}
        case list() | tuple():
            return [visible_value(each) for each in value]
        case _:
            return value


def remarks(value: Any) -> list[str]:
    """Return warnings about strange characters in a value that a person has to approve. No warning is repeated."""
    found: dict[str, None] = {}
    for text in _texts(value):
        for word in _words(text):
            scripts = sorted({script for _, sign in word if (script := _script(sign)) is not None})
            if len(scripts) > 1:
                shown = visible("".join(sign for _, sign in word))
                found[f"{shown!r} has letters of several scripts: {', '.join(scripts)}."] = None
        if any(map(_copies, text)) or _lookalike_scripts(text) or any(map(_odd_digits, _words(text))):
            found["Some letters or digits look like ordinary ones and are others: <U+...> stands for each."] = None
        if any(map(unseen, text)):
            found["Some characters cannot be seen, or turn text around: <U+...> stands for each."] = None
        if any(unicodedata.bidirectional(sign) in ("R", "AL", "AN") for sign in text):
            found["Some text is written from right to left, so what stands beside it may be shown out of order."] = None
    return list(found)


def unseen(sign: str) -> bool:
    """Return whether a character is invisible or controls a terminal; `False` for space, line feed and tab."""
    if sign in " \n\t":
        return False
    return unicodedata.category(sign) in UNSEEN or BLANK.match(sign) is not None


def _strange(text: str) -> set[int]:
    """Return the indexes of letters and digits that look like other characters."""
    alike = _lookalike_scripts(text)
    strange = {place for place, sign in enumerate(text) if _copies(sign) or _script(sign) in alike}
    for word in _words(text):
        strange.update(_odd_digits(word))
        scripts = Counter(script for _, sign in word if (script := _script(sign)) not in (None, *alike))
        if len(scripts) > 1:
            main = max(scripts, key=lambda script: (scripts[script], script == "LATIN"))
            strange |= {place for place, sign in word if _script(sign) not in (main, None)}
    return strange


def _odd_digits(word: list[tuple[int, str]]) -> list[int]:
    """Return the indexes of a word's digits that are not ASCII, if the word also has ASCII digits."""
    digits = [(place, sign) for place, sign in word if sign.isdecimal()]
    odd = [place for place, sign in digits if not sign.isascii()]
    return odd if len(odd) < len(digits) else []


def _words(text: str) -> Iterator[list[tuple[int, str]]]:
    """Yield the words of a text, as pairs of index and character.

    Accents and invisible characters do not end a word.
    """
    for inside, signs in groupby(enumerate(text), key=lambda each: _joins(each[1])):
        if inside:
            yield list(signs)


def _joins(sign: str) -> bool:
    return sign.isalnum() or (not sign.isascii() and (unicodedata.category(sign)[0] == "M" or unseen(sign)))


def _script(sign: str) -> str | None:
    """Return the script of a letter, or of a digit that is not ASCII; `None` if the character fits any script."""
    if sign.isascii():
        return "LATIN" if sign.isalpha() else None
    if not sign.isalpha() and not sign.isdecimal():
        return None
    name = unicodedata.name(sign, "")
    first = name.partition(" ")[0]
    return None if first in CJK or not ("LETTER" in name or "DIGIT" in name) or first == "MODIFIER" else first


def _lookalike_scripts(text: str) -> set[str]:
    """Return the scripts, such as Cyrillic, whose letters in this text all look like Latin letters."""
    if text.isascii():
        return set()
    letters: dict[str, set[str]] = {}
    for sign in text:
        if (script := _script(sign)) in LOOKS_LATIN:
            letters.setdefault(str(script), set()).add(sign)
    return {script for script, signs in letters.items() if signs <= set(LOOKS_LATIN[script])}


def _copies(sign: str) -> bool:
    """Return whether a character is a variant of an ASCII letter or digit, such as a mathematical one."""
    if sign.isascii() or not (unicodedata.category(sign) in ("Lu", "Ll") or sign.isdecimal()):
        return False
    plain = unicodedata.normalize("NFKC", sign)
    return plain.isascii() and plain.isalnum()


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, each in value.items():
                yield str(key)
                yield from _texts(each)
        case list() | tuple():
            for each in value:
                yield from _texts(each)


def call_text(name: str, args: dict[str, Any]) -> str:
    """Return a call in the form of Python, `weather(city="Rome")`, with every character made visible."""
    written = (f"{key}={json_text(value)}" for key, value in visible_value(args).items())
    return f"{visible(name)}({', '.join(written)})"


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON text. The characters of its texts must be visible already; see `visible_value`."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=lambda each: visible(str(each)))
