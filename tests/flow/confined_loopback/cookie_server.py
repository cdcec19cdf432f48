# Takes a port on all addresses as soon as it is free, and prints what strangers send. Its own two
# clients at once make the kernel take SYN cookies at the port.
import socket
import sys
import time

port = int(sys.argv[1])
while True:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("0.0.0.0", port))
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
        server.listen(0)
        break
    except OSError:
        server.close()
        time.sleep(0.2)
clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
own = [client.getsockname() for client in clients]
print("listens", flush=True)
while True:
    peer, address = server.accept()
    if address not in own:
        peer.settimeout(5)
        print(address, peer.recv(100), flush=True)
