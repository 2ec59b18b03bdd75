"""Tries the example servers of the official `mcp` package, from a checkout of it, with an agent that uses `gesta.mcp`.

Run `python -m benchmarks.mcp_servers FOLDER/examples [--python PYTHON] [NAME…] [--command COMMAND]`. PYTHON is a Python
that has the version of the package for which the examples are written, and Pillow. Each server is started over stdio
and over streamable HTTP. An agent calls every tool, reads every resource and gets every prompt, with arguments that fit
the schemas. A simulated person accepts what a server asks, and a simulated model answers its sampling requests. The
command prints a table. Its exit code is 1 if an exception was raised, a call was in doubt, or a call failed that is not
in `FAILS`.
"""

import argparse
import logging
import re
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, product
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field

import gesta
from benchmarks.mcp_servers.launch import NO_HTTP, NO_SERVER
from gesta.bridges.mcp.spec import NEWEST, OLDER
from gesta.entry import Entry
from gesta.kinds import QuestionContent, RequestHeaderContent, ToolCallContent, ToolResultContent

LAUNCH = Path(__file__).with_name("launch.py")
PLACES = ("servers/*/*/server.py", "servers/*lowlevel/*/__main__.py", "snippets/servers/**/*.py")
PLACES += ("mcpserver/*.py", "fastmcp/*.py", "stories/*/server*.py")
PROGRESS = re.compile(r"[^\s:]+: [\d.e-]+( of [\d.e-]+)?(, .*)?")
LEFT_OUT = {
    r"auth|identity_assertion": "needs a login by OAuth",
    r"/memory\.py": "needs a database and a key",
    r"text_me": "needs a key",
    r"screenshot": "needs a screen",
    r"__init__|_mount|_mounting|multiple_servers|path_config": "is no server of its own",
    r"custom_methods": "has methods that are not of the protocol, and no tool",
    r"simple-task": "has tasks, which the protocol took back",
}
WEB_ONLY = r"streamable|sse-polling|sse_polling|everything|json_response|legacy_routing|stateless|standalone|bearer"
HEADERS = {"bearer_auth": {"Authorization": "Bearer demo-token"}}
GIVEN: dict[str, Any] = {
    "resourceUri": "test://static-text",
    "book_table": {"date": "2024-12-25", "time": "19:00", "party_size": 2},
    "meet": {"tag": "ada", "party": ["ada"]},
    "lookup": {"key": "alpha"},
    "refund_order": {"order_id": "ORD-7002", "reason": "broken"},
    "divide": {"a": 1, "b": 2},
    "add": {"a": 1, "b": 2},
    "greet_dict": {"who": {"name": "x"}},
    "start-notification-stream": {"interval": 0.01, "count": 3, "caller": "gesta"},
    "process_batch": {"items": 3, "checkpoint_every": 2},
}
"""Arguments of a tool, or values of one argument, where an arbitrary value that fits the schema does not work."""
PATIENCE = 5
"""Number of questions of one call after which the person declines."""
WITHIN = r"elicitation|stickynotes|snippets/servers/sampling|stories/sampling|everything|refund|dual_era|tool_progress"
"""Servers that are also tried with the protocol of 2025-11-25, most of them because they ask during a call."""
FAILS = [
    ("error_handling|everything", "", "error_handling|restricted", "Error executing|this tool is gated"),
    ("everything", "", "list_roots|multiple_inputs", "roots/list is not supported here"),
    ("everything", "", "required_result_capabilities", "a call may ask a person 25 times"),
    ("everything", OLDER, "input_required|get_prompt", "returned an invalid result"),
    ("elicitation|sampling|stickynotes", NEWEST, "", "no back-channel"),
    ("roots", "", "show_roots", "no back-channel"),
    ("snippets/servers/elicitation", "", "connect_service", "A person did not open the page"),
    ("pagination|standalone", "", "read_resource", "Method not found"),
    ("subscriptions", "", "read_resource", "Error creating resource from template note://1"),
    ("desktop", "", "read_resource", "Error reading resource dir://desktop"),
    ("binary_resources", "", "", "No such file or directory: 'logo.png'"),
    ("embedded_resource|prompt_embedded|tool_errors", "", "", "codec can't decode|at least 3 characters|No such file"),
    ("simple-tool", "", "fetch", "Internal server error|missing an 'http"),
]
"""Calls that fail by design of the example.

Patterns for the server, the protocol's version, the tool, and the message.
"""


class Row(Struct):
    """The results of one server over one transport."""

    server: str
    transport: str
    protocol: str = NEWEST
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    ok: int = 0
    failed: int = 0
    asked: int = 0
    sampled: int = 0
    progress: int = 0
    attached: int = 0
    lists: int = 0
    odd: list[str] = field(default_factory=list)

    @property
    def cells(self) -> list[str]:
        """The cells of this row in the table."""
        return [str(getattr(self, name)) for name in self.__struct_fields__[:-1]]


def sample(schema: Any, whole: Any = None) -> Any:
    """Return a value that fits a JSON schema."""
    whole = schema if whole is None else whole
    if not isinstance(schema, dict):
        return "x"
    if "$ref" in schema:
        return sample(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    for known in ("const", "default"):
        if known in schema:
            return schema[known]
    for one_of in ("anyOf", "oneOf", "enum"):
        if one_of in schema:
            return schema["enum"][0] if one_of == "enum" else sample(schema[one_of][0], whole)
    match schema.get("type"):
        case "integer" | "number":
            return max(2, schema.get("minimum", 0))
        case "boolean":
            return True
        case "array":
            return [sample(schema.get("items", {}), whole)]
        case "object" | None if "properties" in schema:
            wanted = dict.fromkeys([*schema.get("required", ()), *schema["properties"]])
            if schema.get("additionalProperties") is False and "if" in schema:
                wanted = dict.fromkeys(["name", "phone", "contactMethod"])
            return {name: GIVEN.get(name) or sample(schema["properties"][name], whole) for name in wanted}
        case "object":
            return {}
    return "x"


def plan(tools: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of an agent that tries everything: name and arguments."""
    calls = list[tuple[str, dict[str, Any]]]()
    for tool in tools:
        name, listed = tool["name"], re.findall(r"^- (.*)$", tool["description"], re.MULTILINE)
        if name.endswith("_read_resource"):
            uris = [re.split(r": | \(fill", line)[0] for line in listed]
            calls += [(name, {"uri": re.sub(r"\{[^}]*\}", "1", uri)}) for uri in uris if " more" not in uri]
        elif name.endswith("_get_prompt"):
            for line in listed:
                prompt, words = re.split(r"[: ]", line)[0], re.findall(r"\(arguments: (.*)\)$", line)[0]
                given = {} if words == "none" else {each: GIVEN.get(each, "x") for each in words.split(", ")}
                calls.append((name, {"name": prompt, "arguments": given}))
        else:
            calls.append((name, GIVEN.get(name) or sample(tool["args_schema"])))
    return calls


def answered(messages: Sequence[dict[str, Any]]) -> int:
    """Return the number of calls that have results."""
    return sum(message["role"] == "tool" for message in messages)


async def drive(row: Row, source: Any) -> None:
    """Run an agent that tries everything that a server offers, and fill the row."""

    def choose(messages: Any, header: Any) -> Any:
        if messages[0]["content"] != "Try everything.":
            return "A rose is a rose."
        calls, done = plan(header.tools or ()), answered(messages)
        return gesta.call(calls[done][0], **calls[done][1]) if done < len(calls) else "Done."

    def hear(event: Any) -> None:
        row.progress += event.type == "observation" and PROGRESS.fullmatch(str(event.content)) is not None

    asked = Counter[int]()
    limits = gesta.Limits(requests=None, calls=None)
    agent = gesta.Agent("all", model=gesta.function(choose), tools=[source], policy=gesta.Policy(limits=limits))
    async with gesta.open() as record:
        with anyio.fail_after(60):
            outcome = await record.run(agent, "Try everything.", session="s", listener=hear)
            while outcome.reason == "waiting":
                for waiting in outcome.waiting:
                    if waiting.what != "question":
                        row.odd.append(f"{waiting.tool}: {waiting.what}")
                        await record.resolve(waiting, "failed", by="Ada", result="in doubt")
                        continue
                    asked[waiting.call] += 1
                    (form, *_) = (waiting.schema or {}).get("anyOf", [waiting.schema])
                    said = sample(form) if asked[waiting.call] < PATIENCE else "decline"
                    await record.answer(waiting, said, by="Ada")
                outcome = await record.resume("s", agent, listener=hear)
        entries = await record.read(outcome.run)
        row.sampled = sum("sampling" in each.name for each in await record.store.runs("s"))
    if outcome.answer != "Done.":
        row.odd.append(f"the turn ended {outcome.reason}: {outcome.error}")
    count(row, entries)


def count(row: Row, entries: Sequence[Entry]) -> None:
    """Fill the row with counts of what is on record."""
    contents = [each.content for each in entries]
    headers = [each for each in contents if isinstance(each, RequestHeaderContent)]
    row.asked = sum(isinstance(each, QuestionContent) for each in contents)
    row.lists = len(headers)
    offered = {tool["name"] for each in headers for tool in each.tools or ()}
    row.tools = sum(not name.endswith(("_read_resource", "_get_prompt")) for name in offered)
    named = plan(headers[-1].tools or ()) if headers else []
    row.resources = sum(name.endswith("_read_resource") for name, _ in named)
    row.prompts = sum(name.endswith("_get_prompt") for name, _ in named)
    results = [each for each in contents if isinstance(each, ToolResultContent)]
    calls = {each.seq: each.content for each in entries if isinstance(each.content, ToolCallContent)}
    for result in results:
        call = calls[result.call or 0]
        name, args = call.tool_name, call.tool_args
        row.attached += bool(result.document)
        if result.outcome == "ok":
            row.ok += 1
            continue
        row.failed += 1
        found = (row.server, row.protocol, name, str(result.tool_result))
        if not any(all(map(re.search, each, found)) for each in FAILS):
            row.odd.append(f"{name} {args}: {str(result.tool_result)[:300]}")
    row.odd[3:] = [f"and {len(row.odd) - 3} more"] if len(row.odd) > 3 else []


@contextmanager
def over_http(python: str, path: Path, errors: Any, **options: Any) -> Iterator[Any]:
    """Start a server over HTTP, and yield it as a source of tools when it accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [python, str(LAUNCH), str(path), str(port)]
    with subprocess.Popen(command, stdout=errors, stderr=errors, stdin=subprocess.DEVNULL, cwd=path.parent) as server:
        try:
            while server.poll() is None:
                with socket.socket() as knocking:
                    if knocking.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            else:
                raise RuntimeError("the server ended")
            where = "/api/" if "starlette_mount" in str(path) else "/mcp"
            yield gesta.mcp(f"http://127.0.0.1:{port}{where}", sampling=True, **options)
        finally:
            server.terminate()


def tried(python: str, path: Path, row: Row) -> Row | None:
    """Start a server, and let an agent try everything that it offers.

    Return `None` if it does not support the transport.
    """
    name, transport = row.server, row.transport
    headers = next((each for part, each in HEADERS.items() if part in name), {})
    with tempfile.TemporaryFile("w+") as errors:
        try:
            if transport == "stdio":
                command = [python, str(LAUNCH), str(path)]
                anyio.run(drive, row, gesta.mcp(command, cwd=str(path.parent), sampling=True, protocol=row.protocol))
            else:
                with over_http(python, path, errors, headers=headers, protocol=row.protocol) as source:
                    anyio.run(drive, row, source)
        except Exception as failure:  # noqa: BLE001 - reported in the table
            errors.seek(0)
            told = errors.read()
            if NO_HTTP in told or NO_SERVER in f"{told}{failure}":
                return None
            said = traceback.format_exception_only(failure)[-1].strip()
            row.odd.append(f"{said[:1500]} {told[-800:]}")
    return row


def tell(row: Row) -> None:
    """Print a row."""
    print("|", " | ".join(row.cells), "|", *(f"\n  ODD {each}" for each in row.odd), flush=True)


def main() -> None:
    """Try the servers, and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("names", nargs="*")
    options.add_argument("--command", action="append", default=[], help="another server, over stdio; may be repeated")
    options.add_argument("--python", default=sys.executable)
    given = options.parse_args()
    for picture in given.folder.glob("*/mcp.png"):
        for name in ("image_path", "file_path", "path", "filename"):
            GIVEN[name] = str(picture.resolve())
    logging.getLogger("gesta").setLevel(logging.ERROR)
    rows, left = list[Row](), list[tuple[str, str]]()
    for path in sorted({*chain.from_iterable(given.folder.glob(place) for place in PLACES)}):
        name = str(path.relative_to(given.folder))
        if given.names and not any(each in name for each in given.names):
            continue
        why = next((why for part, why in LEFT_OUT.items() if re.search(part, f"/{name}")), None)
        if why is not None and "bearer" not in name:
            left.append((name, why))
            continue
        transports = ("http",) if re.search(WEB_ONLY, name) else ("stdio", "http")
        versions = (NEWEST, OLDER) if re.search(WITHIN, name) else (NEWEST,)
        for transport, version in product(transports, versions):
            row = tried(given.python, path.resolve(), Row(name, transport, version))
            if row is None:
                continue
            rows.append(row)
            tell(row)
    for command in given.command:
        row = Row(command, "stdio")
        anyio.run(drive, row, gesta.mcp(command, sampling=True))
        rows.append(row)
        tell(row)
    for name, why in left:
        print(f"left out: {name}: {why}")
    totals = [f"{each} {sum(getattr(row, each) for row in rows)}" for each in Row.__struct_fields__[3:-1]]
    print(len(rows), "rows;", ", ".join(totals))
    raise SystemExit(any(row.odd for row in rows))


if __name__ == "__main__":
    main()
