"""Runs every recorded tool call again on fresh data and compares results and end states with the recorded ones.

Run `python -m benchmarks.retail.reexecute`; it prints one line per file and fails if anything differs.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from benchmarks.retail.corpus import FILES, Conversation, Dialect, RecordedCall, load_conversations, load_database
from benchmarks.retail.rules import RetailError
from benchmarks.retail.tools import Retail
from benchmarks.retail.world import World


class Tally(Struct):
    """Counts over the conversations of one file.

    `calls` is `injected` (neither run nor compared) plus `compared`. `equal`: as JSON values, or as text where not
    both parse; `bytes`: as text. `db_match`: conversations whose database ended as it does by the expected actions;
    `db_recorded`: those with a recorded verdict on that; `db_agree`: those where ours is the same.
    """

    file: str
    conversations: int = 0
    calls: int = 0
    injected: int = 0
    compared: int = 0
    equal: int = 0
    bytes: int = 0
    db_match: int = 0
    db_recorded: int = 0
    db_agree: int = 0

    def complete(self) -> bool:
        """Whether nothing differed."""
        return self.bytes == self.equal == self.compared and self.db_agree == self.db_recorded


COLUMNS = Tally.__struct_fields__
FILE_WIDTH = 34


def recorded_form(retail: Retail, call: RecordedCall, key: str | None = None) -> str:
    """Run a call and return its result as a record holds it: a refusal as `Error: <text>`."""
    try:
        return retail.call(call.name, call.args, key)
    except RetailError as error:
        return f"Error: {error}"


def equal_results(left: str, right: str) -> bool:
    """Whether two results are equal as JSON values if both parse, else as text."""
    try:
        return bool(json.loads(left) == json.loads(right))
    except ValueError:
        return left == right


def run_actions(world: World, dialect: Dialect, actions: Iterable[RecordedCall]) -> None:
    """Run calls for their effect on the world only; refusals are passed over."""
    retail = Retail(world, dialect)
    for action in actions:
        recorded_form(retail, action)


def reexecute(conversation: Conversation, world: World, expected: World, tally: Tally) -> None:
    """Run one conversation's calls on a fresh world and its expected actions on another, and count into a tally."""
    retail = Retail(world, conversation.dialect)
    tally.conversations += 1
    for call, answer in conversation.answered():
        tally.calls += 1
        if answer.injected:
            tally.injected += 1
            continue
        result, recorded = recorded_form(retail, call), answer.content or ""
        equal = equal_results(result, recorded)
        tally.compared += 1
        tally.equal += equal
        tally.bytes += result == recorded
        if not equal:
            print(f"{conversation.id}: {call.name} {call.args}\n  recorded {recorded}\n  now      {result}")
    count_end_state(conversation, world, expected, tally)


def count_end_state(conversation: Conversation, world: World, expected: World, tally: Tally) -> None:
    """Run the expected actions on a fresh world, and count whether the other ended as it did."""
    run_actions(expected, conversation.dialect, conversation.expected_actions)
    match = world.same_as(expected)
    tally.db_match += match
    if conversation.db_match is not None:
        tally.db_recorded += 1
        tally.db_agree += match == conversation.db_match


def reexecute_file(file: str, folder: Path) -> Tally:
    """Run all conversations of one recording; worlds are made in the folder and removed again."""
    conversations = load_conversations(file)
    template = folder / "template.db"
    World.create(template, load_database(conversations[0].dialect)).close()
    tally = Tally(file.rsplit("/", 1)[-1].removesuffix(".json.gz"))
    paths = folder / "world.db", folder / "expected.db"
    for conversation in conversations:
        with World.copy(template, paths[0]) as world, World.copy(template, paths[1]) as expected:
            reexecute(conversation, world, expected, tally)
    for path in (template, *paths):
        path.unlink()
    return tally


def row(values: Sequence[str]) -> str:
    """Lay out one value per column of the table, the file's name first."""
    cells = zip(values[1:], COLUMNS[1:], strict=True)
    return values[0].ljust(FILE_WIDTH) + "".join(value.rjust(max(6, len(name)) + 2) for value, name in cells)


def main() -> int:
    """Print the table; return 1 if anything differed."""
    print(row(COLUMNS))
    complete = True
    for file in FILES:
        with tempfile.TemporaryDirectory() as folder:
            tally = reexecute_file(file, Path(folder))
        print(row([str(getattr(tally, name)) for name in COLUMNS]))
        complete = complete and tally.complete()
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
