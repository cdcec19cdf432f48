//! Conversations that are too long for the model.

use super::{agent, with};
use serde_json::Value;
use testkit::{ModelServer, Person, Step};

#[test]
fn a_summary_stands_for_what_is_old_also_when_the_session_goes_on() {
    let person = Person::myself();
    let server = ModelServer::start([
        // About five thousand tokens where the window has four.
        Step::call("Bash", r#"{"command":"seq 10000 13500"}"#),
        Step::text("SUMMARY ONE"),
        Step::call("Bash", r#"{"command":"seq 500"}"#),
        // It knows better what its model can be told.
        Step::Refuse(400, "prompt is too long: 9 tokens > 8 maximum".to_owned()),
        Step::text("SUMMARY TWO"),
        Step::text("Done."),
        Step::text("More."),
    ]);
    let args = ["--sandbox", "--apply", "never", "--window", "4000"];
    let ran = agent(&person, &server, args, "the task itself")
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "Done.\n", "{ran}");
    assert!(
        ran.err().contains("a summary stands for 2 messages"),
        "{ran}"
    );

    let asked = server.asked();
    let first = &asked[1].body;
    assert!(
        first.contains("# Record") && first.contains("10001"),
        "{first}"
    );
    let body: Value = serde_json::from_str(first).unwrap();
    assert!(body.get("tools").is_none(), "{first}");
    let second = &asked[2].body;
    assert!(second.contains("SUMMARY ONE") && second.contains("the task itself"));
    assert!(!second.contains("10001"), "{second}");
    let last = &asked[5].body;
    assert!(last.contains("SUMMARY TWO") && last.contains("the task itself"));
    assert!(!last.contains("SUMMARY ONE"), "{last}");

    // What the log kept gives the same to whoever goes on.
    let ran = with(&person, &server, ["sessions", "resume", "last", "and more"])
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "More.\n", "{ran}");
    let resumed = &server.asked()[6].body;
    assert!(resumed.contains("SUMMARY TWO") && resumed.contains("and more"));
    let shown = person.line("sessions show last").run().expect_code(0).out();
    assert!(
        shown.contains("10001") && shown.contains("SUMMARY ONE"),
        "{shown}"
    );
    let _ = person.line("replay last").run().expect_code(0);
    person.assert_nothing_lives();
}
