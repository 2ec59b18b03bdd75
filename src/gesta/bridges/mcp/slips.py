"""Finds common mistakes in the server given to `gesta.mcp`, and returns sentences that say what to write instead.

Examples are a file, the settings of another program, and a URL without its scheme. No sentence contains a value that
may be a secret.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from gesta.errors import nearest
from gesta.text.redactor import SECRETS

EXPECTED = "expected a command such as 'uvx some-server', a list of its words, or a URL such as 'https://host/mcp'"
SHELL = ("&&", "||", "|", ";", ">", "<", "&")
STARTERS: Mapping[str, str] = {
    "uvx": "It comes with uv: pip install uv",
    "uv": "pip install uv",
    "npx": "It comes with Node.js",
    "node": "It comes with Node.js",
    "docker": "It comes with Docker",
    "python": "Write sys.executable in its place, in a list of words",
    "python3": "Write sys.executable in its place, in a list of words",
}
"""Programs that start servers, each with a hint where to get it."""
PROGRAMS: Mapping[str, str] = {".py": "sys.executable", ".js": "'node'", ".mjs": "'node'", ".jar": "'java', '-jar'"}
"""The program that runs a file, by the file's suffix, as Python text for a list of words."""


def no_server(server: object) -> str:
    """Return a sentence about a value that does not describe a server, with what to write instead."""
    if isinstance(server, str):
        return f"The MCP server is {server!r:.200}, {EXPECTED}."
    if isinstance(server, PurePath):
        return f"The MCP server is the path {str(server)!r}, {EXPECTED}. Write gesta.mcp([{_run_by(str(server))}])."
    if isinstance(server, Mapping):
        return f"The MCP server is a dict, {EXPECTED}. {_from_settings(server)}"
    return f"The MCP server is of type {type(server).__name__}, {EXPECTED}."


def half_url(server: str) -> str:
    """Return a sentence about a URL without its scheme, such as `localhost:8000/mcp`; empty for any other text."""
    if not re.fullmatch(r"[\w.-]+:\d{1,5}(/\S*)?", server):
        return ""
    whole = SECRETS.address(f"http://{server}")
    return f"The MCP server is {whole.removeprefix('http://')!r}, a URL without its scheme. Write gesta.mcp({whole!r})."


def refused(failure: BaseException | None) -> bool:
    """Return whether `failure` means that the operating system did not start the program, so that nothing ran."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return isinstance(failure, FileNotFoundError | PermissionError | NotADirectoryError)


def not_started(command: Sequence[str], cwd: str) -> str:
    """Return a hint how to correct a command that cannot be started, as a sentence without its full stop."""
    first = command[0]
    if cwd and not Path(cwd).is_dir():
        return f"There is no folder {cwd!r}: correct cwd="
    if first in ("cd", "export", "source") or any(word in SHELL or word.startswith("$") for word in command):
        return "No shell reads the command: use cwd= and env=, or write ['sh', '-c', '...']"
    if first.startswith("~"):
        return f"No shell reads the command: write {str(Path(first).expanduser())!r}"
    if (suffix := Path(first).suffix) in PROGRAMS:
        return f"A {suffix} file is run by another program: gesta.mcp([{_run_by(first)}])"
    if len(command) == 1 and re.fullmatch(r"[\w-]+(\.[\w-]+)+/\S*", first) and not Path(first).exists():
        return f"If it is a URL, write gesta.mcp({SECRETS.address(f'https://{first}')!r})"
    if shutil.which(first) is None and Path(first).is_file():
        return f"{first!r} is a file that may not be run: chmod +x, or name the program that runs it"
    if first in STARTERS:
        return f"There is no program {first!r} on the PATH. {STARTERS[first]}"
    return f"There is no program {first!r} on the PATH.{nearest(first, STARTERS) or ' Run the command by hand'}".rstrip(
        "?"
    )


def _run_by(file: str) -> str:
    program = PROGRAMS.get(PurePath(file).suffix)
    return f"{program}, {file!r}" if program else repr(file)


def _from_settings(settings: Mapping[Any, Any]) -> str:
    """Return what to write instead of settings made for other programs, such as a file with `mcpServers`."""
    inner = settings.get("mcpServers", settings.get("servers"))
    if isinstance(inner, Mapping):
        return f"Make one source for each of its servers: {', '.join(map(str, inner)):.200}."
    more = "".join(f", {name}={{...}}" for name in ("env", "headers") if settings.get(name))
    if isinstance(settings.get("command"), str):
        return f"Write gesta.mcp([{settings['command']!r}, ...]{more}), with its args in place of the dots."
    return f"Write gesta.mcp('https://...'{more})." if "url" in settings else "Write its command or its URL."
