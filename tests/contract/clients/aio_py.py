"""Drives a server with the contract of an AIO Sandbox by agent-sandbox 0.0.30, the vendor's own client.

Usage: aio_py.py BASE_URL KEY. Prints one line for each check and ends with code 1 at the first
that fails.
"""

import os
import sys
import time

from agent_sandbox import Sandbox
from agent_sandbox.core import ApiError

base_url, key = sys.argv[1:3]


def check(name, found, wanted):
    if found != wanted:
        sys.exit(f"FAILED {name}: {found!r} instead of {wanted!r}")
    print(f"ok {name}", flush=True)


client = Sandbox(base_url=base_url, headers={"Authorization": f"Bearer {key}"})
try:
    Sandbox(base_url=base_url, headers={"Authorization": "Bearer wrong"}).sandbox.get_context()
    sys.exit("FAILED wrong key: taken")
except ApiError as error:
    check("wrong key", error.status_code, 401)

context = client.sandbox.get_context()
check("context", (context.success, context.detail.system.os), (True, "Linux"))
home = context.home_dir

# A command to its end: streams apart, the exit code, an environment, a directory that stays.
done = client.bash.exec(command="printf out; printf err >&2; exit 3").data
check("exec", (done.status, done.exit_code, done.stdout, done.stderr), ("completed", 3, "out", "err"))
done = client.bash.exec(session_id="dir", command='pwd; printf %s "$A"', exec_dir="/tmp", env={"A": "it's"}).data
check("exec in a directory", done.stdout, "/tmp\nit's")
check("directory stays", client.bash.exec(session_id="dir", command="pwd").data.stdout, "/tmp\n")
done = client.bash.exec(command="head -c 100000 /dev/zero | tr '\\0' x", max_output_length=1000).data
check("long output is cut", 1000 <= len(done.stdout) < 1100, True)
done = client.bash.exec(command="head -c 100000 /dev/zero | tr '\\0' x", max_output_length=0).data
check("long output is whole", len(done.stdout), 100000)

# Bounds on time.
done = client.bash.exec(session_id="slow", command="sleep 600", timeout=0.2).data
check("timeout leaves it running", (done.status, done.exit_code), ("running", None))
client.bash.kill(session_id="slow")
end = client.bash.output(session_id="slow", wait=True).data.command
check("killed", (end.status, end.exit_code), ("killed", -15))
done = client.bash.exec(command="sleep 600", hard_timeout=0.2).data
check("hard timeout", done.status, "timed_out")

# A command that goes on: input, output by offsets, a long poll.
begun = client.bash.exec(session_id="cat", command="cat; echo end >&2", async_mode=True).data
check("async", (begun.session_id, begun.status, begun.offset), ("cat", "running", 0))
client.bash.write(session_id="cat", input="größe\n")
out = client.bash.output(session_id="cat", command_id=begun.command_id, wait=True).data
check("input and output", (out.stdout, out.offset, out.command.status), ("größe\n", 8, "running"))
began = time.monotonic()
out = client.bash.output(session_id="cat", offset=8, wait=True, wait_timeout=0.3).data
check("long poll", (out.stdout, out.offset, time.monotonic() - began >= 0.3), ("", 8, True))
client.bash.kill(session_id="cat", signal="SIGKILL")
out = client.bash.output(session_id="cat", offset=8, wait=True).data
check("no output is lost or repeated", (out.stdout, out.command.status), ("", "killed"))
check("input to an ended command", client.bash.write(session_id="cat", input="x").success, False)

# Sessions.
made = client.bash.create_session(session_id="made", exec_dir="/tmp").data
check("made session", (made.status, made.working_dir, made.command_count), ("ready", "/tmp", 0))
listed = {one.session_id for one in client.bash.sessions().data}
check("listed sessions", {"cat", "dir", "made", "slow"} <= listed, True)
check("close", client.bash.close_session("cat").success, True)
check("closed session", client.bash.exec(session_id="cat", command="true").success, False)
check("unknown session", client.bash.output(session_id="never").success, False)

# Files, of which the client sends the path first.
bytes_of_all_values = bytes(range(256)) * 1000
put = client.file.upload_file(file=bytes_of_all_values, path=f"{home}/a/deep file").data
check("upload", (put.file_path, put.file_size, put.success), (f"{home}/a/deep file", 256000, True))
check("uploaded bytes", open(f"{home}/a/deep file", "rb").read() == bytes_of_all_values, True)
wrote = client.file.write_file(file=f"{home}/b", content="aGVsbG8=", encoding="base64")
check("write", wrote.data.bytes_written, 5)
client.file.write_file(file=f"{home}/b", content="IQ==", encoding="base64", append=True)
check("append", open(f"{home}/b").read(), "hello!")
# A failure carries its reason and what published clients demand of a success.
refused = client.file.write_file(file="/proc/nowhere/x", content="x")
check("refused write", (refused.success, refused.data.file), (False, "/proc/nowhere/x"))
refused = client.file.upload_file(file=b"x", path="/proc/nowhere/x")
check("refused upload", (refused.success, refused.data.success), (False, False))
print("all checks passed")
