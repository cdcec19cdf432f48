# A program of a sandbox that listens on a port, for the tests of previews: it says what it was asked, answers in
# pieces, and speaks WebSocket.
import base64, hashlib, http.server, json, socketserver, struct, sys, threading, time

go = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def say(self, body, *headers, status=200):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, text):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def do_GET(self):
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.chunk(b"first\n")
            # The second piece comes when somebody who has read the first one says so.
            go.wait(60)
            self.chunk(b"second\n")
            self.chunk(b"")
        elif self.path == "/go":
            go.set()
            self.say(b"gone")
        elif self.path == "/large":
            self.say(b"x" * (32 << 20))
        elif self.path == "/slow":
            time.sleep(600)
        elif self.path == "/garbage":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
            self.close_connection = True
        elif self.path == "/head":
            self.say(b"", ("X-Long", "x" * 100000))
        elif self.path == "/odd":
            self.say(
                b"moved",
                ("Location", "http://localhost:%d/next" % self.server.server_address[1]),
                ("Set-Cookie", "mine=1; Domain=localhost; Path=/"),
                ("Set-Cookie", "glovebox=planted; Path=/"),
                ("Set-Cookie", "glovebox-preview=planted; Path=/"),
                ("Clear-Site-Data", '"cookies"'),
                ("Strict-Transport-Security", "max-age=9"),
                status=302,
            )
        elif self.path == "/socket":
            self.socket()
        elif self.path.startswith("/files/"):
            with open(self.path.rsplit("/", 1)[1], "rb") as file:
                self.say(file.read(), ("Content-Type", "text/html; charset=utf-8"))
        else:
            self.say(json.dumps([self.path, self.headers.items()]).encode())

    def do_POST(self):
        length = self.headers["Content-Length"]
        if length is not None:
            body = self.rfile.read(int(length))
        else:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        self.say(json.dumps([len(body), hashlib.sha256(body).hexdigest()]).encode())

    def socket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            kind, length = head[0], head[1] & 127
            if length == 126:
                (length,) = struct.unpack(">H", self.rfile.read(2))
            mask = self.rfile.read(4)
            text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
            self.wfile.write(bytes([kind, length]) + text)
            self.wfile.flush()
            if kind & 15 == 8:
                return


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 100


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
