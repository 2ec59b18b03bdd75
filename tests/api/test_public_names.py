"""What users and their records rely on is what the committed file says: names of `gesta`, tags and fields on disk.

A line that disappears or changes breaks programs or old records; one that is new is for ever. Written anew by
`python -m tests.api.test_public_names > tests/api/public_names.txt`, once that was decided.
"""

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import gesta
from gesta import content, kinds

COMMITTED = Path(__file__).with_name("public_names.txt")
TREE = [
    node
    for module in (content, kinds)
    for node in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
]


def names() -> Iterator[str]:
    """Write the exported names."""
    yield "# Names of gesta"
    yield from (f"gesta.{name}" for name in sorted(gesta.__all__))


def aliases() -> Iterator[str]:
    """Write what names of types in the fields below stand for."""
    for node in TREE:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value):
                yield f"{name} = {ast.unparse(value)}"


def fields() -> Iterator[str]:
    """Write every field that is on disk: with its type as it stands in the source, and with its default, if any."""
    written: dict[str, list[str]] = {}
    for node in TREE:
        if not isinstance(node, ast.ClassDef) or not any(
            isinstance(base, ast.Name) and base.id in {"Struct", "Base"} for base in node.bases
        ):
            continue
        own = [each for each in node.body if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each)]
        shared = written.get("Base", []) if any(ast.unparse(base) == "Base" for base in node.bases) else []
        written[node.name] = [*(ast.unparse(each) for each in own), *shared]
        if node.name != "Base":
            tag = getattr(kinds, node.name).__struct_config__.tag
            yield from (f"{tag or node.name}.{line}" for line in written[node.name])


def found() -> list[str]:
    """Write all of it."""
    return [*names(), "", "# Types on disk", *aliases(), "", "# Kinds and their parts on disk", *sorted(fields())]


def test_the_names_and_fields_are_those_of_the_committed_file():
    committed = COMMITTED.read_text(encoding="utf-8").splitlines()
    changed = [
        line
        for line in difflib.unified_diff(committed, found(), lineterm="", n=0)
        if line[:3] not in {"---", "+++"} and line[:2] != "@@"
    ]
    assert not changed, "\n".join(changed)


def test_every_exported_name_is_there_and_listed():
    assert [name for name in gesta.__all__ if not hasattr(gesta, name)] == []
    assert sorted(dir(gesta)) == sorted(gesta.__all__)


def test_a_misspelt_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError) as found:
        _ = gesta.Agnt
    assert str(found.value) == "module 'gesta' has no attribute 'Agnt'. Did you mean 'Agent'?"
    with pytest.raises(AttributeError) as found:
        _ = gesta.__wrapped__
    assert str(found.value) == "module 'gesta' has no attribute '__wrapped__'"


def test_the_fields_are_those_that_are_written_and_every_kind_is_among_them():
    """The source is only read; what msgspec makes of it is what stands on disk."""
    written: dict[str, set[str]] = {}
    for line in fields():
        tag, _, rest = line.partition(".")
        written.setdefault(tag, set()).add(rest.partition(":")[0])
    structs = [each for each in vars(kinds).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    ours = [
        each for each in structs if each.__module__ in (content.__name__, kinds.__name__) and each is not kinds.Base
    ]
    assert written == {
        str(each.__struct_config__.tag or each.__name__): {one.encode_name for one in msgspec.structs.fields(each)}
        for each in ours
    }
    assert set(written) >= {kind.value for kind in kinds.Kind}


if __name__ == "__main__":
    print("\n".join(found()))
