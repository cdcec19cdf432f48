"""What a rule asks about, asked of the user of the official Python SDK's client.

    asks.py stdio GLOVEBOX [ARG...]      starts the server itself, in the current directory
    asks.py http URL TOKEN               calls one that runs

The project's rules must ask about `Bash(touch *)`. Everything is asserted; the last line printed is `ok`.
"""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

try:
    import httpx2 as httpx
except ImportError:
    import httpx


def text_of(result):
    return "".join(part.text for part in result.content if part.type == "text")


class User:
    """Answers as told, and remembers what was asked."""

    def __init__(self):
        self.asked = []
        self.answer = None

    async def __call__(self, context, params):
        self.asked.append(params)
        # The first time longer than the call itself may take.
        await asyncio.sleep(1.5 if len(self.asked) == 1 else 0)
        action, content = self.answer
        return ElicitResult(action=action, content=content)


async def touch(client, name):
    result = await client.call_tool("Bash", {"command": f"touch {name}", "timeout_ms": 1000})
    return bool(result.is_error), text_of(result)


async def exists(client, name):
    result = await client.call_tool("Bash", {"command": f"test -e {name} && echo there || echo gone"})
    return "there" in text_of(result)


async def asked(client, user):
    user.answer = ("accept", {"allow": True})
    is_error, text = await touch(client, "yes")
    assert not is_error and await exists(client, "yes"), text
    (question,) = user.asked
    for part in ("Bash", "touch yes", "ask Bash(touch *)"):
        assert part in question.message, question.message
    assert question.requested_schema["properties"]["allow"]["type"] == "boolean", question
    for action, content, part in [
        ("decline", None, "the user said no"),
        ("cancel", None, "closed the question"),
        ("accept", {"allow": False}, "the user said no"),
        ("accept", {}, "neither yes nor no"),
    ]:
        user.answer = (action, content)
        is_error, text = await touch(client, "no")
        assert is_error and part in text and "Bash" in text, text
    assert not await exists(client, "no")
    assert len(user.asked) == 5, user.asked


async def not_asked(client):
    is_error, text = await touch(client, "no")
    assert is_error and "nobody to ask" in text and "elicitation" in text, text
    assert not await exists(client, "no")


async def main():
    kind, *rest = sys.argv[1:]

    def server():
        if kind == "stdio":
            program, *arguments = rest
            return StdioServerParameters(command=program, args=["mcp", *arguments], env=dict(os.environ))
        return streamable_http_client(rest[0], http_client=http)

    token = rest[1] if kind == "http" else ""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        user = User()
        async with Client(server(), elicitation_callback=user) as client:
            await asked(client, user)
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        async with Client(server()) as client:
            await not_asked(client)
    print("ok")


asyncio.run(main())
