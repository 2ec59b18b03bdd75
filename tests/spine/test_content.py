"""Tags never change: they stand in every record."""

from gesta import content, kinds
from gesta.content import Kind


def test_a_kind_is_its_tag_and_says_what_it_is() -> None:
    assert str(Kind.ToolCall) == "tool-call"
    assert all(each.__doc__ for each in Kind)
    assert len({each.value for each in Kind}) == len(Kind)


def test_the_values_are_handed_on_by_the_kinds() -> None:
    for name in ("Kind", "Error", "Part", "Step", "Hit"):
        assert getattr(kinds, name) is getattr(content, name)
