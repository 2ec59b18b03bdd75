"""A small MCP server for tests, without the library: it starts fast, does what its tools say, and may be killed.

python mcp_server.py FOLDER [WORDS]: effects are lines in FOLDER/effects, notifications lines in FOLDER/requests. With
words, it says them on its standard error and ends; with `--http`, it writes its port to FOLDER/port, and is served by a
process that is begun anew whenever it was killed, while the port stays open.
"""

import json
import os
import signal
import socket
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
LOCK = threading.Lock()
WAITING: dict[str, tuple[threading.Event, list[Any]]] = {}
NUMBERS = count()
TOGETHER = threading.Barrier(2)


def tool(name: str, **hints: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
    return {"name": name, "description": f"{name} an item.", "inputSchema": schema} | (
        {"annotations": hints} if hints else {}
    )


TOOLS = [
    tool("look", readOnlyHint=True),
    tool("put", idempotentHint=True),
    tool("pay"),
    tool("choose"),
    tool("compose", readOnlyHint=True),
    tool("slow", readOnlyHint=True),
    tool("safe_choose", readOnlyHint=True),
    tool("more", readOnlyHint=True),
    tool("steps", readOnlyHint=True),
    tool("fail"),
]


def send(message: dict[str, Any]) -> None:
    with LOCK:
        print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


def note(file: str, line: str) -> None:
    with LOCK, (FOLDER / file).open("a") as out:
        out.write(line + "\n")


def ask(method: str, params: dict[str, Any]) -> Any:
    known = f"s{next(NUMBERS)}"
    event, answer = WAITING[known] = threading.Event(), []
    send({"id": known, "method": method, "params": params})
    event.wait()
    return answer[0]


def mark(name: str) -> bool:
    """Whether the test wants something to happen now, once."""
    try:
        (FOLDER / name).unlink()
    except FileNotFoundError:
        return False
    return True


def die(when: str) -> None:
    if mark(f"die-{when}"):
        os.kill(os.getpid(), signal.SIGKILL)


def hold(when: str) -> None:
    """Wait until the test has heard that the call is here, and lets it go on."""
    if mark(f"hold-{when}"):
        (FOLDER / "begun").write_text("")
        (FOLDER / "go").read_text()


def meet(wanted: bool) -> None:
    """Wait until the other one of two calls is as far as this one."""
    if wanted:
        TOGETHER.wait()


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]} | more


def call(params: dict[str, Any]) -> dict[str, Any]:
    name, item, meta = params["name"], params["arguments"]["item"], params.get("_meta", {})
    key = meta.get("gesta/idempotency-key", "")
    die("before")
    hold("before")
    if name == "compose":
        asked = {"messages": [{"role": "user", "content": {"type": "text", "text": f"Praise {item}."}}], "maxTokens": 9}
        found = ask("sampling/createMessage", asked)
        return text(
            found["result"]["content"]["text"] if "result" in found else f"no model: {found['error']['message']}"
        )
    if name.endswith("choose"):
        schema = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}
        meets = mark("meet-one") or mark("meet-other")
        meet(meets)
        found = ask("elicitation/create", {"message": f"Which size of {item}?", "requestedSchema": schema})
        meet(meets)
        if "error" in found:
            return text(found["error"]["message"], isError=True)
        said = found["result"]
        item = f"{item} {said.get('content', {}).get('size', said['action'])}"
    if name == "more":
        TOOLS.append(tool(item, readOnlyHint=True))
        send({"method": "notifications/tools/list_changed"})
    if name == "steps":
        for done in (1, 2):
            told = {"progressToken": meta["progressToken"], "progress": done, "total": 2, "message": item}
            send({"method": "notifications/progress", "params": told})
    if name == "slow":
        send({"method": "notifications/progress", "params": {"progressToken": meta["progressToken"], "progress": 1}})
        threading.Event().wait(30)
    if name == "fail":
        return text(f"no {item} left", isError=True)
    if not (name == "put" and key and key in (FOLDER / "keys").read_text().split()):
        note("effects", f"{name} {item}")
        note("keys", key)
    hold("after")
    die("after")
    if (FOLDER / "odd").exists():
        return json.loads((FOLDER / "odd").read_text())
    return text(f"{name}: {item}")


def answer(message: dict[str, Any]) -> None:
    send(answered(message))


def answered(message: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message.get("params", {})
    listed = {"tools": TOOLS, "resources": [{"uri": "shop://list", "name": "list"}], "resourceTemplates": []}
    listed["prompts"] = [{"name": "greet", "arguments": [{"name": "who"}]}]
    match method.split("/"):
        case ["initialize"]:
            can = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
            info = {"name": "shop", "version": "1.2"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": can, "serverInfo": info}
        case ["tools", "call"]:
            result = call(params)
        case ["resources", "read"]:
            result = {"contents": [{"uri": params["uri"], "text": "bread, soup"}]}
        case ["prompts", "get"]:
            said = f"Greet {params['arguments']['who']}."
            result = {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
        case [*_, "list"]:
            name = "resourceTemplates" if "templates" in method else method.partition("/")[0]
            result = {name: listed[name]}
        case _:
            return {"id": message["id"], "error": {"code": -32601, "message": f"no {method}"}}
    return {"id": message["id"], "result": result}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    session = os.urandom(8).hex()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        calls = message["method"] == "tools/call"
        if self.path != "/mcp":
            return self.reply(404, None)
        if calls and ((FOLDER / "forgetful").exists() or mark("forget")):
            Handler.session = os.urandom(8).hex()
        if message["method"] == "initialize":
            Handler.session = os.urandom(8).hex()
        elif self.headers.get("mcp-session-id") != self.session:
            return self.reply(404 if "mcp-session-id" in self.headers else 400, None)
        note("headers", self.headers.get("authorization", ""))
        if "id" not in message:
            note("requests", message["method"])
            return self.reply(202, None)
        found = {"jsonrpc": "2.0"} | answered(message)
        if calls and (FOLDER / "status").exists():
            status = int((FOLDER / "status").read_text())
            (FOLDER / "status").unlink()
            body = (FOLDER / "body").read_bytes() if (FOLDER / "body").exists() else None
            kind = (FOLDER / "type").read_text() if (FOLDER / "type").exists() else "application/json"
            return self.reply(status, body, kind)
        return self.reply(200, found)

    def do_GET(self) -> None:
        self.reply(405, None)

    def do_DELETE(self) -> None:
        if (FOLDER / "stuck").exists():
            threading.Event().wait()
        self.reply(405, None)

    def reply(self, status: int, body: Any, kind: str = "application/json") -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if status in (302, 303):
            self.send_header("location", "https://login.example/?next=1")
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("mcp-session-id", self.session)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def end(child: int, *_: object) -> None:
    os.kill(child, signal.SIGKILL)
    os._exit(0)


def serve() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    (FOLDER / "port.new").write_text(str(listening.getsockname()[1]))
    (FOLDER / "port.new").rename(FOLDER / "port")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        if (child := os.fork()) == 0:
            note("starts", str(os.getpid()))
            server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
            server.socket.close()
            server.socket = listening
            Handler.session = os.urandom(8).hex()
            server.serve_forever()
        signal.signal(signal.SIGTERM, partial(end, child))
        os.waitpid(child, 0)


def main() -> None:
    (FOLDER / "keys").touch()
    if "--http" in sys.argv:
        serve()
    if len(sys.argv) > 2:
        sys.stderr.write(" ".join(sys.argv[2:]) + "\n")
        raise SystemExit(3)
    note("starts", str(os.getpid()))
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            event, found = WAITING[message["id"]]
            found.append(message)
            event.set()
        elif "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()
        else:
            note("requests", message["method"])


if __name__ == "__main__":
    main()
