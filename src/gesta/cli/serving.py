"""The command `serve`, which lets other programs use agents over HTTP or the Model Context Protocol."""

import logging
import sys

from gesta.cli.app import command
from gesta.cli.serve_options import ServeCommandOptions
from gesta.cli.talk import Stop


@command(ServeCommandOptions, example="gesta serve agent.py:agent --port 8420")
def serve(options: ServeCommandOptions) -> int:
    """Serve agents over HTTP, for pages and for chat clients.

    Clients written for OpenAI's API can use the server too. The server ends on SIGTERM or Ctrl-C: running turns stay
    open, and continue at the next start, or in another process.
    """
    if options.read and options.agents:
        raise Stop("--read serves the record alone. Leave the agents out, or leave out --read.")
    if not options.read and not options.agents:
        raise Stop("Name an agent, as in gesta serve agent.py:agent; or --read, to serve the record alone.")
    if options.describe and not (options.mcp or options.stdio):
        raise Stop("--describe is for clients of MCP. Add --mcp or --stdio.")
    if options.path and (options.stdio or options.read):
        raise Stop("--path is for agents over HTTP: by --stdio and --read nothing else is served. Leave it out.")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    if options.mcp or options.stdio or options.read:
        from gesta.cli import mcp

        mcp.serve(options)
    else:
        from gesta.cli import http

        http.serve(options)
    return 0
