//! Any bytes as a bundle, in both languages: what comes out is problems or a configuration, never a crash, and what is kept
//! of it comes back as it was. The code of a tool that was cut out is JavaScript again.
#![no_main]

use glovebox_bundle::{Extraction, Language, ProblemCode, Tool, extract};
use libfuzzer_sys::fuzz_target;

fn check(text: &str, language: Language) {
    let read = extract(text, language).expect("there is a thread for it");
    let kept = serde_json::to_string(&read).expect("an extraction is JSON");
    let back: Extraction = serde_json::from_str(&kept).expect("what was written can be read");
    assert_eq!(back, read);
    let of_agents = read.bundle.agents.iter().flat_map(|agent| &agent.tools);
    for slice in of_agents.chain(&read.bundle.tools).filter_map(|tool: &Tool| tool.slice.as_ref()) {
        let again = extract(&slice.code, Language::JavaScript).expect("there is a thread for it");
        let wrong = again.problems.iter().find(|problem| problem.code == ProblemCode::Parse);
        assert!(wrong.is_none() || !read.problems.is_empty(), "{wrong:?}: {}", slice.code);
    }
}

fuzz_target!(|text: &str| {
    check(text, Language::JavaScript);
    check(text, Language::TypeScript);
});
