//! The table of system calls in the words of the fuzzer, read from the policy itself: what the compiled filter
//! does is compared with that.

use glovebox_jail::seccomp::{Verdict, table};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const POLICY: &str = include_str!("../../crates/jail/seccomp.toml");

/// One system call of this machine's architecture.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    name: &'static str,
    number: i64,
    verdict: &'static str,
    rules: Vec<Rule>,
}

/// One narrowed argument.
#[derive(Debug, Clone)]
struct Rule {
    index: u8,
    errno: i32,
    kind: &'static str,
    values: Vec<u64>,
    when: Option<When>,
}

#[derive(Deserialize)]
struct Policy {
    argument: Vec<Argument>,
}

/// One `[[argument]]`; its meaning is described at the head of the policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Argument {
    #[serde(rename = "why")]
    _why: String,
    syscall: String,
    index: u8,
    errno: String,
    any_bit: Option<Vec<u64>>,
    equals: Option<Vec<u64>>,
    not_equals: Option<Vec<u64>>,
    masked: Option<Masked>,
    when: Option<When>,
}

/// Another argument that must have one of these values.
#[derive(Debug, Clone, Deserialize)]
struct When {
    index: u8,
    equals: Vec<u64>,
}

#[derive(Deserialize)]
struct Masked {
    mask: u64,
    equals: Vec<u64>,
}

impl Argument {
    fn rule(self) -> Rule {
        let errno = match self.errno.as_str() {
            "EPERM" => libc::EPERM,
            "ENOSYS" => libc::ENOSYS,
            "EAFNOSUPPORT" => libc::EAFNOSUPPORT,
            "EINVAL" => libc::EINVAL,
            "EACCES" => libc::EACCES,
            other => panic!("the policy has an errno that the fuzzer does not know: {other}"),
        };
        let (kind, values) = match (self.any_bit, self.equals, self.not_equals, self.masked) {
            (Some(values), None, None, None) => ("any-bit", values),
            (None, Some(values), None, None) => ("equals", values),
            (None, None, Some(values), None) => ("not-equals", values),
            (None, None, None, Some(Masked { mask, mut equals })) => {
                equals.insert(0, mask);
                ("masked", equals)
            }
            _ => panic!("the policy has a condition that the fuzzer does not know"),
        };
        Rule {
            index: self.index,
            errno,
            kind,
            values,
            when: self.when,
        }
    }
}

/// The table as it is.
pub(crate) fn real() -> Vec<Call> {
    let policy: Policy = toml::from_str(POLICY).unwrap();
    let mut rules: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
    for argument in policy.argument {
        let name = argument.syscall.clone();
        rules.entry(name).or_default().push(argument.rule());
    }
    table()
        .iter()
        .map(|entry| Call {
            name: entry.name,
            number: entry.number,
            verdict: match entry.verdict {
                Verdict::Allowed => "allowed",
                Verdict::ByArgument => "argument",
                Verdict::Refused => "refused",
                Verdict::Unsupported => "unsupported",
            },
            rules: rules.remove(entry.name).unwrap_or_default(),
        })
        .collect()
}

/// Makes the table say something else about a call.
pub(crate) fn set_verdict(calls: &mut [Call], name: &str, verdict: &'static str) {
    let call = calls.iter_mut().find(|call| call.name == name).unwrap();
    call.verdict = verdict;
}

/// Makes the table say that another error is answered.
pub(crate) fn set_rule_error(calls: &mut [Call], name: &str, errno: i32) {
    let call = calls.iter_mut().find(|call| call.name == name).unwrap();
    call.rules.iter_mut().for_each(|rule| rule.errno = errno);
}

/// The table in the fuzzer's format.
pub(crate) fn text(calls: &[Call]) -> String {
    let mut text = String::new();
    for call in calls {
        let number = call.number;
        let _ = writeln!(text, "call {number} {} {}", call.verdict, call.name);
        for rule in &call.rules {
            let values: Vec<_> = rule.values.iter().map(u64::to_string).collect();
            let (index, errno, kind) = (rule.index, rule.errno, rule.kind);
            let _ = writeln!(
                text,
                "rule {number} {index} {errno} {kind} {}",
                values.join(" ")
            );
            if let Some(when) = &rule.when {
                let values: Vec<_> = when.equals.iter().map(u64::to_string).collect();
                let _ = writeln!(text, "when {} {}", when.index, values.join(" "));
            }
        }
    }
    text
}
