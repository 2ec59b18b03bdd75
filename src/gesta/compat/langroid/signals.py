"""Finds signals in a text: exact words by which a model or a person controls a task.

DONE and __PASS__ are signals only as the whole text, or as its first or last word; DO-NOT-KNOW must be the whole text.
So "I am not DONE yet" contains no signal; "DONE: 42", "The answer is 42. DONE" and "I am not DONE" do. Words in lower
case are not signals. An address (such as `__SEND__:name`) must begin a word. Of several addresses, only the last is
used: the text after it is sent, or, if nothing follows it, the text before it. The rest of a text is unchanged. Do not
pass results of tools: they are data, which may contain such words by chance.
"""

import re

from msgspec import Struct

NO_ANSWER = "DO-NOT-KNOW"
DONE = "DONE"
PASS = "__PASS__"  # noqa: S105 - a word, no secret
PASS_TO = PASS + ":"
SEND_TO = "__SEND__:"
WORDS = (DONE, PASS, SEND_TO, NO_ANSWER)
"""A text with none of these words, and without the address prefix of the task, contains no signal."""
AT = "|@|"
"""A common value of `TaskConfig.addressing_prefix`: with it, `|@|name` sends a text to `name`. Not the default."""
TOOL = "TOOL"
USER_QUIT_STRINGS = ("q", "x", "quit", "exit", "bye", DONE)
"""Answers with which a person ends a task."""

TO = re.compile(r"\s*TO\[([^\[\]\n]{1,100})\]:[ \t]*")
FIRST = r"\s*(?P<mark>[*_`\"']{{0,4}}){}[:,.;!]{{0,3}}(?P=mark)[:,.;!]{{0,3}}(?:(?<=:)|(?!\S))\s*"
LAST = r"(?<!\S)(?P<mark>[*_`\"']{{0,4}}){}[,.;!]{{0,3}}(?P=mark)[,.;!]{{0,3}}\Z"
STARTS, ENDS = (
    {signal: re.compile(form.format(re.escape(signal))) for signal in (DONE, PASS)} for form in (FIRST, LAST)
)


class Routing(Struct, frozen=True, kw_only=True):
    """The signals found in a text, and the text without them."""

    content: str
    """The text without its signals; empty if the message that waits for an answer is passed on instead."""
    done: bool = False
    passes: bool = False
    """Whether the message that waits for an answer is passed on instead of this text."""
    recipient: str = ""
    no_answer: bool = False
    """Whether the text says that its author has no answer."""


def parse_routing(text: str, addressing_prefix: str = "") -> Routing:
    """Return the signals in a text that a model, a person or a method of an agent wrote.

    Args:
        addressing_prefix: prefix of a name in an address, such as `AT`; empty for no prefix.
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
    """Return the name and the text of `TO[name]: text`. For any other text, return an empty name and the text."""
    found = TO.match(text)
    return (found[1].strip(), text[found.end() :]) if found else ("", text)


def _without(text: str, signal: str) -> str | None:
    """Return a text with a signal removed from its beginning and end; `None` if it is at neither place."""
    rest, found = text, False
    if signal in text:
        if first := STARTS[signal].match(rest):
            rest, found = rest[first.end() :], True
        if last := ENDS[signal].search(ended := rest.rstrip()):
            rest, found = ended[: last.start()].rstrip(), True
    return rest if found else None


def _address(text: str, prefix: str) -> Routing | None:
    """Return the recipient that the last address in a text names, with the text to send; `None` without an address."""
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
