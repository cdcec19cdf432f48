//! Transfers a large file in both directions within the memory for a small one, at both ends. A
//! separate program, because it measures the memory of the whole process.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod sandboxes;

use sandboxes::{Copy, lines};
use std::fs;
use std::io::Write as _;

const LARGE_BYTES: u64 = 1 << 30;
const MAX_KIB: u64 = 64 << 10;

fn peak_kib(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_gibibyte_passes_in_bounded_memory() {
    let copy = Copy::host();
    let large = fs::File::create(copy.project_dir().join("large")).unwrap();
    // Without holes the file would use twice the space on the same path through the code.
    large.set_len(LARGE_BYTES).unwrap();
    let guest = copy.guest_pid().as_raw_nonzero().to_string();
    let pushed = copy.push();
    assert_eq!(pushed.bytes, LARGE_BYTES);
    fs::File::options()
        .append(true)
        .open(copy.inside_dir().join("large"))
        .unwrap()
        .write_all(b"more")
        .unwrap();
    let collected = copy.collect();
    assert_eq!(lines(&collected), ["M large"]);
    for pid in ["self", &guest] {
        let peak = peak_kib(pid);
        assert!(peak < MAX_KIB, "{pid} used {peak} KiB");
    }
}
