"""Reads runs, and sends letters to the inboxes of runs. This needs no lease and no agent.

A record is the store of all runs; a session is the runs of one conversation. An entry is one recorded fact of a run;
its seq is its number there. A turn is one message to an agent and all the work up to its answer. A call in doubt may or
may not have happened. A lease is the right to write a run. A letter is a message, or a person's answer, to a run. It
waits in the inbox until the process that continues the run writes it into the run. The key of a letter is made from the
wait that it answers, so only the first of two answers is used. After an approval was refused as invalid, the key
changes, so that a valid approval can follow. A root run is a run that no other run started. Where a name of a run is
expected, a session means its newest root run, and `last` means the root run with the latest entry.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

from msgspec.structs import replace

from gesta.codec.rows import decode_content, digest_of, encode_content
from gesta.decide.approval import Approver, judged_approval
from gesta.decide.waiting import APPROVAL, DOUBT, QUESTION, Waiting
from gesta.entry import Entry
from gesta.errors import AgentError, BrokenRecord, NoRun, SeveralRuns
from gesta.function_tool.signature import listed
from gesta.integrity.tombstones import SESSION
from gesta.kinds import AnswerContent, ApprovalContent, ApprovalRequestContent, Content, ResolutionContent
from gesta.log.journal import read, utc_now
from gesta.log.steering import refuse_fields
from gesta.perform.call_contents import NO_ARGUMENT
from gesta.perform.late import SAYABLE
from gesta.record.answers import (
    Meant,
    Receipt,
    Word,
    meant,
    other_than,
    refuse_no_json,
    refuse_odd,
    sent_as,
    told,
)
from gesta.record.names import RUN_ID, exact_run, refuse_session, run_of_id
from gesta.record.waits import state_of, waits_of
from gesta.state.run import RunState
from gesta.store import Letter, RunRow, Store
from gesta.text.redactor import SECRETS


class Inbox:
    """Reads the runs of a record, finds what they wait for, and sends letters to them. It needs no lease."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.approver: Approver | None = None
        """The approver with which this process opened the record; `None` if it checks nobody."""

    async def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return the entries of a run whose seq is greater than `after`, in order.

        Args:
            run: id of the run, a unique prefix of it, a session, or `last`. For a complete id that is not in the
                record, the list is empty.

        Raises:
            NoRun: no run fits.
            SeveralRuns: several ids begin with `run`.
        """
        return await read(self.store, await self._whole(run), after)

    async def state(self, run: str) -> RunState:
        """Return the state of a run, computed from its entries. Cost: reads the run.

        Args:
            run: id of the run, a unique prefix of it, a session, or `last`, as in `read`.
        """
        return await state_of(self.store, await self._whole(run))

    async def waiting(self, run: str) -> list[Waiting]:
        """Return what a run waits for, together with the runs below it. The list is empty if no turn is open.

        The waits are read from the record, so any process may call this. A tool call that may be running now is listed
        as `running`.

        Args:
            run: id of the run, a unique prefix of it, a session, or `last`.
        """
        return await waits_of(self.store, await self._named(run, exact=True), self.now())

    async def send(self, run: str, content: Content, *, key: str) -> bool:
        """Send a letter to the inbox of a run. Return False if the key was used before, so that nothing was sent.

        Args:
            run: id of the run, a unique prefix of it, a session, or `last`. A complete id may be of a run that has not
                begun.
            content: an approval, an answer, a resolution, a signal, a text for the open turn, a key-value or a
                compaction.
            key: name of the letter, unique in the run.

        Raises:
            NoRun: no run fits.
            SeveralRuns: several ids begin with `run`.
            AgentError: only the process that holds the run may write this content or one of its fields, the
                arguments of an approval contain a secret, or an answer holds what JSON cannot hold.
        """
        if not isinstance(content, SAYABLE):
            known = ", ".join(each.__name__ for each in SAYABLE)
            raise AgentError(f"A {type(content).__name__} is written by the run itself. Send one of: {known}.")
        refuse_fields(content, "send(...)")
        refuse_odd(content)
        if isinstance(content, ApprovalContent) and (held := SECRETS.named_in(str(content.args))) is not None:
            raise AgentError(f"The arguments hold the secret {held!r}. {NO_ARGUMENT}")
        return await self.store.send(Letter(await self._whole(run), SECRETS.text(key), encode_content(content)))

    async def approve(
        self,
        waiting: Waiting | str,
        call: int | None = None,
        *,
        by: str,
        args: dict[str, Any] | None = None,
        reason: str | None = None,
        token: str | None = None,
    ) -> Receipt:
        """Allow one call of a tool. The tool runs when a process continues the run.

        Args:
            waiting: an element of `outcome.waiting`; or the run of the call, or a run above it: its id, a unique prefix
                of it, a session, or `last`.
            call: seq of the tool call; `None` if only one call waits for approval.
            by: name of the person. Nobody checks it, unless the record has an `approver`.
            args: arguments to run the call with, in place of the model's.
            reason: why, in the person's words; it is kept on record.
            token: proof of who approves, for the record's `approver`.

        Raises:
            NotWaiting: no such call waits for approval, or several do.
            Expired: the request for approval has expired.
            SaidBefore: a different answer was given before.
            RunMirrored: the run is continued in another record.
            AgentError: `args` is not a dict, contains a secret, or holds what JSON cannot hold.
        """
        if args is not None and not isinstance(args, dict):
            raise AgentError(f"approve(args={args!r:.60}): expected a dict of arguments, or None to keep the model's.")
        refuse_no_json("args", args)
        about = await self._meant(waiting, APPROVAL, call)
        of = about.waiting.of or 0
        said = ApprovalContent(of=of, verdict="approved", by=by, args=args, reason=reason, token=token)
        return await self._say(about, said)

    async def deny(
        self,
        waiting: Waiting | str,
        call: int | None = None,
        *,
        by: str,
        reason: str | None = None,
        token: str | None = None,
    ) -> Receipt:
        """Deny one call of a tool: the tool does not run, and the model reads the reason.

        Args and errors: see `approve`.
        """
        about = await self._meant(waiting, APPROVAL, call)
        said = ApprovalContent(of=about.waiting.of or 0, verdict="denied", by=by, reason=reason, token=token)
        return await self._say(about, said)

    async def answer(
        self,
        waiting: Waiting | str,
        value: Any,
        of: int | None = None,
        *,
        by: str,
        reason: str | None = None,
        token: str | None = None,
    ) -> Receipt:
        """Answer a question. Or supply the result of a call that waits for approval; its tool then does not run.

        Args:
            waiting: see `approve`.
            value: any JSON value that fits the question's schema.
            of: seq of the question, or of the approval-request; `None` if only one question waits.
            by: name of the person.
            reason: why the person answers in place of the tool; it is kept on record.
            token: proof of who answers, for the record's `approver`.

        Raises:
            NotWaiting, SaidBefore, RunMirrored: see `approve`.
            AgentError: the answer does not fit the schema or JSON, or a question was answered with `reason` or `token`.
        """
        refuse_no_json("value", value)
        if await self._about_call(waiting, of):
            call = await self._meant(waiting, APPROVAL, of)
            said: dict[str, Any] = {"by": by, "result": value, "reason": reason, "token": token}
            return await self._say(call, ApprovalContent(of=call.waiting.of or 0, verdict="answered", **said))
        if reason is not None or token is not None:
            raise AgentError("The answer to a question has no reason and no token. Leave them out.")
        about = await self._meant(waiting, QUESTION, of)
        schema, question = about.waiting.schema, about.waiting.question
        problem = misfit(value, schema) if schema is not None else None
        if problem is not None:
            raise AgentError(f"The answer {problem}. The question was: {question}")
        return await self._say(about, AnswerContent(of=about.waiting.of or 0, value=value, by=by))

    async def resolve(
        self,
        waiting: Waiting | str,
        verdict: Literal["done", "failed", "retry"],
        call: int | None = None,
        *,
        by: str,
        result: Any = None,
    ) -> Receipt:
        """Record what a person found out about a call whose outcome nobody knew.

        Args:
            waiting: see `approve`.
            verdict: `done`: the effect happened. `failed`: the call failed. `retry`: nothing happened, and the tool is
                to run again.
            call: seq of the tool call; `None` if only one call is in doubt.
            by: name of the person.
            result: what the tool would have returned, for `done`.

        Raises:
            NotWaiting, SaidBefore, RunMirrored: see `approve`.
            RunHeld: the tool may be running now.
            AgentError: JSON cannot hold `result`.
        """
        refuse_no_json("result", result)
        about = await self._meant(waiting, DOUBT, call)
        of = about.waiting.of or 0
        if about.known is None:
            found = (await self.state(about.waiting.run)).call(about.waiting.call)
            if found is not None and found.last is not None and found.last.doubt is None and found.last.verdict is None:
                await self.store.release(await self.store.lease(about.waiting.run))  # nobody is making the attempt
        return await self._say(about, ResolutionContent(of=of, verdict=verdict, by=by, result=result))

    async def _named(self, name: str, *, exact: bool = False) -> str:
        """Return the id of the run that a name means; see `find`.

        Args:
            exact: whether a whole run id means that run even if it is also the name of another session.

        Raises:
            NoRun, SeveralRuns: no run fits the name, or several do.
        """
        if RUN_ID.fullmatch(name) is None or not (await self.store.head(name))[0]:
            return (await self.find(name)).run
        if not exact:
            await refuse_session(self.store, name)
        return name

    async def _row(self, waiting: Waiting | str) -> RunRow:
        """Return the run of a wait, or the run that a name means; see `find`."""
        found = await run_of_id(self.store, waiting.run) if isinstance(waiting, Waiting) else None
        return found or await self.find(waiting.run if isinstance(waiting, Waiting) else waiting)

    async def _whole(self, name: str) -> str:
        """Return `name` unchanged if it is a whole run id, even of an unknown run; else the id of the run it means."""
        return name if RUN_ID.fullmatch(name) is not None else (await self.find(name)).run

    async def find(self, name: str) -> RunRow:
        """Return the run that a name means.

        Args:
            name: id of the run, a unique prefix of it, a session (its newest root run), or `last`.

        Raises:
            NoRun: no run fits.
            SeveralRuns: several ids begin with `name`, or it means two things: a whole id and the name of another
                session, or the latest run and a session that is called `last`.
        """
        if name != "last" and (found := await exact_run(self.store, name)) is not None:
            return found
        rows = await self.store.runs()
        roots = [row for row in rows if row.parent_run is None]
        if name == "last" and (told := [row for row in roots if row.session != SESSION]):
            latest = max(told, key=lambda row: (row.last_at, row.pos))
            for row in [row for row in roots if row.session == name and latest.session != name][-1:]:
                raise SeveralRuns(name, [latest.run, row.run])
            return latest
        exact = [row for row in rows if row.run == name]
        named = exact or [row for row in roots if row.session == name]
        starts = named or [row for row in rows if name and row.run.startswith(name)]
        if not named and len(starts) > 1:
            raise SeveralRuns(name, [row.run for row in starts])
        if not starts:
            raise NoRun(name, [word for row in rows for word in (row.run, row.session)])
        return starts[-1]

    def now(self) -> datetime:
        """Return the current time, with which the expiry of approval requests is compared."""
        return utc_now()

    async def _meant(self, waiting: Waiting | str, kinds: Sequence[str], wanted: int | None) -> Meant:
        if isinstance(waiting, str):
            waiting = await self._named(waiting)
        return await meant(self.store, waiting, kinds, wanted, self.now())

    async def _about_call(self, waiting: Waiting | str, of: int | None) -> bool:
        """Return whether an answer is for a call that waits for approval. Otherwise the answer is for a question."""
        if isinstance(waiting, Waiting):
            return waiting.what in APPROVAL
        asked = await read(self.store, await self._named(waiting), of - 1, of) if of is not None else []
        return bool(asked) and isinstance(asked[0].content, ApprovalRequestContent)

    async def _say(self, about: Meant, word: Word) -> Receipt:
        """Send a person's answer `word` to the wait `about`, and return a receipt.

        If the wait was answered before, send nothing; the receipt then says so.
        """
        waiting, known = about
        if known is not None:
            return await told(self.store, waiting, word, known, sent=False)
        state = RunState() if isinstance(word, AnswerContent) else await self.state(waiting.run)
        key = letter_key(word, state)
        earlier = await self._earlier(waiting.run, word, state) if isinstance(word, ApprovalContent) else []
        for each in earlier if self.approver is not None else ():
            return await told(self.store, waiting, word, each, sent=False)  # it is valid, so it counts
        sent = await self.send(waiting.run, word, key=key)
        known = None if sent else await sent_as(self.store, waiting, SECRETS.text(key))
        receipt = await told(self.store, waiting, word, known, sent=sent)
        return replace(receipt, contested=True) if sent and any(map(other_than(word), earlier)) else receipt

    async def _earlier(self, run: str, word: ApprovalContent, state: RunState) -> list[ApprovalContent]:
        """Return the answers in the inbox to the request that `word` answers, without those that do not count."""
        calls, found = state.calls.values(), list[ApprovalContent]()
        for letter in await self.store.inbox(run):
            with suppress(BrokenRecord):
                content = decode_content(letter.content, {})
                if isinstance(content, ApprovalContent) and content.of == word.of:
                    found.append(judged_approval(content, letter, calls, self.store.info.id, self.approver))
        return [each for each in found if each.refused is None]


def letter_key(word: Word, state: RunState) -> str:
    """Return the key of a letter with an answer. Two answers to one wait have the same key.

    So the second answer is ignored. An approval gets another key if its token differs, or if an earlier approval
    was refused. A resolution gets another key once the attempt in doubt has certainly ended.

    Args:
        state: state of the run that waits. It is not used for the answer to a question.
    """
    if isinstance(word, AnswerContent):
        return f"answer-{word.of}"
    calls = state.all_open()
    if isinstance(word, ResolutionContent):
        over = any(call.last is not None and call.last.seq == word.of and call.last.over for call in calls)
        return f"resolution-{word.of}{'-over' if over else ''}"
    proof = f"-{digest_of(word.token)[:16]}" if word.token is not None else ""
    refused = next((call.refusals for call in calls if call.asked == word.of), 0)
    return f"approval-{word.of}{proof}{f'-{refused}' if refused else ''}"


TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
"""Python types of JSON values, by the name of the type in JSON Schema."""


def misfit(value: Any, schema: dict[str, Any]) -> str | None:
    """Return why a value does not fit a JSON Schema, such as `is 3, expected at least 5`; `None` if it fits.

    Only `type`, `enum`, `const`, `anyOf`, `minimum`, `maximum`, `required` and `properties` are checked.
    """
    options = [misfit(value, each) for each in schema.get("anyOf", ()) if isinstance(each, dict)]
    if options and None not in options:
        return options[0]
    wanted = schema.get("type")
    if isinstance(wanted, str) and wanted in TYPES:
        right = isinstance(value, TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
        if not right:
            return f"is {json.dumps(value)[:80]}, expected JSON of type {wanted}"
    if (allowed := listed(value, schema)) is not None:
        return f"is {json.dumps(value)[:80]}, expected one of {', '.join(map(json.dumps, allowed))}"
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if least is not None and value < least:
            return f"is {value}, expected at least {least}"
        if most is not None and value > most:
            return f"is {value}, expected at most {most}"
    if isinstance(value, dict):
        missing = [name for name in schema.get("required", ()) if name not in value]
        if missing:
            return f"lacks {', '.join(missing)}"
        for name, part in schema.get("properties", {}).items():
            if name in value and isinstance(part, dict) and (problem := misfit(value[name], part)):
                return f"has a {name!r} that {problem}"
    return None
