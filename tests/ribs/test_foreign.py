"""What importers share: members that are taken one by one, digests of what a document says, and how runs are written."""

import json
import math
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gesta
from gesta.entry import run_id
from gesta.errors import RunHeld
from gesta.importers.file import TOGETHER, import_file
from gesta.importers.foreign import Imported, Members, digest_json, identical

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


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    lines = [{"messages": [{"role": "user", "content": f"I am {n}."}]} for n in range(2 * TOGETHER)]
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path / "talks.jsonl"


@pytest.mark.parametrize("where", ["{}/r.gesta", ":memory:"])
async def test_imports_of_one_file_at_once_write_each_run_once(where: str, talks: Path) -> None:
    async with gesta.open(where.format(talks.parent)) as record:
        done: list[Imported] = []

        async def take() -> None:
            done.append(await import_file(record, talks))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(take)
        assert (sum(one.runs for one in done), sum(one.skipped for one in done)) == (2 * TOGETHER, 4 * TOGETHER)
        assert len(await record.store.runs()) == 2 * TOGETHER
        assert await record.verify() == []


@pytest.mark.parametrize("where", ["{}/r.gesta", ":memory:"])
async def test_a_run_that_somebody_holds_is_not_written_and_comes_in_later(where: str, talks: Path) -> None:
    async with gesta.open(where.format(talks.parent)) as record:
        held = await record.store.lease(run_id(record.info.id, f"talks/{TOGETHER + 1}", "agent"))
        with pytest.raises(RunHeld):
            await import_file(record, talks)
        assert await record.read(held.run) == []
        before = len(await record.store.runs())
        assert before >= TOGETHER
        await record.store.release(held)
        done = await import_file(record, talks)
        assert (done.runs, done.skipped) == (2 * TOGETHER - before, before)
        assert await record.verify() == []
