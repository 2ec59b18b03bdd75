"""A journal writes a run: entries are committed in order, each once, whoever writes meanwhile."""

from collections.abc import Callable

import pytest

from gesta.kinds import BeginContent, QuestionContent, UserContent
from gesta.log.journal import Journal, read
from gesta.store import Batch, Statements, TransactionalEffect
from gesta.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Watched(MemoryStore):
    """A store that notes its commits, and lets a test do something while one is not answered yet."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int, bool]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def append(self, batch: Batch) -> int:
        self.told.append(("append", len(batch.rows), batch.synced))
        return await super().append(batch)

    async def transact(self, effect: TransactionalEffect) -> None:
        await super().transact(effect)
        self.told.append(("transact", 1, False))
        self.meanwhile()


async def journal_of(store: MemoryStore) -> Journal:
    journal = Journal(store, await store.lease("r"))
    journal.write(BeginContent(name="a", role="turn"), 0)
    return journal


async def values(store: MemoryStore) -> list[str]:
    return [each.content.value for each in await read(store, "r") if isinstance(each.content, UserContent)]


async def test_what_is_written_while_a_transaction_is_committed_comes_with_the_next_commit() -> None:
    store = Watched()
    journal = await journal_of(store)
    store.meanwhile = lambda: journal.write(UserContent(value="beside"), 1)

    def work(_: Statements) -> bool:
        journal.write(UserContent(value="effect"), 1)
        return True

    await journal.transact(work, None)
    assert (journal.durable_head, journal.head) == (2, 3)
    journal.write(UserContent(value="later"), 1)
    await journal.durable()
    assert await values(store) == ["effect", "beside", "later"]


async def test_a_question_that_has_to_be_on_the_disk_is_committed_before_a_transaction_that_does_not_wait_for_it() -> (
    None
):
    store = Watched()
    journal = await journal_of(store)
    journal.write(QuestionContent(value="Which size?"), 1)
    journal.sync()
    await journal.transact(lambda _: bool(journal.write(UserContent(value="effect"), 1)), None)
    assert store.told == [("append", 2, True), ("transact", 1, False)]
