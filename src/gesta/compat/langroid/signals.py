"""Words by which a text steers a task, read as exact tokens.

A signal counts only where somebody means it: it is the whole text, or its first or last word. So "ABANDONED" and
"I am not DONE yet" say nothing, "DONE: 42" and "The answer is 42. DONE" do, and so does "I am not DONE". Lower case is
a word like any other. An address counts where a word begins, and of several the last does: what follows it is sent, or
what stands before it if nothing follows. Nothing else of a text is changed. Results of tools are data: nobody should
look for signals there.
"""

import re

from msgspec import Struct

NO_ANSWER = "DO-NOT-KNOW"
DONE = "DONE"
PASS = "__PASS__"  # noqa: S105 - a word, no secret
PASS_TO = PASS + ":"
SEND_TO = "__SEND__:"
WORDS = (DONE, PASS, SEND_TO, NO_ANSWER)
"""A text without any of these, and without an address, says nothing."""
AT = "|@|"
"""A good choice for the prefix of addresses. By default no prefix is set."""
TOOL = "TOOL"
USER_QUIT_STRINGS = ("q", "x", "quit", "exit", "bye", DONE)
"""What a person answers to end a task, where that is how it is ended."""

TO = re.compile(r"\s*TO\[([^\[\]\n]{1,100})\]:[ \t]*")
FIRST = r"\s*(?P<mark>[*_`\"']{{0,4}}){}[:,.;!]{{0,3}}(?P=mark)[:,.;!]{{0,3}}(?:(?<=:)|(?!\S))\s*"
LAST = r"(?<!\S)(?P<mark>[*_`\"']{{0,4}}){}[,.;!]{{0,3}}(?P=mark)[,.;!]{{0,3}}\Z"
STARTS, ENDS = (
    {signal: re.compile(form.format(re.escape(signal))) for signal in (DONE, PASS)} for form in (FIRST, LAST)
)


class Routing(Struct, frozen=True, kw_only=True):
    """What a text says of where the task goes."""

    content: str
    """The text without its signals; empty where another message is passed on."""
    done: bool = False
    passes: bool = False
    """Whether the message that waits for an answer goes on, instead of this text."""
    recipient: str = ""
    no_answer: bool = False
    """Whether the text says that there is no answer."""


def parse_routing(text: str, addressing_prefix: str = "") -> Routing:
    """Read the signals of a text that a model, a person or an agent's own method wrote.

    Args:
        addressing_prefix: what stands before a name, such as `AT`; empty for no prefix.
    """
    if not any(map(text.__contains__, WORDS)) and not (addressing_prefix and addressing_prefix in text):
        return Routing(content=text)
    if addressed := _address(text, addressing_prefix):
        return addressed
    rest = _without(text, DONE)
    content = text if rest is None else rest
    passes = _without(content, PASS) is not None
    return Routing(
        content="" if passes else content,
        done=rest is not None,
        passes=passes,
        no_answer=content.strip(" \t\r\n,.!?:") == NO_ANSWER,
    )


def parse_recipient(text: str) -> tuple[str, str]:
    """Split `TO[name]: text` into name and text; without such a beginning, the name is empty."""
    found = TO.match(text)
    return (found[1].strip(), text[found.end() :]) if found else ("", text)


def _without(text: str, signal: str) -> str | None:
    """Return a text without a signal at its ends; `None` if the signal is at neither end."""
    rest, found = text, False
    if signal in text:
        if first := STARTS[signal].match(rest):
            rest, found = rest[first.end() :], True
        if last := ENDS[signal].search(ended := rest.rstrip()):
            rest, found = ended[: last.start()].rstrip(), True
    return rest if found else None


def _address(text: str, prefix: str) -> Routing | None:
    """Read the last address of a text."""
    forms = [form for form in (PASS_TO, SEND_TO, prefix) if form and form in text]
    if not forms:
        return None
    form = "|".join(map(re.escape, forms))
    pattern = rf"(?<!\S)(?P<form>{form})[ \t]?(?P<name>[\w-]+)(?:[:,](?!\S)|(?![\w-]))"
    every = list(re.finditer(pattern, text))
    if not every:
        return None
    last = every[-1]
    content = text[last.end() :].lstrip() or text[: last.start()].rstrip()
    passes = last["form"] == PASS_TO or not content
    return Routing(content="" if passes else content, passes=passes, recipient=last["name"])
