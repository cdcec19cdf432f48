//! Arbitrary rules and what they are asked about: command lines, paths with their patterns, words. A call
//! that a rule denies is never let through by another.
#![no_main]

use glovebox_tools::policy::{CallSubject, Effect, Policy, Rule, Toolset};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    denied: &'a str,
    allowed: &'a str,
    subject: &'a str,
}

fuzz_target!(|input: Input<'_>| {
    let rule = |effect, text| Rule::parse(effect, text, "fuzz").ok();
    let full = Toolset::shipped()
        .into_iter()
        .find(|set| set.name == "full");
    let (Some(full), Some(deny)) = (full, rule(Effect::Deny, input.denied)) else {
        return;
    };
    let subjects = [
        ("Bash", CallSubject::Command(input.subject)),
        ("Read", CallSubject::Path(input.subject)),
        ("Job", CallSubject::Word(input.subject)),
        ("List", CallSubject::None),
    ];
    let alone = Policy::new(full.clone(), vec![deny.clone()]);
    let rules = [Some(deny), rule(Effect::Allow, input.allowed)];
    let both = Policy::new(full, rules.into_iter().flatten().collect());
    for (tool, subject) in subjects {
        if alone.decide(tool, subject).effect == Effect::Deny {
            assert_eq!(both.decide(tool, subject).effect, Effect::Deny, "{tool}");
        }
    }
});
