"""A message is what a model reads, free of any provider's form."""

from pathlib import Path

import pytest

from gesta.errors import AgentError
from gesta.kinds import Part
from gesta.message import attached, part_text


def test_a_file_is_what_its_bytes_say_where_its_name_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "scan"
    file.write_bytes(b"%PDF-1.7 ...")
    assert attached(str(file)).media_type == "application/pdf"
    file.write_bytes(b"plain words")
    assert (attached(str(file)).type, attached(str(file)).media_type) == ("file", "text/plain")


def test_a_file_that_nobody_can_name_is_refused_with_what_to_write(tmp_path: Path) -> None:
    file = tmp_path / "noise"
    file.write_bytes(b"\x00\xff\x00")
    with pytest.raises(AgentError, match="media_type="):
        attached(str(file))


def test_a_part_in_words_is_its_text_or_what_is_known_of_it_and_never_its_bytes() -> None:
    assert part_text(Part(type="text", text="hello")) == "hello"
    image = Part(type="image", data=b"....", media_type="image/png", name="cat.png")
    assert part_text(image) == "[image 'cat.png', image/png]"
    assert part_text(Part(type="image", url="data:image/png;base64,AAAA")) == "[image 'without a name', type unknown]"
