# Leaves a client without a counterpart and writes on it once the port is free again. The client was
# answered with a SYN cookie, because another one filled the queue of the server.
import socket
import sys
import time

port = int(sys.argv[1])
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", port))
server.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
server.listen(0)
first = socket.create_connection(("127.0.0.1", port))
client = socket.socket()
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
client.connect(("127.0.0.1", port))
accepted, _ = server.accept()
print("own", flush=True)
accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
for one in (accepted, server, first):
    one.close()
time.sleep(16)
client.sendall(b"first")
time.sleep(1)
try:
    client.sendall(b"second")
except OSError:
    pass
print("sent", flush=True)
time.sleep(1)
