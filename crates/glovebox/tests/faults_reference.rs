//! Test that writes `docs/reference/faults.md` with every fault code, and compares it.

use glovebox_proto::Code;
use std::fmt::Write;
use std::path::Path;

fn reference() -> String {
    let mut text = "# Faults\n\n\
        <!-- Generated from the fault codes; GLOVEBOX_TEST_BLESS=1 cargo test --package glovebox --test faults_reference -->\n\n\
        Every failure carries a class and a code. Scripts match on them; messages may change.\n\n\
        | class | meaning |\n| --- | --- |\n\
        | `refused` | policy said no: do not retry, ask |\n\
        | `failed` | it ran and did not succeed |\n\
        | `lost` | the link, the guest or the backend is gone; `retryable` says whether a repetition is safe |\n\n\
        | code | meaning |\n| --- | --- |\n"
        .to_owned();
    for code in Code::ALL {
        let _ = writeln!(text, "| `{code}` | {} |", code.meaning().trim());
    }
    text
}

#[test]
fn the_reference_lists_every_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/faults.md");
    if std::env::var_os("GLOVEBOX_TEST_BLESS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        written,
        reference(),
        "run this test with GLOVEBOX_TEST_BLESS=1 to write it anew"
    );
}
