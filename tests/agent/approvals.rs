//! What a person at a terminal reads of a call before allowing it.

use super::at_terminal;
use testkit::{ModelServer, Person, Step};

fn bash(command: &str) -> Step {
    Step::call(
        "Bash",
        &serde_json::json!({ "command": command }).to_string(),
    )
}

#[test]
fn a_call_is_shown_with_signs_and_a_warning_and_whole_on_request() {
    let person = Person::myself();
    let hidden = "echo a \u{1b}]8;;x\u{7}\u{202e}\u{200b}\u{e0041}\r#";
    let long = format!("echo {}; touch evil", "x ".repeat(6000));
    let twin = "echo \u{5e9}\u{5dc}\u{5d5}\u{5dd}\t\u{1f468}\u{200d}\u{1f469}";
    let server = ModelServer::start([bash(hidden), bash(&long), bash(twin), Step::text("Done.")]);
    let answers = [
        ("allow? [y]es, [a]lways Bash in this run, [n]o", "n\nno\n"),
        ("NOT SHOWN", "v\n"),
        ("touch evil", "n\nno\n"),
        ("echo \u{5e9}", "n\nno\n"),
    ];
    let Some(shown) = at_terminal(&person, &server, "try", &answers) else {
        return;
    };
    assert!(
        shown.contains("warning: 6 hidden characters: ESC, BEL, RLO, ZWSP, U+E0041, CR"),
        "{shown}"
    );
    assert!(shown.contains("\u{1b}[7m\\x1b\u{1b}[27m]8;;x"), "{shown}");
    assert!(
        !shown.contains(['\u{202e}', '\u{200b}', '\u{e0041}']),
        "{shown}"
    );
    let (before, after) = shown.split_once("NOT SHOWN").unwrap();
    assert!(
        !before.contains("touch evil") && after.contains("touch evil"),
        "{shown}"
    );
    // A text that needs its joiners is shown as it is, without a warning.
    assert!(shown.contains("\u{1f468}\u{200d}\u{1f469}"), "{shown}");
    assert_eq!(shown.matches("warning: ").count(), 1, "{shown}");
}
