"""Law 3: every history sent is valid for its provider, whatever the model wrote and wherever the run was cut."""

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.scenes import World, again, agent, play
from tests.laws.test_resume import whole
from tests.validators.chat_completions import violations

import gesta
from gesta.entry import Entry
from gesta.kinds import AttemptContent, RequestContent, ToolResultContent
from gesta.model.request import ReplyCall, Request
from gesta.perform.late import late as late_letter
from gesta.prompt import Prompt
from gesta.record.record import Record
from gesta.stores.memory import MemoryStore

text = st.text(st.characters(codec=None), max_size=12)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["look", "put", "pay", "fail", "nope", "", "look ", "x" * 80, "wëird\ud800"])
arguments = st.one_of(
    st.sampled_from(['{"x": 1}', '{"x": "1"}', '{"y": 1}', "{}", "", "null", "[1]", '{"x": 1', "NaN", '{"x": NaN}']),
    st.sampled_from(['{"x": ' + "9" * 5000 + "}", '{"x": "\\ud800"}', "[" * 3000, '{"$blob": "a"}']),
    text,
)
ids = st.sampled_from([None, "", "call_1", "call_1", "same", "é", "i" * 50])
wild_calls = st.builds(ReplyCall, name=names, args=arguments, id=ids)
replies = st.builds(lambda said, made: gesta.reply(text=said, calls=made), text, st.lists(wild_calls, max_size=4))
scripts = st.lists(replies, min_size=1, max_size=4).map(lambda steps: [*steps, "done"])


def bodies(acting: gesta.Agent, entries: Sequence[Entry]) -> list[Request]:
    """Build every request of a run again, and the one that would be made at its end."""
    prompt, made, header = Prompt(acting.formats(), acting.asked()), [], acting.header()
    envelope = acting.asked().envelope(header)
    for entry in entries:
        prompt.add(entry)
        if isinstance(entry.content, RequestContent):
            made.append(prompt.request(header, envelope, 0))
            made[-1] = msgspec.structs.replace(made[-1], blocks=list(made[-1].blocks))
    prompt.close()
    return [*made, prompt.request(header, envelope, 0)]


@given(scripts)
def test_every_history_is_valid_whatever_a_model_writes(script: list[Any]) -> None:
    async def main() -> None:
        _, _, entries = await whole(script)
        for request in bodies(agent(World(), script), entries):
            assert violations(request.body()) == []

    anyio.run(main)


@given(scripts)
def test_at_every_prefix_calls_are_closed_virtually(script: list[Any]) -> None:
    async def main() -> None:
        tape, _, _ = await whole(script)
        acting = agent(World(), script)
        for end in range(1, len(tape.tape)):
            store = await again(tape.tape[:end])
            entries = await Record(store, lambda made: made).read(tape.tape[0].lease.run)
            for place in range(2, len(entries) + 1):
                for request in bodies(acting, entries[:place]):
                    assert violations(request.body()) == []

    anyio.run(main)


@given(scripts)
def test_no_model_output_stops_the_run(script: list[Any]) -> None:
    async def main() -> None:
        (outcome,) = await play(MemoryStore(), agent(World(), script))
        assert outcome.reason in {"answered", "failed"}

    anyio.run(main)


@given(text, anything)
def test_any_text_and_any_result_encodes_to_valid_bytes(said: str, result: Any) -> None:
    async def main() -> None:
        @gesta.tool(effect="pure")
        async def odd() -> Any:
            return result

        script = [gesta.call("odd"), "done"]
        store = MemoryStore()
        (outcome,) = await play(store, agent(World(), script, tools=[odd]), [said])
        entries = await Record(store, lambda made: made).read(outcome.run)
        assert outcome.answer == "done"
        for request in bodies(agent(World(), script, tools=[odd]), entries):
            assert violations(request.body()) == []

    anyio.run(main)


def test_a_late_result_is_an_entry_of_its_own_and_a_new_message_that_names_its_call() -> None:
    async def main() -> None:
        store = MemoryStore()
        acting = agent(World(), [gesta.call("look", x=1), "done", "thanks"])
        (outcome,) = await play(store, acting)
        record = Record(store, lambda made: made)
        attempt = next(entry for entry in await record.read(outcome.run) if isinstance(entry.content, AttemptContent))
        assert isinstance(attempt.content, AttemptContent)
        call, content = attempt.content.of, ToolResultContent(call=attempt.content.of, tool_result="found later")
        assert await store.send(late_letter(outcome.run, attempt.seq, attempt.content.key, content))
        await record.run(acting, "and?", session="s")
        entries = await record.read(outcome.run)
        late = next(entry for entry in entries if getattr(entry.content, "outcome", None) == "late")
        assert late.causes == (call,)
        body = bodies(acting, entries)[-1].body()
        assert violations(body) == []
        assert b"[Late result of call call_" in body and b"to look]\\nfound later" in body

    anyio.run(main)
