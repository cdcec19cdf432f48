"""Drives a server with the contract of Sprites by sprites-py 0.7.2, the vendor's own client.

Usage: sprites_py.py BASE_URL TOKEN. Prints one line for each check and ends with code 1 at the
first that fails.
"""

import io
import os
import sys
import threading
import time

from sprites import SpritesClient
from sprites.exceptions import AuthenticationError, ExitError, NotFoundError, SpriteError
from sprites.exec import Cmd, run
from sprites.session import kill_session
from sprites.types import NetworkPolicy, PolicyRule

base_url, token = sys.argv[1:3]


def check(name, found, wanted):
    if found != wanted:
        sys.exit(f"FAILED {name}: {found!r} instead of {wanted!r}")
    print(f"ok {name}", flush=True)


client = SpritesClient(token, base_url=base_url)
sprite = client.create_sprite("py-check", labels=["a", "b"])
check("create", sprite.name, "py-check")
try:
    client.create_sprite("py-check")
    sys.exit("FAILED create twice: taken")
except SpriteError as error:
    check("create twice", "400" in str(error), True)
for number in range(3):
    client.create_sprite(f"py-list-{number}")
check("list all", [one.name for one in client.list_all_sprites("py-")],
      ["py-check", "py-list-0", "py-list-1", "py-list-2"])

# Commands.
check("stdout", run(sprite, "echo", "a  b", capture_output=True).stdout, b"a  b\n")
both = run(sprite, "sh", "-c", "echo out; echo err >&2; exit 42", capture_output=True)
check("streams and code", (both.stdout, both.stderr, both.returncode), (b"out\n", b"err\n", 42))
try:
    run(sprite, "sh", "-c", "exit 7", check=True)
    sys.exit("FAILED exit error: none")
except ExitError as error:
    check("exit error", "7" in str(error), True)
data = os.urandom(1 << 20)
check("a megabyte through stdin", Cmd(sprite, ["cat"], stdin=io.BytesIO(data)).output(), data)
check("environment and directory",
      run(sprite, "sh", "-c", "echo $X; pwd", env={"X": "1 2"}, cwd="/usr",
          capture_output=True).stdout, b"1 2\n/usr\n")
home = run(sprite, "pwd", capture_output=True).stdout.decode().strip()
check("home", "/home" in home, True)
check("signal", run(sprite, "sh", "-c", "kill -TERM $$").returncode, 143)
check("no such program", run(sprite, "no-such-program").returncode, 127)
for _ in range(20):
    check("fast command", run(sprite, "echo", "x", capture_output=True).stdout, b"x\n")
tty = run(sprite, "sh", "-c", "tty >/dev/null && stty size; exit 5", capture_output=True, tty=True)
check("terminal", (tty.stdout, tty.returncode), (b"24 80\r\n", 5))

# Sessions.
check("no session", sprite.list_sessions(), [])
started = threading.Thread(target=lambda: run(sprite, "sleep", "60"), daemon=True)
started.start()
for _ in range(50):
    sessions = sprite.list_sessions()
    if sessions:
        break
    time.sleep(0.1)
check("session", sessions[0].command, "sleep 60")
told = [message.type for message in kill_session(sprite, sessions[0].id)]
check("kill", told, ["signal", "exited", "complete"])
started.join()

# Files.
fs = sprite.filesystem(home)
path = fs / "dir" / "file.bin"
path.write_bytes(data)
check("file", path.read_bytes(), data)
check("file in a command", run(sprite, "wc", "-c", "dir/file.bin", capture_output=True).stdout,
      f"{len(data)} dir/file.bin\n".encode())
check("size", path.stat().size, len(data))
check("directory", (fs / "dir").listdir(), ["file.bin"])
check("rename", path.rename("other").read_bytes() == data, True)
(fs / "plain").mkdir()
check("missing", (fs / "none").exists(), False)

# Checkpoints.
told = [(message.type, message.data) for message in sprite.create_checkpoint("first")]
check("checkpoint", told[-1], ("complete", "Checkpoint v0 created"))
run(sprite, "rm", "-r", "dir")
list(sprite.restore_checkpoint("v0"))
check("restore", run(sprite, "ls", "dir", capture_output=True).stdout, b"other\n")
check("checkpoints", [one.id for one in sprite.list_checkpoints()], ["v0", "Current"])

# Policy.
sprite.update_network_policy(NetworkPolicy(rules=[PolicyRule(domain="*", action="deny")]))
rules = sprite.get_network_policy().rules
check("policy", [(rule.domain, rule.action) for rule in rules], [("*", "deny")])

sprite.destroy()
try:
    client.get_sprite("py-check")
    sys.exit("FAILED destroy: still there")
except NotFoundError:
    check("destroy", True, True)
try:
    SpritesClient("wrong", base_url=base_url).get_sprite("py-list-0")
    sys.exit("FAILED wrong token: taken")
except AuthenticationError:
    check("wrong token", True, True)
