"""A small MCP server made with the official Python SDK, for an agent to use.

    server.py               on standard input and output
    server.py http TOKEN    on loopback; prints its port, and wants the token

`server.py broken` says something on standard error and ends before it says anything of the protocol.
"""

import asyncio
import os
import socket
import sys

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("desk")
READS = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READS)
def look(path: str) -> str:
    """What is in a file, and where the server is."""
    where = f"pid {os.getpid()} in {os.readlink('/proc/self/ns/pid')}"
    try:
        with open(path, encoding="utf-8") as file:
            return f"{where}: {file.read()}"
    except OSError as error:
        return f"{where}: {error.strerror}"


@server.tool()
def write(path: str, content: str) -> str:
    """Writes a file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    return "written"


@server.tool()
def variables() -> str:
    """The environment of the server."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


@server.tool()
def die() -> str:
    """Ends the server in the middle of the call."""
    print("out of paper", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
async def sleep() -> str:
    """Never answers."""
    await asyncio.sleep(3600)
    return "awake"


@server.tool()
def flood() -> str:
    """Says 10 MiB."""
    return "first\n" + "0123456789abcde\n" * (10 << 16) + "last"


@server.tool()
def fail() -> str:
    """Does not succeed."""
    raise ValueError("no ink")


def http(token):
    import uvicorn

    app = server.streamable_http_app()

    async def guarded(scope, receive, send):
        wanted = (b"authorization", f"Bearer {token}".encode())
        if scope["type"] == "http" and wanted not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await app(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(guarded, log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if sys.argv[1:2] == ["http"]:
    http(sys.argv[2])
elif sys.argv[1:2] == ["broken"]:
    print("the desk is on fire", file=sys.stderr, flush=True)
    sys.exit(7)
else:
    server.run()
