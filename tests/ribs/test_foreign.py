"""What importers share: members that are taken one by one, and digests of what a document says."""

import json
import math
from collections import Counter
from hashlib import sha256
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gesta.importers.foreign import Members, digest_json, identical

NUMBERS = (
    st.sampled_from([0.0, -0.0, 1e-4, 9.9e-5, 1e16, 9999999999999998.0, 2**63, 2**64, -(2**70), 0xCB])
    | st.integers()
    | st.floats()
)
TEXTS = st.text(st.characters(max_codepoint=0x7F)) | st.text(
    st.sampled_from(["a", "\x7f", "\x00", "\n", '"', "\\", "é", "😀", "\ud800"])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@given(VALUES)
def test_a_digest_is_that_of_the_text_that_python_writes_with_sorted_keys(value: Any) -> None:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert digest_json(value) == sha256(text.encode()).hexdigest()


@given(VALUES, VALUES)
def test_values_are_identical_if_their_digests_are(one: Any, other: Any) -> None:
    for left, right in (
        (one, other),
        (one, one),
        ([one], [math.nan]),
        ([None], [math.nan]),
        ([1], [1.0]),
        ([1], [True]),
    ):
        assert identical(left, right) == (digest_json(left) == digest_json(right))


def test_a_member_of_another_type_stays_and_is_counted() -> None:
    oddities: Counter[str] = Counter()
    members = Members({"a": 1, "b": None, "c": "x"}, oddities)
    assert (members.take("a", str), members.take("b", str), members.take("c", str)) == (None, None, "x")
    assert (members.rest(), oddities) == ({"a": 1}, {"wrong-type": 1})
