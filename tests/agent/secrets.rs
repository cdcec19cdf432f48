//! A planted secret reaches nobody but the server it is for.

use super::agent;
use std::fs;
use std::path::Path;
use testkit::{ModelServer, Person, Step};

const KEY: &str = "sk-planted-7f3a9c2e51";
const TOKEN: &str = "tok-planted-0b8d44e6a7";

/// Every file below `dir` that holds one of the secrets.
fn holders(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            holders(&path, found);
        } else if let Ok(bytes) = fs::read(&path) {
            for secret in [KEY, TOKEN] {
                if bytes
                    .windows(secret.len())
                    .any(|window| window == secret.as_bytes())
                {
                    found.push(path.display().to_string());
                }
            }
        }
    }
}

#[test]
fn a_planted_secret_is_nowhere() {
    Person::each(|person| {
        for place in [&["--sandbox", "--apply", "auto"][..], &["--local", "--yes"]] {
            let server = ModelServer::start([
                // A command may look wherever it can.
                Step::call(
                    "Bash",
                    r#"{"command":"env; set; cat /proc/self/environ /proc/$PPID/environ /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; true"}"#,
                ),
                Step::Refuse(
                    401,
                    format!("Incorrect API key provided: {KEY}, org {TOKEN}"),
                ),
            ]);
            let ran = agent(person, &server, place.iter().copied(), "look for keys")
                .env("OPENAI_API_KEY", KEY)
                .env("GITHUB_TOKEN", TOKEN)
                .run()
                .expect_code(1);
            let asked = server.asked();
            assert_eq!(asked.len(), 2, "{ran}");
            // The server it is for gets it, in the one header it belongs in.
            let header = format!("authorization: Bearer {KEY}");
            assert!(
                asked[0]
                    .headers
                    .iter()
                    .any(|line| line.eq_ignore_ascii_case(&header)),
                "{:?}",
                asked[0].headers
            );
            for request in &asked {
                assert!(!request.body.contains(KEY), "{place:?}: {}", request.body);
                assert!(!request.body.contains(TOKEN), "{place:?}: {}", request.body);
            }
            for text in [ran.out(), ran.err()] {
                assert!(
                    !text.contains(KEY) && !text.contains(TOKEN),
                    "{place:?}: {text}"
                );
            }
            assert!(ran.err().contains("[secret]"), "{ran}");
            let exported = person
                .line("sessions export last")
                .run()
                .expect_code(0)
                .out();
            assert!(
                !exported.contains(KEY) && !exported.contains(TOKEN),
                "{exported}"
            );
            let mut found = Vec::new();
            holders(person.place().root(), &mut found);
            assert!(found.is_empty(), "{place:?}: {found:?}");
            let _ = person.line("kill --all --quiet").run();
        }
    });
}
