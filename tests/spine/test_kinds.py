"""A content is one member of a closed union, and its tag says which."""

from typing import get_args

import msgspec
import pytest

from gesta.kinds import Content, Kind, ToolCallContent, UserContent


def test_each_kind_has_one_content_and_each_content_a_kind() -> None:
    assert sorted(each.kind for each in get_args(Content)) == sorted(Kind)


@pytest.mark.parametrize("content", get_args(Content))
def test_a_content_is_frozen_and_every_content_has_room_for_its_users_words(content: type) -> None:
    assert content.__struct_config__.frozen  # type: ignore[attr-defined]
    assert "extra" in content.__struct_fields__  # type: ignore[attr-defined]


def test_the_tag_decides_what_is_read_and_an_unknown_tag_is_refused() -> None:
    written = msgspec.json.encode(UserContent(value="hi"))
    assert msgspec.json.decode(written, type=Content) == UserContent(value="hi")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"kind":"nothing"}', type=Content)


def test_two_contents_with_the_same_fields_are_equal() -> None:
    one, other = (ToolCallContent(tool_name="look", tool_args={"x": 1}) for _ in range(2))
    assert one == other
