"""What a person says of a run goes into its inbox: that needs no lease and no agent.

Whoever goes on with the run takes it in. Each letter has a key that is made of what it is about, the same from Python
and from the command line: of two answers to one question the first one counts. An approval that does not count keeps
nobody from one that does, so each refusal makes a new key.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from gesta.codec.rows import digest_of, encode_content
from gesta.decide.waiting import Waiting
from gesta.entry import Entry, utc_text
from gesta.errors import AgentError, NotWaiting
from gesta.kinds import AnswerContent, ApprovalContent, Content, ResolutionContent
from gesta.log.journal import read, utc_now
from gesta.log.steering import refuse_fields
from gesta.perform.generated import NO_ARGUMENT
from gesta.perform.late import SAYABLE
from gesta.record.waits import state_of, waits_of
from gesta.state.calls import WAITS, OpenCall
from gesta.state.run import RunState
from gesta.store import Letter, Store
from gesta.text.redactor import SECRETS


class Inbox:
    """A record as seen by a process that writes no run."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def read(self, run: str, after: int = 0) -> list[Entry]:
        """Read a run's entries by seq, those after `after`."""
        return await read(self.store, run, after)

    async def state(self, run: str) -> RunState:
        """Return where a run stands, as a process sees it that does not hold its lease."""
        return await state_of(self.store, run)

    async def waiting(self, run: str) -> list[Waiting]:
        """Return what the open turn of a run waits for, in it and in the runs below it.

        It is read from the record, so that any process may ask. An attempt that may be at work right now is `running`.
        """
        return await waits_of(self.store, run, self.now())

    async def send(self, run: str, content: Content, *, key: str) -> bool:
        """Put a letter into a run's inbox; needs no lease and no agent. Returns False if the key was used before.

        Args:
            content: what a person or the application says: an approval, answer, resolution, signal, text for the open
                turn, key-value, or compaction.

        Raises:
            AgentError: the run's holder alone writes such a content, or a field of it, or its arguments hold a secret.
        """
        if not isinstance(content, SAYABLE):
            known = ", ".join(each.__name__ for each in SAYABLE)
            raise AgentError(f"A {type(content).__name__} is written by the run itself. Send one of: {known}.")
        refuse_fields(content, "send(...)")
        if isinstance(content, ApprovalContent) and (held := SECRETS.named_in(str(content.args))) is not None:
            raise AgentError(f"The arguments hold the secret {held!r}. {NO_ARGUMENT}")
        return await self.store.send(Letter(run, SECRETS.text(key), encode_content(content, None)))

    async def approve(
        self,
        run: str,
        call: int | None = None,
        *,
        by: str,
        args: dict[str, Any] | None = None,
        reason: str | None = None,
        token: str | None = None,
    ) -> bool:
        """Allow one call of a tool; it runs when somebody goes on with the run. False if that was said before.

        Args:
            run: id of the run; of a run below, `Waiting.run`.
            call: seq of the tool call, `Waiting.call`; `None` for the only one that waits.
            by: name of the person: a claim, unless the record has an `approver`.
            args: run it with these instead.
            token: proof of who approves, for the record's `approver`.

        Raises:
            NotWaiting: no such call waits for approval, or several do.
        """
        about = await self._asked(run, call)
        said = ApprovalContent(of=about.asked or 0, verdict="approved", by=by, args=args, reason=reason, token=token)
        return await self.send(run, said, key=await approval_key(self, run, said))

    async def deny(
        self, run: str, call: int | None = None, *, by: str, reason: str | None = None, token: str | None = None
    ) -> bool:
        """Deny one call of a tool: it does not run, and the model reads why. See `approve`."""
        about = await self._asked(run, call)
        said = ApprovalContent(of=about.asked or 0, verdict="denied", by=by, reason=reason, token=token)
        return await self.send(run, said, key=await approval_key(self, run, said))

    async def answer(self, run: str, value: Any, question: int | None = None, *, by: str) -> bool:
        """Answer a question. False if it was answered before.

        Args:
            value: any JSON value, which has to fit the question's schema.
            question: seq of the question, `Waiting.of`; `None` for the only one that waits.

        Raises:
            NotWaiting: no such question waits, or several do.
            AgentError: the answer does not fit.
        """
        asked = (await self.state(run)).questions
        about = _one(run, "question", {seq: each.value for seq, each in asked.items()}, question)
        schema = asked[about].schema
        problem = misfit(value, schema) if schema is not None else None
        if problem is not None:
            raise AgentError(f"The answer {problem}. The question was: {asked[about].value}")
        return await self.send(run, AnswerContent(of=about, value=value, by=by), key=f"answer-{about}")

    async def resolve(
        self,
        run: str,
        verdict: Literal["done", "failed", "retry"],
        call: int | None = None,
        *,
        by: str,
        result: Any = None,
    ) -> bool:
        """Settle a call whose outcome nobody knows. Returns False if it was settled before.

        Args:
            verdict: it happened, it failed, or it did not happen and is to be tried again.
            call: seq of the tool call, `Waiting.call`; `None` for the only one in doubt.
            result: of a call that is done, what it gave.

        Raises:
            NotWaiting: no such call is in doubt, or several are.
            RunHeld: the call may be at work right now.
        """
        calls = {each.seq: each for each in calls_in_doubt(await self.state(run))}
        last = calls[_one(run, "doubt", {seq: each.name for seq, each in calls.items()}, call)].last
        assert last is not None
        if last.doubt is None:
            await self.store.release(await self.store.lease(run))  # nobody is making the attempt
        said = ResolutionContent(of=last.seq, verdict=verdict, by=by, result=result)
        return await self.send(run, said, key=f"resolution-{last.seq}{'-over' if last.over else ''}")

    def now(self) -> datetime:
        """Return the time by which requests expire."""
        return utc_now()

    async def _asked(self, run: str, call: int | None) -> OpenCall:
        """Find the call that a person is asked about. Raises NotWaiting, also for one whose request has expired."""
        now, calls = self.now(), (await self.state(run)).calls
        open_ = {seq: each for seq, each in calls.items() if each.asked is not None and each.approval is None}
        late = {seq: each.expires for seq, each in open_.items() if each.expires is not None and each.expires <= now}
        left = {seq: each.name for seq, each in open_.items() if seq not in late}
        if late and (call in late or (call is None and not left)):
            seq, expires = next((seq, at) for seq, at in late.items() if call in (None, seq))
            raise NotWaiting(run, "approval", left, expired=(seq, utc_text(expires)))
        return open_[_one(run, "approval", left, call)]


def _one(run: str, what: str, open_: Mapping[int, str], wanted: int | None) -> int:
    """Return the one that is meant. Raises NotWaiting."""
    if wanted is None and len(open_) == 1:
        return next(iter(open_))
    if wanted is None or wanted not in open_:
        raise NotWaiting(run, what, open_, wanted)
    return wanted


async def approval_key(inbox: Inbox, run: str, said: ApprovalContent) -> str:
    """Return the key of an approval: one for each question, each proof, and each answer after a refused one."""
    proof = f"-{digest_of(said.token)[:16]}" if said.token is not None else ""
    refused = len(await refusals(inbox, run, said.of))
    return f"approval-{said.of}{proof}{f'-{refused}' if refused else ''}"


async def refusals(inbox: Inbox, run: str, asked: int) -> list[str]:
    """Return the reasons why answers about a call were refused. Cost: reads the run."""
    answers = [entry.content for entry in await inbox.read(run) if isinstance(entry.content, ApprovalContent)]
    return [each.refused for each in answers if each.of == asked and each.refused is not None]


def calls_in_doubt(state: RunState) -> list[OpenCall]:
    """Return the calls whose outcome nobody knows, without those that wait for a child run."""
    calls = (call for call in state.calls.values() if call.in_doubt(state.head))
    return [call for call in calls if call.last is not None and call.last.doubt != WAITS]


TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def misfit(value: Any, schema: dict[str, Any]) -> str | None:
    """Return why a value does not fit a JSON Schema: type, choices or members; `None` if it fits."""
    wanted = schema.get("type")
    if isinstance(wanted, str) and wanted in TYPES:
        right = isinstance(value, TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
        if not right:
            return f"is {json.dumps(value)[:80]}, expected JSON of type {wanted}"
    if "enum" in schema and value not in schema["enum"]:
        return f"is {json.dumps(value)[:80]}, expected one of {', '.join(map(json.dumps, schema['enum']))}"
    if isinstance(value, dict):
        missing = [name for name in schema.get("required", ()) if name not in value]
        if missing:
            return f"lacks {', '.join(missing)}"
        for name, part in schema.get("properties", {}).items():
            if name in value and isinstance(part, dict) and (problem := misfit(value[name], part)):
                return f"has a {name!r} that {problem}"
    return None
