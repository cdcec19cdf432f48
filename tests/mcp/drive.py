"""Drives every tool of `glovebox mcp` with the official Python SDK, as an agent's program would.

    drive.py stdio GLOVEBOX [ARG...]      starts the server itself, in the current directory
    drive.py http URL TOKEN               calls one that runs

The project must hold `a.txt` ("one\\ntwo\\n") and `src/main.py`. Everything is asserted; the last line
printed is `ok`.
"""

import asyncio
import os
import sys
import time

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

try:
    import httpx2 as httpx
except ImportError:
    import httpx


# Asks for the facts of a result.
FACTS = {"glovebox/facts": True}


def text_of(result):
    return "".join(part.text for part in result.content if part.type == "text")


async def call(client, tool, is_error=False, **arguments):
    result = await client.call_tool(tool, arguments, meta=FACTS)
    text = text_of(result)
    assert bool(result.is_error) == is_error, f"{tool} {arguments}: {text}"
    # Hosts hand a model nothing but the structured content where there is some.
    assert result.structured_content is None and text, result
    facts = result.meta["glovebox/facts"]
    assert isinstance(facts, dict), result
    return text, facts


async def places(client):
    # The first result says where the work is, and each says it to a client's program that asks.
    result = await client.call_tool("List", {}, meta=FACTS)
    name = result.meta["glovebox/sandbox"]
    assert len(result.content) == 1 and f"`glovebox pull {name}`" in result.content[0].text, result
    again = await client.call_tool("List", {}, meta=FACTS)
    assert again.meta["glovebox/sandbox"] == name and "pull" not in text_of(again), again
    # Some hosts show `_meta` to their model.
    plain = await client.call_tool("List", {})
    assert plain.meta is None, plain


async def files(client):
    text, _ = await call(client, "Read", path="a.txt")
    assert text == "     1\tone\n     2\ttwo\n", text
    text, _ = await call(client, "List")
    assert "a.txt" in text and "src/" in text, text
    text, _ = await call(client, "Glob", pattern="**/*.py")
    assert text == "src/main.py\n", text
    text, facts = await call(client, "Grep", pattern="tw[o]")
    assert "two" in text, text
    text, _ = await call(client, "Write", path="new/file.txt", content="from an agent\n")
    text, _ = await call(client, "Edit", path="a.txt", old="two", new="three")
    assert "-two" in text and "+three" in text, text
    # The bytes of a picture come as a picture.
    await call(client, "Bash", command="printf 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==' | base64 -d > dot.png")
    result = await client.call_tool("Read", {"path": "dot.png"})
    kinds = [part.type for part in result.content]
    assert not result.is_error or "image" not in kinds, result


async def commands(client):
    text, facts = await call(client, "Bash", command="cat new/file.txt; echo err >&2")
    assert text.startswith("from an agent\nerr\n[exit code 0"), text
    assert facts["exit_code"] == 0 and facts["call"].startswith("call-"), facts
    # A command that has run is no error of the tool, whatever it came to.
    text, facts = await call(client, "Bash", command="exit 3")
    assert facts["exit_code"] == 3, facts
    text, facts = await call(client, "Bash", command="echo begun; sleep 300", wait_ms=300)
    job = facts["job"]
    assert facts["running"] is True, facts
    text, _ = await call(client, "Job", action="read", id=job)
    assert text.startswith("begun\n"), text
    text, _ = await call(client, "Job", action="kill", id=job)
    assert "signal" in text, text
    for tool in (await client.list_tools()).tools:
        if tool.name == "Code":
            text, _ = await call(client, "Code", language="python", source="print(6 * 7)")
            assert "42" in text, text


async def mistakes(client):
    for tool, arguments, part in [
        ("Nothing", {}, "there is no tool"),
        ("Read", {}, "missing field `path`"),
        ("Read", {"path": "nowhere"}, "nowhere"),
        ("Grep", {"pattern": "("}, "pattern"),
    ]:
        text, facts = await call(client, tool, is_error=True, **arguments)
        assert part in text, text
        assert facts["class"] in ("failed", "refused") and facts["code"], facts


async def waiting(client):
    heard = []

    async def progress(done, total, message):
        heard.append((done, message))

    await client.call_tool("Bash", {"command": "sleep 2.4"}, progress_callback=progress)
    assert len(heard) == 2 and "Bash" in heard[0][1], heard
    # What a call was given up for goes on, and the next one tells of it.
    mark = f"9{time.time_ns() % 10**9}"
    giving_up = asyncio.create_task(client.call_tool("Bash", {"command": f"sleep {mark}; true"}))
    await asyncio.sleep(0.5)
    giving_up.cancel()
    try:
        await giving_up
        raise AssertionError("it was given up")
    except asyncio.CancelledError:
        pass
    for _ in range(100):
        text, _ = await call(client, "Bash", command="true")
        if "whose call was given up, still runs" in text:
            break
        await asyncio.sleep(0.05)
    else:
        raise AssertionError(text)
    text, facts = await call(client, "Job", action="list")
    job = next(job["job"] for job in facts["jobs"] if job["state"] == "running")
    assert mark in text, text
    await call(client, "Job", action="kill", id=job)
    many = await asyncio.gather(*(call(client, "Read", path="src/main.py") for _ in range(40)))
    assert len({text for text, _ in many}) == 1


async def resources(client):
    text, facts = await call(client, "Bash", command="seq 3")
    found = {str(resource.uri) for resource in (await client.list_resources()).resources}
    log = f"glovebox://jobs/{facts['job']}"
    assert {"glovebox://changes", log} <= found, found
    read = await client.read_resource(log)
    assert read.contents[0].text == "1\n2\n3\n", read
    read = await client.read_resource("glovebox://changes")
    patch = read.contents[0].text
    assert "+three" in patch and "+++ b/new/file.txt" in patch, patch
    templates = (await client.list_resource_templates()).resource_templates
    assert templates[0].uri_template == "glovebox://jobs/{id}", templates
    try:
        await client.read_resource("glovebox://jobs/999")
        raise AssertionError("there is no such job")
    except Exception as error:
        assert "999" in str(error), error


async def drive(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"Bash", "Job", "Read", "Write", "Edit", "List", "Glob", "Grep"} <= set(tools), tools
    assert tools["Read"].annotations.read_only_hint and not tools["Write"].annotations.read_only_hint
    assert all(tool.input_schema["type"] == "object" for tool in tools.values())
    assert "/workspace" in client.instructions, client.instructions
    for part in (places, files, commands, mistakes, waiting, resources):
        await part(client)
        print(part.__name__, flush=True)


async def main():
    kind, *rest = sys.argv[1:]
    if kind == "stdio":
        program, *arguments = rest
        server = StdioServerParameters(command=program, args=["mcp", *arguments], env=dict(os.environ))
        async with Client(server) as client:
            await drive(client)
    else:
        url, token = rest
        # What calls wait for is the server's to bound.
        http = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
        async with http, Client(streamable_http_client(url, http_client=http)) as client:
            await drive(client)
    print("ok")


asyncio.run(main())
