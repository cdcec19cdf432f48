"""What programs do with servers of their own; prints a line for each thing that works."""

import asyncio, errno, http.server, os, select, signal, socket, threading, time, urllib.request

port = int(os.environ["PORT"])


def worked(what):
    print(what, flush=True)


def answer(address, family=socket.AF_INET, timeout=5):
    with socket.socket(family) as client:
        client.settimeout(timeout)
        client.connect(address)
        return client.recv(99)


def serve(listener, text):
    def accept():
        while True:
            try:
                peer = listener.accept()[0]
            except OSError:
                return
            peer.sendall(text)
            peer.close()

    threading.Thread(target=accept, daemon=True).start()


def listen(address, family=socket.AF_INET, backlog=5):
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(backlog)
    return listener


# A port of the place is taken there, and free here.
first = listen(("127.0.0.1", port))
serve(first, b"mine")
assert answer(("127.0.0.1", port)) == b"mine"
assert answer(("127.9.9.9", port)) == b"mine"
assert answer(first.getsockname()) == b"mine"
worked("a port that the machine has in use")

free = listen(("", 0))
serve(free, b"any")
number = free.getsockname()[1]
assert answer(("127.0.0.1", number)) == b"any"
try:
    listen(("127.0.0.1", number))
    raise SystemExit("bound twice")
except OSError as error:
    assert error.errno == errno.EADDRINUSE
worked("a port of its own twice is in use")

six = listen(("::1", number), socket.AF_INET6)
serve(six, b"six")
assert answer(("::1", number), socket.AF_INET6) == b"six"
assert answer(("127.0.0.1", number)) == b"any"
worked("both loopbacks")
both = listen(("::", 0), socket.AF_INET6)
serve(both, b"both")
number = both.getsockname()[1]
assert answer(("::1", number), socket.AF_INET6) == b"both"
assert answer(("127.0.0.1", number)) == b"both"
worked("a server on all addresses")

# A server that ends is gone at once, and its port is free again.
for _ in range(3):
    again = listen(("127.0.0.1", 0))
    number = again.getsockname()[1]
    serve(again, b"again")
    assert answer(("127.0.0.1", number)) == b"again"
    again.shutdown(socket.SHUT_RDWR)
    again.close()
    try:
        answer(("127.0.0.1", number))
        raise SystemExit("a closed server answers")
    except ConnectionRefusedError:
        pass
    again = listen(("127.0.0.1", number))
    serve(again, b"new")
    assert answer(("127.0.0.1", number)) == b"new"
worked("a server that is started again")

# Workers that share a socket, each of which calls listen.
shared = socket.socket()
shared.bind(("127.0.0.1", 0))
number = shared.getsockname()[1]
for _ in range(2):
    if os.fork() == 0:
        shared.listen(5)
        peer = shared.accept()[0]
        peer.sendall(b"worker")
        time.sleep(5)
        os._exit(0)
for _ in range(100):
    try:
        assert answer(("127.0.0.1", number)) == b"worker"
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
worked("workers")

# Without blocking, as event loops do; the end of a connection is seen by its peer.
client = socket.socket()
client.setblocking(False)
code = client.connect_ex(("127.0.0.1", port))
assert code in (0, errno.EINPROGRESS), code
select.select([], [client], [], 5)
assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert client.connect_ex(("127.0.0.1", port)) == errno.EISCONN
quiet = listen(("127.0.0.1", 0))
client = socket.create_connection(quiet.getsockname())
peer = quiet.accept()[0]
assert peer.getpeername() == client.getsockname()
client.close()
peer.settimeout(2)
assert peer.recv(1) == b""
worked("without blocking")

# A full queue: clients wait, and hold up nobody else. Some of them get through later, as the kernel
# sends again what it had dropped.
slow = listen(("127.0.0.1", 0), backlog=0)
blocking = {"timeout": None}
clients = [threading.Thread(target=answer, args=(slow.getsockname(),), kwargs=blocking, daemon=True) for _ in range(6)]
for thread in clients:
    thread.start()
time.sleep(0.3)
assert answer(("127.0.0.1", port)) == b"mine"
serve(slow, b"slow")
for _ in range(150):
    if sum(not thread.is_alive() for thread in clients) > 1:
        break
    time.sleep(0.1)
else:
    raise SystemExit("no client that waited was served")
worked("a full queue")

# Signals, which Go programs get all the time.
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(300):
    assert answer(("127.0.0.1", port)) == b"mine"
signal.setitimer(signal.ITIMER_REAL, 0)
worked("signals")


async def streams():
    async def echo(reader, writer):
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "localhost", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(b"line\n")
    assert await reader.readline() == b"line\n"
    writer.close()


asyncio.run(streams())
site = http.server.ThreadingHTTPServer(("", 0), http.server.SimpleHTTPRequestHandler)
site.RequestHandlerClass.log_message = lambda *_: None
threading.Thread(target=site.serve_forever, daemon=True).start()
with urllib.request.urlopen(f"http://localhost:{site.server_port}/") as page:
    assert page.status == 200
worked("asyncio and http")
os._exit(0)
