"""Asks a person about a tool call, and sends the answer to the run.

An answer is a letter: a message in the run's inbox, which the process that resumes the run reads. So an answer at the
prompt, from `--yes` and from `gesta approve` have the same effect. A run accepts one letter for each key. Answers to
one question have the same key, so the first one is used. But an answer with a token, or after a refused one, has a key
of its own. Otherwise an invalid answer would block a valid one.
"""

import os
import sys
from dataclasses import dataclass
from typing import Any, Literal

from gesta.agent import Agent
from gesta.cli.talk import BOLD, RED, Stop, harmless, say, styled
from gesta.decide.approval import KEY_BYTES, Asked, sign
from gesta.decide.waiting import Waiting
from gesta.kinds import ApprovalContent
from gesta.record.answers import Receipt
from gesta.record.record import Record
from gesta.text.visible import json_text, visible, visible_value

VARIABLE = "GESTA_APPROVAL_KEY"
"""The environment variable with the key that signs answers, in hexadecimal digits."""
MOST = 4000
"""Greatest number of characters of one argument that the prompt shows. A note says how many more there are."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A person's answer to the question whether a tool call may run."""

    verdict: Literal["approved", "denied", "answered"]
    by: str
    reason: str | None = None
    args: dict[str, Any] | None = None
    """Arguments that replace those of the model; `None` to keep the model's."""
    result: Any = None
    """The result of the call, for the verdict `answered`: then the tool does not run."""
    token: str | None = None
    """A token, made by another program, that proves who answered."""


def who() -> str:
    """Return the user name of the person at this terminal, or `somebody` if the system does not know it."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


async def give(record: Record, waiting: Waiting, verdict: Verdict) -> Receipt:
    """Send a person's answer to the inbox of the run that waits for it.

    If `signing_key` returns a key and the answer has no token, sign the answer with the key.

    Raises:
        Stop: the key is too short or not hexadecimal.
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
    """Return the key that signs answers, from the environment variable GESTA_APPROVAL_KEY; `None` if that is not set.

    Raises Stop for a key that is too short or not hexadecimal. The message does not show the key.
    """
    text = os.environ.get(VARIABLE, "").strip()
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES and text:
        made = "python -c 'import secrets; print(secrets.token_hex(32))' makes one"
        raise Stop(f"{VARIABLE} is not a key: expected hexadecimal digits, at least {2 * KEY_BYTES} of them; {made}.")
    return key or None


def ask(waiting: Waiting, agent: Agent, by: str) -> Verdict | None:
    """Ask the person at the terminal whether a call may run, and return the answer.

    Returns `None` if the person closed the input without an answer.

    Args:
        waiting: the call.
        agent: the agent that made the call.
        by: name of the person.
    """
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
    """Return the arguments of a call as lines for the prompt, one argument below the other.

    Escapes replace characters that cannot be seen.
    """
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
    """Print what each answer at the prompt means, and the tool's description and effect."""
    tool = agent.tool(waiting.tool or "")
    if tool is not None and tool.description:
        say(f"    {tool.name}: {tool.description}")
    if tool is not None:
        said = f"Its effect is {tool.effect!r}" if tool.declared else "It says nothing about its effect"
        say(f"    {said}; its author asks for a person's consent to each call.")
    say("    y: it runs with these arguments, once. n, or Enter: it does not run, and the model is told that a person")
    say("    did not allow it. Ctrl-C or Ctrl-D: nothing is answered; the run waits, and can be gone on with later.")
