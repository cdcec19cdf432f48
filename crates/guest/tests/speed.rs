//! How long the guest takes for the common calls, beside what they replace. Ignored by default, for
//! it measures and does not judge; run with `--release -- --ignored --nocapture`. `GUEST_PROGRAM`
//! names another guest to measure, for instance a static one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;

use client::Guest;
use glovebox_proto::{Exec, Request, WriteMode};
use serde_bytes::ByteBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 1000;

fn median_us(mut act: impl FnMut()) -> f64 {
    let mut samples: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            act();
            begin.elapsed().as_nanos()
        })
        .collect();
    samples.sort_unstable();
    samples[ROUNDS / 2] as f64 / 1000.0
}

#[test]
#[ignore = "measures only"]
fn common_calls() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    let memory = |guest: &Guest| {
        let rollup =
            std::fs::read_to_string(format!("/proc/{}/smaps_rollup", guest.child.id())).unwrap();
        let line = |name: &str| {
            rollup
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap()
                .to_owned()
        };
        format!("{} / {}", line("Rss:"), line("Pss:"))
    };
    eprintln!("idle: {}", memory(&guest));
    let ping = Request::Ping(ByteBuf::from("x"));
    eprintln!(
        "ping: {:.1} us",
        median_us(|| drop(guest.call(&ping).unwrap()))
    );
    for round in 0..2 {
        let direct = median_us(|| {
            let output = Command::new("/usr/bin/true")
                .env_clear()
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .output()
                .unwrap();
            assert!(output.status.success());
        });
        let exec = median_us(|| {
            let mut exec = Exec::new(["/usr/bin/true"]);
            exec.clear_env = true;
            assert_eq!(guest.run(exec).unwrap().code(), 0);
        });
        eprintln!(
            "exec {round}: {exec:.1} us, direct {direct:.1} us, more {:.1} us",
            exec - direct
        );
    }
    let write = Request::FileWrite {
        path: ByteBuf::from("f"),
        mode: WriteMode::Replace,
        permissions: 0o644,
        make_parents: false,
    };
    let content = vec![7; 4096];
    let took = median_us(|| drop(guest.write_file(&write, &content).unwrap()));
    eprintln!("write 4 KiB: {took:.1} us");
    let took = median_us(|| drop(guest.read_file(b"f", 0, None).unwrap()));
    eprintln!("read 4 KiB: {took:.1} us");
    guest.keeps_data = false;
    let begin = Instant::now();
    guest
        .run(Exec::new([
            "/usr/bin/head",
            "-c",
            "2000000000",
            "/dev/zero",
        ]))
        .unwrap();
    eprintln!("output: {:.2} GB/s", 2.0 / begin.elapsed().as_secs_f64());
    eprintln!("afterwards: {}", memory(&guest));
}
