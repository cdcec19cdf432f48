//! Tests of common development tools under the filter. A table that is too strict fails here.

use std::process::Command;

use super::child;

fn run_tool(script: &str, tool: &str) {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {tool}")])
        .output()
        .unwrap();
    if !found.status.success() {
        testkit::skip!("needs {tool}");
    }
    let dir = tempfile::tempdir().unwrap();
    let script = format!("cd {} && {script}", dir.path().display());
    let output = child("exec", &["sh", "-ec", &script]);
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("all good"),
        "{tool}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn shell_tar_find_and_pipes_work() {
    run_tool(
        "mkdir a; echo x > a/b; ln -s b a/c; mkfifo f; tar cf t.tar a; mkdir o; tar xf t.tar -C o; \
         find o -type l | grep -q c; (sleep 0.01 & wait); seq 1000 | sort -n | tail -1 | grep -q 1000; \
         bash -c 'ulimit -n 512; cat <(echo hi)' | grep -q hi; nice -n 5 true; echo all good",
        "tar",
    );
}

#[test]
fn git_works() {
    run_tool(
        "git init -q .; echo x > f; git add f; git -c user.name=a -c user.email=a@b commit -qm x; \
         git clone -q . copy; git -C copy log --oneline | grep -q x; git gc -q; echo all good",
        "git",
    );
}

#[test]
fn the_c_toolchain_and_make_work() {
    run_tool(
        "printf '#include <stdio.h>\\nint main(){puts(\"hi\");}\\n' > a.c; \
         printf 'a: a.c\\n\\tgcc -O1 -o a a.c\\n' > Makefile; make -s; ./a | grep -q hi; echo all good",
        "gcc",
    );
}

#[test]
fn rustc_works() {
    run_tool(
        "echo 'fn main(){std::thread::spawn(||println!(\"hi\")).join().unwrap()}' > a.rs; \
         rustc a.rs; ./a | grep -q hi; echo all good",
        "rustc",
    );
}

#[test]
fn python_works_with_processes_sockets_and_sqlite() {
    run_tool(
        r#"cat > t.py <<'END'
import asyncio, multiprocessing, os, resource, socket, sqlite3, subprocess, tempfile, threading
def square(x): return x * x
async def serve():
    async def echo(r, w):
        w.write(await r.readline()); await w.drain(); w.close()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    w.write(b"hi\n"); assert await r.readline() == b"hi\n"; w.close(); server.close()
    p = await asyncio.create_subprocess_exec("true"); assert await p.wait() == 0
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool: assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
    with multiprocessing.get_context("spawn").Pool(1) as pool: assert pool.map(square, [4]) == [16]
    asyncio.run(serve())
    db = sqlite3.connect("x.db"); db.execute("pragma journal_mode=wal"); db.execute("create table t(a)"); db.commit()
    assert subprocess.run(["echo", "x"], capture_output=True).stdout == b"x\n"
    socket.getaddrinfo("localhost", 80); resource.getrlimit(resource.RLIMIT_NOFILE)
    t = threading.Thread(target=lambda: None); t.start(); t.join(); os.memfd_create("x")
    print("all good")
END
python3 t.py"#,
        "python3",
    );
}

#[test]
fn node_works_with_workers_and_servers() {
    run_tool(
        r#"cat > t.js <<'END'
const { Worker } = require("worker_threads"), http = require("http"), fs = require("fs"), cp = require("child_process");
fs.writeFileSync("a", "x"); fs.watch(".").close(); cp.execSync("true"); require("os").cpus();
const s = http.createServer((q, r) => r.end("hi")).listen(0, "127.0.0.1", () =>
  http.get({ host: "localhost", family: 4, port: s.address().port }, r => r.on("data", () => {
    s.close(); new Worker("1", { eval: true }).on("exit", () => console.log("all good")); })));
END
node t.js"#,
        "node",
    );
}

#[test]
fn java_works() {
    run_tool(
        r#"cat > T.java <<'END'
public class T { public static void main(String[] a) throws Exception {
  try (var s = new java.net.ServerSocket(0); var c = new java.net.Socket("127.0.0.1", s.getLocalPort())) {}
  var t = new Thread(() -> {}); t.start(); t.join();
  new ProcessBuilder("true").start().waitFor(); System.out.println("all good"); } }
END
java T.java"#,
        "java",
    );
}

#[test]
fn perl_and_apt_work() {
    run_tool(
        "perl -e 'fork or exit; wait; print \"all good\\n\"'",
        "perl",
    );
    run_tool("apt-get --version > /dev/null; echo all good", "apt-get");
}
