"""Tries to reach a server outside from a sandbox without namespaces.

Arguments: the attack, and a port at which a server of the machine answers `outside`, or takes the
port as soon as it can. Prints a line for each success of an attack, then `own N`: the number of
times that a server of the sandbox was reached in the same way.
"""

import ctypes, os, socket, struct, sys, threading, time

LIBC = ctypes.CDLL(None, use_errno=True)
OUTSIDE = int(sys.argv[2])
own = 0


def reached(what):
    print("reached", what, flush=True)


def serve(listener, answer=b"own"):
    def accept():
        while True:
            try:
                peer = listener.accept()[0]
                peer.sendall(answer)
                peer.close()
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()


def own_server(port=0):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(100)
    serve(listener)
    return listener


def read(client, what):
    global own
    client.settimeout(5)
    try:
        said = client.recv(99)
    except OSError:
        return
    if said == b"outside":
        reached(what)
    if said == b"own":
        own += 1


def exchanged_address():
    """Another thread changes the address in memory."""
    inside = own_server().getsockname()[1]
    address = ctypes.create_string_buffer(struct.pack("=H", 2) + struct.pack(">H", inside) + bytes([127, 0, 0, 1]) + bytes(8))
    done = False

    def flip():
        ports = [struct.pack(">H", OUTSIDE), struct.pack(">H", inside)]
        hosts = [bytes([127, 0, 0, 1]), bytes([10, 0, 0, 1])]
        while not done:
            for port in ports:
                ctypes.memmove(ctypes.addressof(address) + 2, port, 2)
                for host in hosts:
                    ctypes.memmove(ctypes.addressof(address) + 4, host, 4)

    threading.Thread(target=flip, daemon=True).start()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        client = socket.socket()
        if LIBC.connect(client.fileno(), address, 16) == 0:
            read(client, "an exchanged address")
        client.close()
    done = True


def exchanged_descriptor():
    """Another thread changes what the descriptor leads to."""
    inside = own_server().getsockname()[1]
    null, pair, fresh = os.open("/dev/null", os.O_RDWR), socket.socketpair()[0], socket.socket()
    accepted = socket.create_connection(("127.0.0.1", inside))
    number = os.dup(null)
    stop = False

    def flip():
        while not stop:
            for other in (null, pair.fileno(), fresh.fileno(), accepted.fileno()):
                os.dup2(other, number)

    threading.Thread(target=flip, daemon=True).start()
    to = lambda port: struct.pack("=H", 2) + struct.pack(">H", port) + bytes([127, 0, 0, 1]) + bytes(8)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for port in (OUTSIDE, inside):
            if LIBC.connect(number, to(port), 16) == 0 and port == OUTSIDE:
                reached("an exchanged descriptor")
    stop = True
    for what in (pair, accepted):
        if LIBC.connect(what.fileno(), to(OUTSIDE), 16) == 0:
            reached("a connected socket")
        if LIBC.connect(what.fileno(), struct.pack("=H", 0) + bytes(14), 16) == 0 and what is accepted:
            reached("a disconnected socket")
    read(socket.create_connection(("127.0.0.1", inside)), "")


def lost_listener():
    """A listener ends in every way while the machine's server takes the port as soon as it can."""
    stop = False

    def clients():
        while not stop:
            client = socket.socket()
            client.settimeout(3)
            try:
                client.connect(("127.0.0.1", OUTSIDE))
                read(client, "a lost port")
            except OSError:
                pass
            client.close()

    for _ in range(3):
        threading.Thread(target=clients, daemon=True).start()
    end, way = time.monotonic() + 5, 0
    while time.monotonic() < end:
        way += 1
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", OUTSIDE))
            listener.listen(5)
        except OSError:
            time.sleep(0.002)
            continue
        if way % 2:
            serve(listener)
        time.sleep(0.005 * (way % 3))
        if way % 4 in (0, 1):
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            LIBC.connect(listener.fileno(), struct.pack("=H", 0) + bytes(14), 16)
            time.sleep(0.01)
        listener.close()
    stop = True


def late_packets():
    """Connections wait in front of a full queue, then the listener ends and the port is let go."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", OUTSIDE))
    listener.listen(0)
    clients = []
    for _ in range(12):
        client = socket.socket()
        client.setblocking(False)
        try:
            client.connect(("127.0.0.1", OUTSIDE))
        except OSError:
            pass
        clients.append(client)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    time.sleep(9)
    for client in clients:
        read(client, "a late packet")
    read(socket.create_connection(("127.0.0.1", own_server().getsockname()[1])), "")


def other_ways():
    """Ways to connect or to listen without bind and connect."""
    to = ("127.0.0.1", OUTSIDE)

    def attempt(what, call):
        try:
            client = call()
        except (OSError, OverflowError):
            return
        if client is not None:
            client.settimeout(2)
            try:
                if client.recv(9) == b"outside":
                    reached(what)
            except OSError:
                pass

    def after(options, family=socket.AF_INET, address=to, before=lambda client: None):
        def call():
            client = socket.socket(family)
            for level, name, value in options:
                try:
                    client.setsockopt(level, name, value)
                    print("set", level, name, flush=True)
                except OSError:
                    pass
            before(client)
            client.connect(address)
            client.sendall(b"x")
            return client

        return call

    def fast_open(kind):
        client = socket.socket()
        if kind == "sendto":
            client.sendto(b"x", 0x20000000, to)
        else:
            client.sendmsg([b"x"], [], 0x20000000, to)
        return client

    attempt("sendto", lambda: fast_open("sendto"))
    attempt("sendmsg", lambda: fast_open("sendmsg"))
    attempt("TCP_FASTOPEN_CONNECT", after([(6, 30, 1), (6, 34, 1), (6, 23, 5)]))
    route = bytes([131, 7, 4, 127, 0, 0, 1, 0])
    attempt("a source route", after([(0, 4, route)]))
    attempt("a device", after([(1, 25, b"lo")]))
    attempt("SO_REUSEPORT", after([(1, 15, 1)]))
    attempt("IP_TRANSPARENT", after([(0, 19, 1), (0, 15, 1)]))
    for host in ("127.1.2.3", "0.0.0.0", "127.255.255.254"):
        attempt(host, after([], address=(host, OUTSIDE)))
    for host in ("::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "::127.0.0.1", "::ffff:10.0.0.1"):
        attempt(host, after([], socket.AF_INET6, (host, OUTSIDE)))
    for host in ("10.0.0.1", "192.0.2.1", "169.254.169.254", "255.255.255.255", "224.0.0.1"):
        attempt(host, after([], address=(host, OUTSIDE)))
    unspecified = struct.pack("=H", 0) + bytes(14)
    attempt("AF_UNSPEC", after([], before=lambda client: LIBC.connect(client.fileno(), unspecified, 16)))
    for kind, protocol in ((1, 262), (1, 132), (2, 0), (2, 17), (3, 6), (3, 255), (4, 0), (5, 0), (10, 0)):
        for family in (2, 10):
            try:
                socket.socket(family, kind, protocol)
                reached(f"a socket of {family} {kind} {protocol}")
            except OSError:
                pass
    for protocol in (4, 9, 12, 15, 16):
        try:
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
            reached(f"netlink {protocol}")
        except OSError:
            pass
    # Without bind, the kernel would bind it to every address of the machine.
    listener = socket.socket()
    listener.listen(5)
    if not listener.getsockname()[0].startswith("127."):
        reached(f"a listener at {listener.getsockname()}")
    serve(listener)
    for bad in ("10.0.0.1", "192.0.2.1"):
        try:
            socket.socket().bind((bad, 0))
            reached(f"bind to {bad}")
        except OSError:
            pass
    read(socket.create_connection(listener.getsockname()), "")


def many_sockets():
    """Sockets that are never connected, by several processes."""
    inside = own_server().getsockname()[1]
    children = []
    for _ in range(6):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            held = []
            try:
                while len(held) < 20000:
                    held.append(socket.socket())
            except OSError:
                pass
            os.write(write_end, struct.pack("=I", len(held)))
            time.sleep(60)
            os._exit(0)
        children.append((child, read_end))
    total = sum(struct.unpack("=I", os.read(read_end, 4))[0] for _, read_end in children)
    if total > 5000:
        reached(f"{total} sockets at once")
    for child, _ in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    for _ in range(20000):
        socket.socket().close()
    read(socket.create_connection(("127.0.0.1", inside)), "")


globals()[sys.argv[1]]()
print("own", own, flush=True)
os._exit(0)
