"""Runs one example server: `python launch.py FILE [PORT]`, over stdio, or over streamable HTTP if there is a port.

It needs only the package `mcp`. An example defines a server, a function that builds one, or a program with options of
its own.
"""

import importlib.util
import runpy
import sys
from pathlib import Path
from typing import Any

NO_HTTP, NO_SERVER = "is not made for HTTP", "defines no server"


def module_of(path: Path) -> Any:
    """Return the module of a file, imported under the full name that the packages around it give it."""
    parts = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    if len(parts) > 1 and parts[-1] != "__main__":
        return importlib.import_module(".".join(parts))
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["example"] = module
    spec.loader.exec_module(module)
    return module


def server_in(module: Any) -> Any:
    """Return the server that a module defines or builds; `None` if there is none."""
    if hasattr(module, "build_server"):
        return module.build_server()
    for each in vars(module).values():
        if type(each).__name__ in ("MCPServer", "FastMCP", "Server") and type(each).__module__.startswith("mcp."):
            return each
    return None


async def over_stdio(server: Any) -> None:
    """Serve over standard input and output."""
    if hasattr(server, "run_stdio_async"):
        await server.run_stdio_async()
        return
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def over_http(app: Any, port: int) -> None:
    """Serve an ASGI application over HTTP."""
    import uvicorn

    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error")).serve()


def main() -> None:
    """Run the server that a file defines."""
    path, port = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    text = path.read_text(encoding="utf-8")
    import anyio

    if "@click.command" in text:
        if port and "--transport" in text and "streamable-http" not in text:
            raise SystemExit(f"{path} {NO_HTTP}")
        over = ["--transport", "streamable-http" if port else "stdio"] if "--transport" in text else []
        sys.argv = [str(path), *over, *(["--port", str(port)] if port else [])]
        main_of = getattr(module_of(path), "main", None)
        raise SystemExit(main_of() if main_of is not None else runpy.run_path(str(path), run_name="__main__"))
    module = module_of(path)
    if hasattr(module, "build_app"):
        anyio.run(over_http, module.build_app(), port)
    server = server_in(module)
    if server is None:
        raise SystemExit(f"{path} {NO_SERVER}")
    if not port:
        anyio.run(over_stdio, server)
    elif hasattr(server, "streamable_http_app"):
        anyio.run(over_http, server.streamable_http_app(), port)
    else:
        raise SystemExit(f"{path} {NO_HTTP}")


if __name__ == "__main__":
    main()
