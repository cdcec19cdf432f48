//! What a thousand connections take of the memory of the process that carries them.

use crate::egress::Server;
use crate::flood::peak_kib;
use crate::without_network::has;
use std::io::{Read as _, Write as _};
use testkit::{Person, Process, skip};

const CONNECTIONS: usize = 1000;
const MIB: u64 = 1 << 20;

/// Opens many connections, sends a part of something over each, and waits until each has been answered or is held.
const MANY: &str = r"
import asyncio, sys
port, start, more = int(sys.argv[1]), sys.argv[2].encode('latin-1'), int(sys.argv[3])
async def one(opened):
    r, w = await asyncio.open_connection('many.test', port)
    w.write(start + b'x' * more); await w.drain()
    if not start.startswith(b'GET'): await r.readexactly(1)
    opened.append((r, w))
async def main():
    opened = []; await asyncio.gather(*[one(opened) for _ in range(1000)]); await asyncio.sleep(1); print(len(opened))
asyncio.run(main())
";

#[test]
fn a_thousand_slow_connections_take_what_their_buffers_take() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let me = Person::myself();
    // Says much, and hears nothing more; ends with the program.
    let server = Server::start(|mut stream, bytes| {
        let mut part = vec![0; 64 << 10];
        bytes.extend_from_slice(b"connection");
        let _ = stream.write_all(&vec![b'y'; 128 << 10]);
        while let Ok(1..) = stream.read(&mut part) {}
    });
    // As they are: both buffers are used. Heads that do not end: one buffer of HTTP grows, and no more than a head may.
    for (start, more, bound) in [
        ("-", 128 << 10, 160 * MIB),
        ("GET / HTTP/1.1\r\nX: ", 60_000, 272 * MIB),
    ] {
        let line = format!(
            "start -q --net egress --allow {} box",
            server.rule("many.test")
        );
        let _ = me.line(&line).run().expect_code(0);
        let state = me.place().state();
        let owner = Process::mentioning(&state.to_string_lossy())
            .into_iter()
            .find(|process| process.line.contains("__supervise"))
            .unwrap();
        let before = peak_kib(owner.id);
        assert!(before > 0, "{owner:?}");
        let ran = me
            .glovebox(["exec", "box", "--", "python3", "-c", MANY])
            .args([&server.port.to_string(), start, &more.to_string()])
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), format!("{CONNECTIONS}\n"), "{ran}");
        let taken = (peak_kib(owner.id) - before) << 10;
        eprintln!("{start:?}: {} MiB", taken / MIB);
        // Less than that means that they were not there all at once.
        assert!((24 * MIB..bound).contains(&taken), "{start}: {taken}");
        let _ = me.line("kill -q box").run().expect_code(0);
    }
    me.assert_nothing_left();
}
