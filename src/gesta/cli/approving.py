"""Asking a person about a call, and putting the answer where the run will find it.

An answer is a letter in the run's inbox, whoever gave it and however: at the prompt, by `--yes`, by `gesta approve`.
Its key is that of the question, so that of two answers the first counts. An answer with a token has a key of its own,
and so has one that follows a refused one: an answer that does not count keeps nobody from giving one that does.
"""

import os
import sys
from dataclasses import dataclass
from typing import Any, Literal

from gesta.agent import Agent
from gesta.cli.talk import BOLD, RED, Stop, harmless, say, styled
from gesta.cli.voice import json_text
from gesta.decide.approval import KEY_BYTES, Asked, sign
from gesta.decide.waiting import Waiting
from gesta.kinds import ApprovalContent
from gesta.record.answers import Receipt
from gesta.record.record import Record
from gesta.text.visible import visible, visible_value

VARIABLE = "GESTA_APPROVAL_KEY"
"""Holds the key with which answers are signed, in hexadecimal digits."""
MOST = 4000
"""Characters of an argument that are shown at the prompt; how many more there are is said."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A person's answer about a call."""

    verdict: Literal["approved", "denied", "answered"]
    by: str
    reason: str | None = None
    args: dict[str, Any] | None = None
    """Run it with these instead."""
    result: Any = None
    """What it gives without running."""
    token: str | None = None
    """Proof of who answers, made elsewhere."""


def who() -> str:
    """Name the person at this terminal."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


async def give(record: Record, waiting: Waiting, verdict: Verdict) -> Receipt:
    """Put the answer about a call into the run's inbox, signed if the environment holds a key.

    Raises:
        Stop: the environment holds a key that cannot be used.
    """
    by, reason, token = verdict.by, verdict.reason, verdict.token
    if token is None and (key := signing_key()) is not None:
        content = ApprovalContent(of=waiting.of or 0, **vars(verdict))
        token = sign(content, _asked(waiting, record.info.id), key).token
    if verdict.verdict == "approved":
        return await record.approve(waiting, by=by, args=verdict.args, reason=reason, token=token)
    if verdict.verdict == "denied":
        return await record.deny(waiting, by=by, reason=reason, token=token)
    return await record.answer(waiting, verdict.result, by=by, reason=reason, token=token)


def _asked(waiting: Waiting, record: str) -> Asked:
    return Asked(
        record=record,
        run=waiting.run,
        request=waiting.of or 0,
        call=waiting.call or 0,
        tool=waiting.tool or "",
        args=waiting.args or {},
        expires=waiting.expires,
    )


def signing_key() -> bytes | None:
    """Return the key in the environment; `None` if there is none. Raises Stop for a bad key, without showing it."""
    text = os.environ.get(VARIABLE, "").strip()
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES and text:
        made = "python -c 'import secrets; print(secrets.token_hex(32))' makes one"
        raise Stop(f"{VARIABLE} is no key: expected hexadecimal digits, at least {2 * KEY_BYTES} of them; {made}.")
    return key or None


def ask(waiting: Waiting, agent: Agent, by: str) -> Verdict | None:
    """Ask at the prompt; `None` if the person left without an answer."""
    say(f"{visible(waiting.tool or '')} asks to run, with:", BOLD)
    for line in arguments(waiting):
        say(f"    {line}")
    for remark in waiting.remarks:
        say(f"    {remark}", RED)
    while True:
        print(styled("Approve? [y/N/?] ", BOLD, sys.stderr), end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return None
        match line.strip().lower():
            case "y" | "yes":
                return Verdict(verdict="approved", by=by)
            case "" | "n" | "no":
                return Verdict(verdict="denied", by=by)
            case _:
                explain(waiting, agent)


def arguments(waiting: Waiting) -> list[str]:
    """Write the arguments, one below the other, and as a whole: a person answers for what stands there."""
    if not waiting.args:
        return ["no arguments"]
    args = visible_value(waiting.args)
    wide = min(20, max(len(name) for name in args))
    lines = []
    for name, value in args.items():
        text = harmless(json_text(value, indent=2))
        if len(text) > MOST:
            text = f"{text[:MOST]}\n... and {len(text) - MOST:,} characters more: `gesta log RUN --raw` shows all"
        first, *rest = text.split("\n")
        lines += [f"{name:{wide}}  {first}", *(" " * (wide + 2) + line for line in rest)]
    return lines


def explain(waiting: Waiting, agent: Agent) -> None:
    """Print what the answers mean, and the tool's description."""
    tool = agent.tool(waiting.tool or "")
    if tool is not None and tool.description:
        say(f"    {tool.name}: {tool.description}")
    if tool is not None:
        said = f"Its effect is {tool.effect!r}" if tool.declared else "It says nothing about its effect"
        say(f"    {said}; its author asks for a person's consent to each call.")
    say("    y: it runs with these arguments, once. n, or Enter: it does not run, and the model is told that a person")
    say("    did not allow it. Ctrl-C or Ctrl-D: nothing is answered; the run waits, and can be gone on with later.")
