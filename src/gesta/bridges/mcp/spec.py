"""The description of a server, and the rules that select an agent's tools from it. This module does no I/O.

Texts and errors show the names of headers and variables, never their values. The effect policy of a tool says whether a
call with an unknown outcome may be repeated.
"""

import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypedDict, get_args

from msgspec import Struct

from gesta.bridges.mcp.slips import half_url, no_server
from gesta.errors import AgentError, BadAddress, nearest, refuse_unknown
from gesta.function_tool.tool import BY_RULE, Effect
from gesta.text.redactor import MEMBER, SECRETS

Giving = Callable[[], str | Awaitable[str]]
"""A function that returns the value of a header. If it is not async, it is called in a thread."""
FLAG = re.compile(rf"--?{MEMBER}", re.IGNORECASE)
"""Pattern of command options whose values are secrets, such as `--token`."""
WILD = re.compile(r"[*?\[]")
NEWEST, OLDER = "2026-07-28", "2025-11-25"
START_S = 30.0
HOLD_S = 3600.0


class McpOptions(TypedDict, total=False):
    """Options of `gesta.mcp`.

    All names of tools are those that the server uses, without `prefix`. `*` and `?` are wildcards.
    """

    headers: Mapping[str, str | Giving]
    """Headers of each HTTP request. A function is called each time to get the value. No value is ever on record."""
    env: Mapping[str, str]
    """Environment variables for a server that is started, in addition to PATH, HOME and a few others.

    No other variable of this process is passed on.
    """
    cwd: str
    """Folder in which the server is started."""
    prefix: str
    """Text put before the name of each tool, so that equal names of two servers stay different."""
    allow: Sequence[str]
    """Names of the tools that the agent has; by default all of them."""
    deny: Sequence[str]
    """Names of tools that the agent does not get, even if `allow` names them."""
    effects: Mapping[str, Effect]
    """Effect policies by tool name, used instead of the server's annotations."""
    approval: bool | Sequence[str]
    """Names of the tools for which a person must approve each call; `True` for all tools."""
    timeouts: Mapping[str, float]
    """Greatest duration of a call in seconds, by tool name; by default the policy's `tool_timeout_s`."""
    elicitation: bool
    """Whether the server may ask a person something during a call; `True` by default."""
    sampling: bool
    """Whether the server may ask the agent's model something during a call; `False` by default.

    The agent's budget pays for it.
    """
    protocol: str
    """Newest version of the protocol to use with the server: "2026-07-28" (the default) or "2025-11-25"."""
    start_s: float
    """Seconds that the server may take to start and to answer its first request; 30 by default."""
    hold_s: float
    """Seconds for which a call is held open at the server while a person is asked; 3600 by default."""


class Spec(Struct, frozen=True):
    """The description of how to start or reach a server. Equal specs share one connection in a record."""

    command: tuple[str, ...] = ()
    """The program to start and its arguments; empty for a server with a URL."""
    url: str = ""
    headers: tuple[tuple[str, str | Giving], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    elicitation: bool = True
    sampling: bool = False
    protocol: str = NEWEST
    start_s: float = START_S
    hold_s: float = HOLD_S

    def __repr__(self) -> str:
        """Return the command or the URL, without secrets."""
        return f"Spec({self.shown!r})"

    @property
    def shown(self) -> str:
        """The command or the URL as text, without secrets."""
        return SECRETS.address(self.url) if self.url else SECRETS.message(shlex.join(hidden(self.command)))


def hidden(command: Sequence[str]) -> list[str]:
    """Return the words of a command, with `***` in place of the values of options such as `--token`."""
    shown, secret = list[str](), False
    for word in command:
        name, sign, _ = word.partition("=")
        if secret:
            shown.append("***")
        elif sign and FLAG.fullmatch(name):
            shown.append(f"{name}=***")
        else:
            shown.append(word)
        secret = not secret and FLAG.fullmatch(word) is not None
    return shown


def learn(spec: Spec) -> None:
    """Register the secrets of a spec, so that they are replaced in every text that is shown or written."""
    SECRETS.add_headers({name: value for name, value in spec.headers if isinstance(value, str)})
    SECRETS.add_environment(dict(spec.env))
    if spec.url:
        SECRETS.add_address(spec.url)
    for word, shown in zip(spec.command, hidden(spec.command), strict=True):
        if word != shown:
            SECRETS.add("mcp-argument", word.removeprefix(shown.removesuffix("***")))


class Rules(Struct, frozen=True):
    """The rules that say which tools of a server an agent gets, and how they may be called."""

    prefix: str = ""
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    effects: tuple[tuple[str, Effect], ...] = ()
    approval: tuple[str, ...] = ()
    timeouts: tuple[tuple[str, float], ...] = ()

    def chosen(self, name: str) -> bool:
        """Return whether the agent gets the tool of this name."""
        return _fits(name, self.allow) and not _fits(name, self.deny)

    def effect(self, name: str) -> Effect | None:
        """Return the effect policy that the rules set for a tool; `None` if the rules set none.

        A full name takes precedence over a wildcard.
        """
        found: Effect | None = _of(name, self.effects)
        return found

    def timeout_s(self, name: str) -> float | None:
        """Return the timeout of a tool in seconds; `None` if the agent's policy applies."""
        found: float | None = _of(name, self.timeouts)
        return found

    def asks(self, name: str) -> bool:
        """Return whether a person must approve each call of a tool."""
        return _fits(name, self.approval)

    def misspelt(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return each tool name in the rules that is not in `names`, with a hint at a similar name or an empty hint.

        Names with wildcards are left out.

        Args:
            names: the names of the server's tools.
        """
        known = list(names)
        given = [*self.allow, *self.deny, *self.approval, *dict(self.effects), *dict(self.timeouts)]
        return [
            (each, nearest(each, known)) for each in dict.fromkeys(given) if not WILD.search(each) and each not in known
        ]


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, each) for each in patterns)


def _of(name: str, given: Sequence[tuple[str, Any]]) -> Any:
    named = dict(given)
    return named[name] if name in named else next((value for each, value in given if fnmatchcase(name, each)), None)


def read(server: str | Sequence[str], options: McpOptions) -> tuple[Spec, Rules]:
    """Return the description of a server and the rules for its tools, read from the arguments of `gesta.mcp`.

    Raises:
        BadAddress: the server is neither a command nor an HTTP address.
        AgentError: an option has a wrong value, or does not apply to this server.
        TypeError: there is no such option.
    """
    refuse_unknown("gesta.mcp", options, McpOptions.__annotations__)
    command, url = _place(server)
    headers = _mapping("headers", options.get("headers", {}), "{'NAME': 'value'}")
    env, cwd = _mapping("env", options.get("env", {}), "{'NAME': 'value'}"), options.get("cwd", "")
    wrong = [("headers", headers)] if command else [("env", env), ("cwd", cwd)]
    for name, value in wrong:
        if value:
            kind, other = ("a command", "a URL") if command else ("a URL", "a command")
            raise AgentError(f"gesta.mcp: {name}= is for {other}, and the server is {kind}. Leave it out.")
    for name, each in [*headers.items(), *env.items()]:
        if not (isinstance(each, str) or (name in headers and callable(each))):
            found = f"gesta.mcp: the value of {name!r} is a {type(each).__name__}"
            raise AgentError(
                f"{found}, expected a text{', or a function that returns one' if name in headers else ''}."
            )
    spec = Spec(
        command=command,
        url=url,
        headers=tuple(headers.items()),
        env=tuple(env.items()),
        cwd=str(cwd),
        elicitation=options.get("elicitation", True),
        sampling=options.get("sampling", False),
        protocol=_protocol(options.get("protocol", NEWEST)),
        start_s=_seconds("start_s", options.get("start_s", START_S)),
        hold_s=_seconds("hold_s", options.get("hold_s", HOLD_S)),
    )
    learn(spec)
    return spec, _rules(options)


def _place(server: str | Sequence[str]) -> tuple[tuple[str, ...], str]:
    if not isinstance(server, str):
        words = tuple(server) if isinstance(server, list | tuple) else ()
        if not words or not all(isinstance(word, str) and word for word in words):
            raise BadAddress(no_server(server))
        return words, ""
    if re.match(r"https?://[^/\s]+", server):
        return (), server.strip()
    if half := half_url(server.strip()):
        raise BadAddress(half)
    try:
        words = tuple(shlex.split(server))
    except ValueError as wrong:
        shown = SECRETS.message(" ".join(hidden(server.split())))
        raise BadAddress(f"The MCP server is {shown!r:.200}, which is not a command: {wrong}.") from wrong
    if not words or "://" in words[0]:
        raise BadAddress(no_server(SECRETS.address(server)))
    return words, ""


def _rules(options: McpOptions) -> Rules:
    prefix, approval = options.get("prefix", ""), options.get("approval", False)
    if not re.fullmatch(r"[a-zA-Z0-9_-]{0,32}", prefix):
        raise AgentError(f"gesta.mcp: prefix={prefix!r:.60}, expected at most 32 of a-z A-Z 0-9 _ -.")
    effects = dict(_mapping("effects", options.get("effects", {}), "{'pay': 'once'}"))
    possible = [each for each in get_args(Effect) if each != "transactional"]
    for name, effect in effects.items():
        if effect not in possible:
            expected = f"expected one of {', '.join(map(repr, possible))}.{nearest(str(effect), possible)}"
            raise AgentError(f"gesta.mcp: the effect of {name!r} is {effect!r:.60}, {expected}")
    limits = _mapping("timeouts", options.get("timeouts", {}), "{'search': 60}")
    timeouts = {name: _seconds(f"timeouts[{name!r}]", each) for name, each in limits.items()}
    asks = ("*",) if approval is True else () if approval is False else _names("approval", approval)
    return Rules(
        prefix=prefix,
        allow=_names("allow", options.get("allow", ("*",))),
        deny=_names("deny", options.get("deny", ())),
        effects=tuple(effects.items()),
        approval=asks,
        timeouts=tuple(timeouts.items()),
    )


def _protocol(version: Any) -> str:
    if version not in (NEWEST, OLDER):
        raise AgentError(f"gesta.mcp: protocol is {version!r:.60}, expected {NEWEST!r} or {OLDER!r}.")
    return str(version)


def _mapping(option: str, value: Any, example: str) -> Mapping[str, Any]:
    """Return the value of an option that must be a dict. Raises AgentError for any other value, without showing it."""
    if not isinstance(value, Mapping):
        raise AgentError(f"gesta.mcp: {option} is a {type(value).__name__}, expected a dict such as {example}.")
    return value


def _names(option: str, names: Any) -> tuple[str, ...]:
    listed = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (None,)
    if not all(isinstance(each, str) for each in listed):
        rule = BY_RULE if option == "approval" and callable(names) else ""
        raise AgentError(f"gesta.mcp: {option}={names!r:.60}, expected a list of names.{rule}")
    return listed


def _seconds(option: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise AgentError(f"gesta.mcp: {option} is {value!r:.60}, expected seconds above 0.")
    return float(value)
