"""A model's server as a process of its own, which a test kills.

    model.py PORT LOG half CALL       begins an answer with the call and says no more; prints a line then
    model.py PORT LOG whole CALL      makes the call, then says that it is done

PORT 0 takes a free one; the first line that is printed is the port. The body of each request for an answer is a line
of LOG. CALL is JSON: the tool's name, and the arguments in pieces.
"""

import http.server
import json
import sys
import time

PORT, LOG, HOW, CALL = sys.argv[1:]
name, *pieces = json.loads(CALL)


class Handler(http.server.BaseHTTPRequestHandler):
    answers = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_error(404)

    def say(self, delta, end=None):
        choice = {"index": 0, "delta": delta, "finish_reason": end}
        self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self.path.endswith("/chat/completions"):
            self.send_error(404)
            return
        with open(LOG, "ab") as log:
            log.write(body + b"\n")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if Handler.answers:
            self.say({"content": "Done."}, "stop")
            return
        Handler.answers += 1
        self.say({"tool_calls": [{"index": 0, "id": "a", "function": {"name": name, "arguments": ""}}]})
        for piece in pieces:
            self.say({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        if HOW == "half":
            print("half", flush=True)
            time.sleep(3600)
        self.say({}, "tool_calls")


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(PORT)), Handler)
print(server.server_port, flush=True)
server.serve_forever()
