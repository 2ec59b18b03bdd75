"""What a person decides about is seen for what it is, character by character."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.text.visible import remarks, unseen, visible, visible_value

HARD = st.sampled_from("\u202e\u200b\ufeff\xad\u2066\x1b\x07\r\x85\u2028\u3164\u2800\ufe0f\U000e0041\xa0\u034f\ud800")
MIXED = st.text(st.one_of(HARD, st.characters(), st.sampled_from("аеорсуabcАВС0৪ｐ𝐩 -_.ש5ﷺ́"))) | st.text(HARD)


@given(MIXED)
def test_nothing_is_shown_that_cannot_be_seen(text: str) -> None:
    shown = visible(text)
    for sign in shown:
        assert not unseen(sign)
        assert sign in "\n\t " or unicodedata.category(sign) not in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs")
    assert visible(shown) == shown or "<U+" in shown


@given(MIXED)
def test_no_word_that_is_shown_mixes_scripts_and_nothing_is_left_out(text: str) -> None:
    shown = visible(text)
    plain = [sign for sign in shown if sign in text]
    kept = [sign for sign in text if f"<U+{ord(sign):04X}>" in shown or sign in plain]
    assert "".join(kept) == text
    assert not any("several scripts" in remark for remark in remarks(shown))


@given(st.text(st.characters(max_codepoint=126, min_codepoint=32)))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert remarks(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "naïve café, Ærø",
        "Привет, мир",
        "使用Python编程 Tシャツ",
        "한국어 test",
        "Ελλάδα και αγάπη",
        "m² 5µm 1ª",
        "e\u0301",
        "line\n\ttab",
    ],
)
def test_the_texts_of_many_languages_stay_as_they_are(text: str) -> None:
    assert visible(text) == text
    assert remarks(text) == []


@pytest.mark.parametrize(
    ("text", "shown", "remark"),
    [
        ("p\u0430ypal", "p<U+0430>ypal", "'p<U+0430>ypal' has letters of several scripts: CYRILLIC, LATIN."),
        ("\u0441\u043e\u0441\u043e@x.com", "<U+0441><U+043E><U+0441><U+043E>@x.com", "look like ordinary ones"),
        ("ﬁne ｐａｙ 𝐩", "<U+FB01>ne <U+FF50><U+FF41><U+FF59> <U+1D429>", "look like ordinary ones"),
        ("12৪4", "12<U+09EA>4", "look like ordinary ones"),
        ("a\u202eb\u200b", "a<U+202E>b<U+200B>", "cannot be seen, or turn text around"),
        ("\x1b[31m\r", "<U+001B>[31m<U+000D>", "cannot be seen"),
        ("p\u200d\u0430y", "p<U+200D><U+0430>y", "several scripts"),
        ("pay\xa0now\u3000", "pay<U+00A0>now<U+3000>", "cannot be seen"),
        ("\u05e9\u05dc\u05d5\u05dd 5", "\u05e9\u05dc\u05d5\u05dd 5", "written from right to left"),
        ("\ud800", "<U+D800>", "cannot be seen"),
    ],
)
def test_what_is_not_what_it_looks_like_is_marked_and_said(text: str, shown: str, remark: str) -> None:
    assert visible(text) == shown
    assert remark in " ".join(remarks({"to": [text]}))


def test_a_value_is_shown_with_its_keys_and_stays_json() -> None:
    value: Any = {"t\u200bo": ["\u0430bc", {"n": 5, "x": None}], "y": True}
    assert visible_value(value) == {"t<U+200B>o": ["<U+0430>bc", {"n": 5, "x": None}], "y": True}
    json.dumps(visible_value(value))
    assert len(remarks(value)) == 3
