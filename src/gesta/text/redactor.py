"""Keeps the secrets of this process out of all text that is written, shown or raised.

A secret is known by its value. So it is found in any text, also in the forms in which servers and libraries repeat it:
escaped in JSON, HTML or a URL, in base64, or masked (`sk-ab...yz`). The secrets belong to the process, so their only
table, `SECRETS`, is module state. Values of fewer than `LEAST` characters are not searched for, because that would
remove ordinary words.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from html.entities import codepoint2name
from urllib.parse import quote, quote_plus, unquote

LEAST = 8
"""Smallest number of characters of a value that is accepted as a secret."""
LONG_TEXT = 4 << 20
"""Number of characters above which a text is not searched for masked forms, because that would take seconds."""
EDGE = 24  # characters at each end that a masked form may show, and at most half of the secret
STARS = "*•●█·∙#"
DOTS = STARS + ".…"
EDGES = re.compile(rf"[\\{DOTS}]")  # a masked form shows no more of a secret than up to such a sign
VARIABLE = re.compile(
    r"(API|ACCESS|SECRET|PRIVATE|ACCOUNT|SUBSCRIPTION|APPROVAL|SIGNING|ENCRYPTION)_?KEY$|TOKEN$|SECRET$"
    r"|PASSWORD$|PASSWD$|PASSPHRASE$|PGPASSWORD$",
    re.IGNORECASE,
)
"""Pattern for names of environment variables that hold a secret."""
MEMBER = r"(?:[\w.-]*[-_])?(?:key|api-?key|access_?token|token|secret|password|sslpassword|passwd|sig|signature|auth)"
"""Pattern for names in the query of a URL whose values are secrets."""
HEADER = re.compile(r"authorization|cookie|key$|secret|token|password", re.IGNORECASE)
"""Pattern for names of HTTP headers whose values are secrets."""
NAMED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=://)([^\s/?#@:'\"]*):[^\s'\"]*@"), r"\1:***@"),
    (re.compile(rf"([?&]{MEMBER}=)[^&\s'\"#)>]+", re.IGNORECASE), r"\1***"),
    (
        re.compile(
            r"(\b(?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?)(?:(?:bearer|basic|token)\s+)?[^\s'\",]+", re.IGNORECASE
        ),
        r"\1***",
    ),
    (re.compile(r"(\b(?:[A-Z][A-Z0-9]*_)+(?:KEY|TOKEN|SECRET|PASSWORD)=)[^\s'\"]+"), r"\1***"),
)
"""Patterns and replacements for secrets that are recognised by their context: passwords and keys in URLs, headers
and variables."""
SLASHES = r"\\{0,15}"  # escapes inside escapes; bounded, so that the search takes linear time
BASE64 = {"+": "(?:[+-]|%2[Bb])", "/": rf"(?:{SLASHES}/|_|%2[Ff])"}
ENTITIES = codepoint2name | {ord("'"): "apos"}  # the names of HTML 4, and the one that XML adds
SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


class Secrets:
    """The known secrets of a process, and the search for them in texts."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._opening: re.Pattern[str] | None = None
        self._begins: tuple[str, ...] = ()
        self._runs: tuple[str, ...] = ()
        self._marks: dict[str, str] = {}
        self.search: Callable[[str], re.Match[str] | None] | None = None
        """A function that finds the first secret in a text; `None` if no secrets are known."""

    def add(self, name: str, value: str) -> None:
        """Add a secret. A value of fewer than `LEAST` characters is ignored. Cost: 1 us if the secret is known.

        Args:
            name: is shown in place of the secret.
        """
        value = value.strip()
        if len(value) >= LEAST and value not in self._known:
            self._known[value] = re.sub(r"[^\w.-]", "-", name)[:60] or "secret"
            self._pattern, self.search = None, self._first_search

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add the values of those HTTP headers whose names match `HEADER`."""
        for name, value in headers.items():
            if HEADER.search(name):
                self.add(name, value)
                self.add(name, value.partition(" ")[2])

    def add_address(self, address: str, name: str = "password") -> None:
        """Add the password in an address, and the secrets in its query. A text that is not an address adds nothing.

        Args:
            name: is shown in place of the password.
        """
        base, _, query = address.partition("?")
        user, _, _ = base.partition("://")[2].rpartition("@") if "://" in base else base.rpartition("@")
        given = [(name, user[place + 1 :]) for place, sign in enumerate(user) if sign == ":"]
        for what, value in given + re.findall(rf"(?:^|&)({MEMBER})=([^&#]+)", query, re.IGNORECASE):
            self.add(what, value)
            self.add(what, unquote(value))

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Add the secrets in environment variables: values whose names match `VARIABLE`, and passwords in addresses."""
        for name, value in environment.items():
            if VARIABLE.search(name) is not None and not worded(value):
                self.add(name, value)
            if "@" in value and ":/" in value:
                self.add_address(value, name)

    def forget(self) -> None:
        """Forget all secrets."""
        self.__init__()  # type: ignore[misc] # as new

    def text(self, text: str) -> str:
        """Return a text in which a mark replaces each secret; the same object if it contains no secret."""
        if self.search is None or self.search(text) is None:
            return text
        assert self._pattern is not None
        for _ in range(4):  # the rest may join into another secret
            text = self._pattern.sub(self._mark, text)
            if self._search(text) is None:
                return text
        return "***"

    def bytes(self, data: bytes) -> bytes:
        """Return bytes in which a mark replaces each secret; the same object if they contain no secret."""
        if self.search is None:
            return data
        text = data.decode("utf-8", "surrogateescape")
        clean = self.text(text)
        return data if clean is text else clean.encode("utf-8", "surrogateescape")

    def message(self, text: str) -> str:
        """Return a text without known secrets, and without the passwords and keys that the patterns in `NAMED` find."""
        for pattern, clean in NAMED:
            text = pattern.sub(clean, text)
        return self.text(text)

    def address(self, address: str) -> str:
        """Return an address without its secrets, even if it is malformed. The secrets become known to this object."""
        self.add_address(address)
        start = r"([\w+.-]+://[^/@:]*)" if "://" in address else "([^@:]*)"
        return self.message(re.sub(rf"\A{start}:.*@", r"\1:***@", address, flags=re.DOTALL))

    def named_in(self, text: str) -> str | None:
        """Return the name of the first secret in a text; `None` if the text contains no secret."""
        found = self.search(text) if self.search is not None else None
        return None if found is None else self._names[int((found.lastgroup or "s0")[1:])]

    def unfinished(self, text: str) -> int:
        """Return the index from which a text may contain the beginning of a secret whose rest has not arrived yet.

        If there is none, return the text's length.
        """
        if self.search is None:
            return len(text)
        self.search("")
        assert self._pattern is not None
        assert self._opening is not None
        place = len(text)
        for begin in self._begins:
            at = text.find(begin[0], max(0, len(text) - len(begin) + 1))
            while 0 <= at < place:
                if begin.startswith(text[at:]):
                    place = at
                    break
                at = text.find(begin[0], at + 1)
        masked = self._opening.search(text)
        if masked is not None:
            place = min(place, masked.start())
        for found in self._pattern.finditer(text):
            if found.start() < place < found.end() or found.end() == len(text):
                place = min(place, found.start())
        return place

    @property
    def _names(self) -> list[str]:
        return [self._known[value] for value in self._ordered()]

    def _ordered(self) -> list[str]:
        return sorted(self._known, key=len, reverse=True)  # so that the longer of two with the same beginning is found

    def _mark(self, found: re.Match[str]) -> str:
        return self._marks[found.lastgroup or ""]

    def _first_search(self, text: str) -> re.Match[str] | None:
        """Compile the search for secrets, and return the first secret found in `text`; `None` if there is none.

        The search is compiled on first use, when all secrets have been added.
        """
        values = self._ordered()
        groups = "|".join(f"(?P<s{number}>{_forms(value)})" for number, value in enumerate(values))
        self._pattern = re.compile(groups)
        heads = "".join(f"{head}[{DOTS}]++|" for value in values if (head := _head(value, 1)))
        self._opening = re.compile(rf"(?:{heads}(?<![{STARS}])[{STARS}]++)\S{{0,{EDGE}}}\Z")
        self._begins = tuple(dict.fromkeys(form for value in values for form in _written(value)))
        marks = [f"<secret {self._known[value]}>" for value in values]
        self._marks = {f"s{number}": "***" if self._pattern.search(mark) else mark for number, mark in enumerate(marks)}
        self._runs = tuple({_longest(each) for value in values for each in (value, *_cores(value))})
        self.search = self._search
        return self.search(text)

    def _search(self, text: str) -> re.Match[str] | None:
        """Return the first match of a secret in a text; `None` if the text contains no secret.

        Cost: 0.2 us per character. If the text is longer than `LONG_TEXT` and contains no secret: 1 ns per character.
        """
        assert self._pattern is not None
        if len(text) > LONG_TEXT and not any(run in text for run in self._runs):
            return None
        return self._pattern.search(text)


class Flow:
    """Removes secrets from a text that arrives in pieces.

    If the end of a piece may be the beginning of a secret, that end is held back until the next piece arrives.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets, self._held = secrets, ""

    def feed(self, text: str, *, last: bool = False) -> str:
        """Add a piece of text, and return the text that can be shown now.

        Args:
            last: whether this is the last piece, so that nothing has to be held.
        """
        if self._secrets.search is None and not self._held:
            return text
        text = self._held + text
        place = len(text) if last else self._secrets.unfinished(text)
        self._held = text[place:]
        return self._secrets.text(text[:place])


def scrub(error: BaseException | None) -> None:
    """Remove secrets from an error of another library: from its message, its notes, its causes and grouped errors."""
    seen: list[BaseException] = []
    left = [error]
    while left:
        each = left.pop()
        if each is None or each in seen:
            continue
        seen.append(each)
        with suppress(Exception):
            each.args = tuple(SECRETS.message(arg) if isinstance(arg, str) else arg for arg in each.args)
            if getattr(each, "__notes__", None):
                each.__notes__ = [SECRETS.message(str(note)) for note in each.__notes__]
        left += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def worded(value: str) -> bool:
    """Return whether a value looks like a setting and not like a secret: only words, a number or a path, and short."""
    value = value.strip()
    return (
        bool(re.fullmatch(r"[a-z]+(?:[-_ ][a-z]+)*|[A-Z]+(?:[-_ ][A-Z]+)*|[\d.]+|[~/.][\w./ -]*", value))
        and len(value) < 20
    )


def _forms(value: str) -> str:
    """Return a pattern for all forms in which servers and libraries may repeat a secret."""
    forms = ["".join(map(_character, re.findall(r"\\+|[^\\]", value)))]
    forms += ["".join(BASE64.get(sign, sign) for sign in core) for core in _cores(value)]
    head, tail = _head(value, 2), _tail(value, 2)
    run = rf"(?:[{DOTS}]{{2,}}|…|(?:\\u2022|\\u2026)+)"
    forms += [f"{head}(?>{run}){tail}"] if head and tail else []
    stars = rf"(?>[{STARS}]{{3,}}|(?:\\u2022){{3,}})"
    forms += [f"{long}{stars}"] if (long := _head(value, 4)) else []
    forms += [f"(?<![{STARS}])(?<!\\\\u2022){stars}{long}"] if (long := _tail(value, 4)) else []
    return "|".join(forms)


def _head(value: str, least: int) -> str:
    """Return a pattern for the beginning of a secret, as masked forms such as `sk-ab...yz` show it.

    The pattern matches at least the first `least` characters. It is empty if a star or a dot is among these.
    """
    signs = list(map(_character, re.split(EDGES, value[: min(EDGE, len(value) // 2)])[0]))
    if len(signs) < least:
        return ""
    return "".join(signs[:least]) + "".join(f"(?:{sign}" for sign in signs[least:]) + ")?" * len(signs[least:])


def _tail(value: str, least: int) -> str:
    """Return a pattern for the end of a secret, as masked forms such as `sk-ab...yz` show it.

    The pattern matches at least the last `least` characters. It is empty if a star or a dot is among these.
    """
    signs = list(map(_character, re.split(EDGES, value[-min(EDGE, len(value) // 2) :])[-1]))
    if len(signs) < least:
        return ""
    more = signs[:-least]
    return "(?:" * len(more) + "".join(f"{sign})?" for sign in more) + "".join(signs[-least:])


def _character(sign: str) -> str:
    """Return a pattern that matches one character, plain or escaped. A row of backslashes counts as one character."""
    if sign[0] == "\\":
        count = len(sign)
        escaped = (r"\\{1,15}u005[Cc]", "%5[Cc]", "&#92;", "&#[xX]5[Cc];")
        ways = "|".join(f"(?:{form}){{{count}}}" for form in escaped)
        return rf"(?:\\{{{count},{16 * count}}}|{ways})"
    if sign.isascii() and (sign.isalnum() or sign == "_"):
        return sign
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    escape = "".join(rf"\\{{1,15}}u(?i:{units[place : place + 4]})" for place in range(0, len(units), 4))
    percent = "".join(f"%(?i:{byte:02x})" for byte in sign.encode("utf-8", "surrogatepass"))
    forms = [
        SLASHES + re.escape(sign),
        escape,
        percent,
        f"&#0{{0,6}}{ord(sign)};",
        f"&#[xX]0{{0,6}}(?i:{ord(sign):x});",
    ]
    forms += [rf"\\{{1,15}}{SHORT[sign]}"] if sign in SHORT else []
    forms += [f"&{ENTITIES[ord(sign)]};"] if ord(sign) in ENTITIES else []
    forms += [r"\+"] if sign == " " else []
    return f"(?:{'|'.join(forms)})"


def _longest(form: str) -> str:
    """Return the longest part of a pattern that is plain text, which no escaping changes."""
    return max(re.findall("[A-Za-z0-9_]+", form), key=len, default="")


def _cores(value: str) -> Iterable[str]:
    """Yield the parts of a secret's base64 form by which it is found inside a longer base64 text.

    Base64 encodes three bytes at a time, so there is a part for each of three offsets.
    """
    data = value.encode("utf-8", "surrogatepass")
    for before, first in ((0, 0), (1, 2), (2, 3)):
        yield b64encode(bytes(before) + data).decode()[first : (before + len(data)) * 8 // 6]


def _written(value: str) -> Iterable[str]:
    """Yield the forms of a secret that must be recognised by their beginning, when a stream delivers them in pieces."""
    yield value
    yield from (html.escape(value), html.escape(value, quote=False), html.escape(value).replace("&#x27;", "&apos;"))
    yield "".join(f"&{ENTITIES[ord(sign)]};" if ord(sign) in ENTITIES else sign for sign in value)
    with suppress(UnicodeEncodeError):
        yield from (quote(value, safe=""), quote(value), quote_plus(value))
    for escaped in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield escaped
        if escaped != value:  # escapes inside escapes
            yield (again := json.dumps(escaped)[1:-1])
            yield json.dumps(again)[1:-1]
    for core in _cores(value):
        yield core
        yield core.translate(str.maketrans("+/", "-_"))


SECRETS = Secrets()
"""The secrets of this process."""
