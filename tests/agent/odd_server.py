"""An MCP server whose messages are not to the letter. No SDK would say this.

    odd_server.py STARTS         on standard input and output; adds a line to the file at each start
    odd_server.py STARTS plainly the same, with nothing odd but the results of calls
    odd_server.py STARTS http    on loopback; prints its port

The one tool answers in the form that its argument names: the body of a result, an error, or (over HTTP) a whole answer.
"""

import http.server
import json
import sys

IS_PLAIN = sys.argv[2:] == ["plainly"]
TEXT = {"type": "text", "text": "row 7"}
DEEP = '{"content":[{"type":"text","text":"row 7"}],"_meta":{"x":%s1%s}}' % ("[" * 300, "]" * 300)
# What stands behind `"result":` or, with its own key, in the place of it.
FORMS = {
    "plain": {"content": [TEXT]},
    "audience": {"content": [{**TEXT, "annotations": {"audience": ["system"], "priority": "high"}}]},
    "link-without-name": {"content": [TEXT, {"type": "resource_link", "uri": "ui://1"}]},
    "new-type": {"content": [TEXT, {"type": "video", "data": "AAAA"}]},
    "image-without-type": {"content": [TEXT, {"type": "image", "data": "AAAA"}]},
    "tools-beside": {"content": [TEXT], "tools": []},
    "content-text": {"content": "row 7"},
    "half": {"content": [{"type": "text", "text": "row 7\ud83d"}]},
    "error-flag-text": {"content": [TEXT], "isError": "true"},
    "structured": {"structuredContent": {"row": 7}},
    "nothing": {},
    "a-list": [TEXT],
    "too-deep": DEEP,
    "not-finished": '{"content":[{"type":"text","text":"ro',
    "error-text": '"error":"out of ink"',
    "error-code-text": '"error":{"code":"E7","message":"out of ink","data":5}',
}


def answer(ident, form):
    """The line that answers a call."""
    body = FORMS.get(form, FORMS["plain"])
    body = body if isinstance(body, str) else json.dumps(body)
    key = "" if body.startswith('"error"') else '"result":'
    end = "" if form == "not-finished" else "}"
    return '{"jsonrpc":"2.0","id":%s,%s%s%s' % (json.dumps(ident), key, body, end)


def reply(asked):
    """The line that answers a request; none for a notification."""
    ident, method = asked.get("id"), asked.get("method")
    if ident is None:
        return None
    if method == "initialize":
        result = {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "prompts": True, "experimental": {"x": 1}},
            "serverInfo": {"name": "odd", "icons": 5},
        }
        if IS_PLAIN:
            result = {**result, "capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"form": {"type": "string"}}}
        result = {"tools": [{"name": "write", "inputSchema": schema}]} if IS_PLAIN else {
            "tools": [
                {"name": "write", "description": "Writes a row.", "inputSchema": schema, "icons": "none"},
                {"name": "list", "inputSchema": []},
                {"inputSchema": schema},
            ],
            "nextCursor": 7,
        }
    elif method == "tools/call":
        return answer(ident, asked["params"]["arguments"]["form"])
    else:
        result = {}
    return json.dumps({"jsonrpc": "2.0", "id": ident, "result": result})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.say(405, b"")

    def say(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"content_type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = json.loads(body)
        ident = asked.get("id")
        form = asked["params"]["arguments"]["form"] if asked["method"] == "tools/call" else ""
        here = f"http://127.0.0.1:{self.server.server_port}"
        line = reply(asked)
        if line is None:
            self.say(202, b"")
        elif form in ("401", "403", "418", "503"):
            self.say(int(form), b"<p>no</p>", content_type="text/html", retry_after="9")
        elif form == "429":
            self.say(429, b"", retry_after="7")
        elif form == "moved" and self.path == "/mcp":
            self.say(307, b"", location="/moved?x=1")
        elif form == "for-good" and self.path.startswith("/mcp"):
            self.say(301, b"", location=f"{here}/other?key=planted-in-query")
        elif form == "elsewhere":
            self.say(307, b"", location="https://me:planted@other.test/mcp?key=planted-in-query")
        elif form == "round":
            self.say(308, b"", location=self.path)
        elif form == "empty":
            self.say(200, b"")
        elif form == "page":
            self.say(200, b"<html>please log in</html>", content_type="text/html")
        elif form == "no-type":
            self.say(200, line.encode(), content_type="text/plain")
        elif form == "error-without-id":
            self.say(400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}')
        elif form == "list":
            note = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
            self.say(200, f"[{note},{line}]".encode())
        elif form in ("events", "broken-off"):
            events = b": hello\r\n\r\nevent: ping\r\ndata: not JSON\r\n\r\nunknown: 1\r\nbare\r\ndata: also not\r\n\r\n"
            if form == "events":
                events += b"event: message\r\ndata: " + line.encode() + b"\r\n\r\n"
            self.say(200, events, content_type="text/event-stream; charset=utf-8")
        else:
            self.say(200, line.encode())


with open(sys.argv[1], "a", encoding="utf-8") as starts:
    starts.write("started\n")
if sys.argv[2:] == ["http"]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
for line in sys.stdin:
    told = reply(json.loads(line))
    if told is not None:
        noise = "" if IS_PLAIN else "a line of a log\n\n{\"jsonrpc\":\"2.0\",\"method\":5}\n"
        print(noise + told, flush=True)
