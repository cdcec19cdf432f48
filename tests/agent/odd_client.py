"""Makes a call in each form to `odd_server.py` with the official Python SDK, one line of JSON for each.

    odd_client.py SERVER.py STARTS FORM...
"""

import asyncio
import json
import logging
import sys

from mcp import Client, StdioServerParameters

# Lines that it cannot read.
logging.disable(logging.CRITICAL)


async def call(server, starts, form):
    program = StdioServerParameters(command=sys.executable, args=[server, starts, "plainly"])
    async with Client(program) as client:
        try:
            result = await client.call_tool("write", {"form": form}, read_timeout_seconds=4)
        except Exception as error:  # Every failure of the call is an outcome.
            return "time-out" if "timed out" in str(error) else type(error).__name__
    return "\n".join(getattr(part, "text", f"[{part.type}]") for part in result.content)


async def main(server, starts, *forms):
    outcomes = await asyncio.gather(*(call(server, starts, form) for form in forms))
    for form, outcome in zip(forms, outcomes):
        print(json.dumps({"form": form, "outcome": outcome}))


asyncio.run(main(*sys.argv[1:]))
