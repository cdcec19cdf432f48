//! Compiles `seccomp.toml` (the policy) and `syscalls.txt` (the numbers) into the filters of the
//! target architecture, as constants that `src/seccomp.rs` includes.
//!
//! A filter is one program that searches the number in a balanced tree. On installation the kernel
//! runs a filter once for every system call, to learn which ones it always allows. With a linear
//! program, such as the usual libraries emit, that took longer than everything else a sandbox needs
//! to start.
//!
//! Every inconsistency is a build error that names it: a call in the policy that has no number, a
//! number without a policy, a call named twice, a rule on a call that is not allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use serde::Deserialize;

/// Group name -> system call names.
type Groups = BTreeMap<String, Vec<String>>;
type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    allowed: Groups,
    refused: Groups,
    unsupported: Groups,
    argument: Vec<Argument>,
    same_user: Vec<Argument>,
    nested: Nested,
    untraced: Untraced,
    confined: Confined,
    compute: Compute,
}

/// `[nested]` of the policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nested {
    allowed: Vec<String>,
    unsupported: Vec<String>,
    argument: Vec<Argument>,
}

/// `[untraced]` of the policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Untraced {
    refused: Vec<String>,
}

/// `[confined]` of the policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Confined {
    unsupported: Vec<String>,
    notified: Vec<String>,
    argument: Vec<Argument>,
}

/// `[compute]` of the policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compute {
    allowed: Vec<String>,
    argument: Vec<Argument>,
}

/// One `[[argument]]` or `[[same_user]]` of the policy. The head of `seccomp.toml` describes its
/// meaning.
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
    masked: Option<MaskCondition>,
    when: Option<Condition>,
}

/// Restricts a rule to calls with one of these values in this argument.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    index: u8,
    equals: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskCondition {
    mask: u64,
    equals: Vec<u64>,
}

/// One line of `syscalls.txt` for the target. `value` is `None` if the architecture lacks the call.
struct Number {
    value: Option<i64>,
    in_libc: bool,
}

fn main() -> Outcome<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=seccomp.toml");
    println!("cargo::rerun-if-changed=syscalls.txt");

    let arch_name = env::var("CARGO_CFG_TARGET_ARCH")?;
    // Identifier of the architecture in audit(8) and thus in seccomp(2) (linux/audit.h).
    let (column, audit_arch) = match arch_name.as_str() {
        "x86_64" => (1, 0xc000_003e),
        "aarch64" => (2, 0xc000_00b7),
        other => {
            return Err(format!("syscalls.txt has no column for the architecture {other}").into());
        }
    };
    let numbers = read_numbers(&fs::read_to_string("syscalls.txt")?, column)?;
    let policy: Policy = toml::from_str(&fs::read_to_string("seccomp.toml")?)?;
    check_names(&policy, &numbers)?;

    let programs = [
        ("PROGRAM", filter(&policy, &numbers, audit_arch)?),
        (
            "SAME_USER",
            same_user_filter(&policy, &numbers, audit_arch)?,
        ),
        ("NESTED", nested_filter(&policy, &numbers, audit_arch)?),
        ("UNTRACED", untraced_filter(&policy, &numbers, audit_arch)?),
        ("CONFINED", confined_filter(&policy, &numbers, audit_arch)?),
        ("COMPUTE", compute_filter(&policy, &numbers, audit_arch)?),
        ("MARK", program(&BTreeMap::new(), ALLOW, audit_arch)),
    ];
    let out = PathBuf::from(env::var("OUT_DIR")?).join("seccomp_table.rs");
    fs::write(out, generate(&policy, &numbers, &programs)?)?;
    Ok(())
}

fn read_numbers(text: &str, column: usize) -> Outcome<BTreeMap<String, Number>> {
    let mut numbers = BTreeMap::new();
    for line in text
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, _, _, witness] = fields[..] else {
            return Err(format!("syscalls.txt: `{line}` does not have four fields").into());
        };
        let value = match fields[column] {
            "-" => None,
            digits => Some(
                digits
                    .parse::<i64>()
                    .map_err(|e| format!("syscalls.txt: `{line}`: {e}"))?,
            ),
        };
        let in_libc = match witness {
            "libc" => true,
            "kernel" => false,
            other => {
                return Err(format!("syscalls.txt: unknown witness `{other}` of {name}").into());
            }
        };
        if numbers
            .insert(name.to_owned(), Number { value, in_libc })
            .is_some()
        {
            return Err(format!("syscalls.txt names {name} twice").into());
        }
    }
    Ok(numbers)
}

/// Checks that the policy contains every call exactly once and no other name.
fn check_names(policy: &Policy, numbers: &BTreeMap<String, Number>) -> Outcome<()> {
    let mut seen = BTreeSet::new();
    for name in [&policy.allowed, &policy.refused, &policy.unsupported]
        .into_iter()
        .flat_map(|groups| groups.values().flatten())
    {
        if !numbers.contains_key(name) {
            return Err(
                format!("seccomp.toml names {name}, which has no line in syscalls.txt").into(),
            );
        }
        if !seen.insert(name) {
            return Err(format!("seccomp.toml names {name} twice").into());
        }
    }
    if let Some(missing) = numbers.keys().find(|name| !seen.contains(name)) {
        return Err(format!("seccomp.toml does not say what becomes of {missing}").into());
    }
    let mut allowed: BTreeSet<_> = policy.allowed.values().flatten().collect();
    for name in policy
        .nested
        .allowed
        .iter()
        .chain(&policy.nested.unsupported)
    {
        if !seen.contains(name) || allowed.contains(name) {
            return Err(format!(
                "seccomp.toml: [nested] names {name}, which is not one of the calls that are refused otherwise"
            )
            .into());
        }
    }
    let check_rules = |allowed: &BTreeSet<&String>, arguments: &[Argument]| -> Outcome<()> {
        for argument in arguments {
            check_rule(allowed, argument)?;
        }
        Ok(())
    };
    let computing: BTreeSet<_> = policy.compute.allowed.iter().collect();
    if let Some(name) = computing.difference(&allowed).next() {
        return Err(format!(
            "seccomp.toml: [compute] names {name}, which is not one of the calls that are allowed otherwise"
        )
        .into());
    }
    check_rules(&computing, &policy.compute.argument)?;
    check_rules(&allowed, &policy.argument)?;
    check_rules(&allowed, &policy.same_user)?;
    let changed = policy.confined.unsupported.iter();
    let changed = changed.chain(&policy.confined.notified);
    for name in changed.chain(&policy.untraced.refused) {
        if !allowed.contains(name) {
            return Err(format!(
                "seccomp.toml: [confined] or [untraced] names {name}, which is not one of the calls that are allowed otherwise"
            )
            .into());
        }
    }
    check_rules(&allowed, &policy.confined.argument)?;
    allowed.extend(&policy.nested.allowed);
    check_rules(&allowed, &policy.nested.argument)
}

/// Checks that a rule narrows an allowed call and that its errno is supported here.
fn check_rule(allowed: &BTreeSet<&String>, argument: &Argument) -> Outcome<()> {
    if !allowed.contains(&argument.syscall) {
        return Err(format!(
            "seccomp.toml has an argument rule for {}, which is not allowed at all",
            argument.syscall
        )
        .into());
    }
    if argument.errno == "KILL" {
        return Ok(());
    }
    errno(&argument.errno).map(drop)
}

/// One instruction of classic BPF (linux/filter.h).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Insn {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

const fn insn(code: u16, k: u32) -> Insn {
    Insn {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Insn {
    Insn { code, jt, jf, k }
}

// Instruction codes: class, size and mode as in linux/bpf_common.h.
const LOAD: u16 = 0x20; // LD | W | ABS: offset into struct seccomp_data
const AND: u16 = 0x54; // ALU | AND | K
const JUMP: u16 = 0x05; // JMP | JA
const IF_EQUAL: u16 = 0x15; // JMP | JEQ | K
const IF_NOT_BELOW: u16 = 0x35; // JMP | JGE | K
const IF_ANY_BIT: u16 = 0x45; // JMP | JSET | K
const RETURN: u16 = 0x06; // RET | K

// Answers (linux/seccomp.h).
const KILL_PROCESS: Insn = insn(RETURN, 0x8000_0000);
const ALLOW: Insn = insn(RETURN, 0x7fff_0000);
/// The filter's listener answers.
const NOTIFY: Insn = insn(RETURN, 0x7fc0_0000);
const fn refuse(errno: u32) -> Insn {
    insn(RETURN, 0x0005_0000 | errno)
}

// Offsets in struct seccomp_data. Both architectures are little-endian, so the low half of an
// argument comes first.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const fn argument_low(index: u8) -> u32 {
    16 + 8 * index as u32
}

/// Returns the default filter.
fn filter(
    policy: &Policy,
    numbers: &BTreeMap<String, Number>,
    audit_arch: u32,
) -> Outcome<Vec<Insn>> {
    let mut answers = group_answers(policy, numbers)?;
    narrow(&mut answers, &policy.argument, numbers, ALLOW)?;
    // A call without a number here is treated as unknown to the kernel.
    Ok(program(&answers, refuse(errno("ENOSYS")?), audit_arch))
}

/// Returns the filter of a sandbox whose commands may make namespaces.
fn nested_filter(
    policy: &Policy,
    numbers: &BTreeMap<String, Number>,
    audit_arch: u32,
) -> Outcome<Vec<Insn>> {
    let nested = &policy.nested;
    let mut answers = group_answers(policy, numbers)?;
    answer_all(&mut answers, &nested.allowed, numbers, ALLOW)?;
    let unsupported = refuse(errno("ENOSYS")?);
    answer_all(&mut answers, &nested.unsupported, numbers, unsupported)?;
    let is_kept = |rule: &&Argument| {
        nested
            .argument
            .iter()
            .all(|own| own.syscall != rule.syscall)
    };
    narrow(
        &mut answers,
        policy.argument.iter().filter(is_kept),
        numbers,
        ALLOW,
    )?;
    narrow(&mut answers, &nested.argument, numbers, ALLOW)?;
    Ok(program(&answers, unsupported, audit_arch))
}

/// Returns the filter that refuses tracing of processes, for use in addition to another one.
fn untraced_filter(
    policy: &Policy,
    numbers: &BTreeMap<String, Number>,
    audit_arch: u32,
) -> Outcome<Vec<Insn>> {
    let mut answers = BTreeMap::new();
    let refused = refuse(errno("EPERM")?);
    answer_all(&mut answers, &policy.untraced.refused, numbers, refused)?;
    Ok(program(&answers, ALLOW, audit_arch))
}

/// Returns the filter of a sandbox without namespaces.
fn confined_filter(
    policy: &Policy,
    numbers: &BTreeMap<String, Number>,
    audit_arch: u32,
) -> Outcome<Vec<Insn>> {
    let confined = &policy.confined;
    let unsupported = refuse(errno("ENOSYS")?);
    let mut answers = group_answers(policy, numbers)?;
    answer_all(&mut answers, &confined.unsupported, numbers, unsupported)?;
    let refused = refuse(errno("EPERM")?);
    answer_all(&mut answers, &policy.untraced.refused, numbers, refused)?;
    answer_all(&mut answers, &confined.notified, numbers, NOTIFY)?;
    narrow(&mut answers, &policy.argument, numbers, ALLOW)?;
    narrow(&mut answers, &confined.argument, numbers, ALLOW)?;
    Ok(program(&answers, unsupported, audit_arch))
}

/// Returns the filter of a process that only computes. Any call that it does not name kills the
/// process.
fn compute_filter(
    policy: &Policy,
    numbers: &BTreeMap<String, Number>,
    audit_arch: u32,
) -> Outcome<Vec<Insn>> {
    let mut answers = BTreeMap::new();
    answer_all(&mut answers, &policy.compute.allowed, numbers, ALLOW)?;
    narrow(&mut answers, &policy.compute.argument, numbers, ALLOW)?;
    Ok(program(&answers, KILL_PROCESS, audit_arch))
}

/// Returns the answer to each call according to its group.
fn group_answers(
    policy: &Policy,
    numbers: &BTreeMap<String, Number>,
) -> Outcome<BTreeMap<u32, Vec<Insn>>> {
    let mut answers = BTreeMap::new();
    for (groups, answer) in [
        (&policy.allowed, ALLOW),
        (&policy.refused, refuse(errno("EPERM")?)),
        (&policy.unsupported, refuse(errno("ENOSYS")?)),
    ] {
        for names in groups.values() {
            answer_all(&mut answers, names, numbers, answer)?;
        }
    }
    Ok(answers)
}

/// Sets one answer for every call of `names`.
fn answer_all(
    answers: &mut BTreeMap<u32, Vec<Insn>>,
    names: &[String],
    numbers: &BTreeMap<String, Number>,
    answer: Insn,
) -> Outcome<()> {
    for name in names {
        if let Some(number) = numbers.get(name).and_then(|number| number.value) {
            answers.insert(u32::try_from(number)?, vec![answer]);
        }
    }
    Ok(())
}

/// Returns the filter that commands get in addition to the first one if the guest has their user
/// id.
fn same_user_filter(
    policy: &Policy,
    numbers: &BTreeMap<String, Number>,
    audit_arch: u32,
) -> Outcome<Vec<Insn>> {
    let mut answers = BTreeMap::new();
    narrow(&mut answers, &policy.same_user, numbers, ALLOW)?;
    Ok(program(&answers, ALLOW, audit_arch))
}

/// Puts the rules of `arguments` before the present answers to their calls. A call without an
/// answer gets `otherwise`.
fn narrow<'a>(
    answers: &mut BTreeMap<u32, Vec<Insn>>,
    arguments: impl IntoIterator<Item = &'a Argument>,
    numbers: &BTreeMap<String, Number>,
    otherwise: Insn,
) -> Outcome<()> {
    for argument in arguments {
        let Some(number) = numbers
            .get(&argument.syscall)
            .and_then(|number| number.value)
        else {
            continue;
        };
        let answer = answers
            .entry(u32::try_from(number)?)
            .or_insert_with(|| vec![otherwise]);
        let mut rule = argument_rule(argument)?;
        rule.append(answer);
        *answer = rule;
    }
    Ok(())
}

/// Returns a program that gives each number its answer of `answers`, and all others `otherwise`.
fn program(answers: &BTreeMap<u32, Vec<Insn>>, otherwise: Insn, audit_arch: u32) -> Vec<Insn> {
    // Runs of numbers with the same answer.
    let otherwise = vec![otherwise];
    let mut runs: Vec<(u32, Vec<Insn>)> = vec![(0, otherwise.clone())];
    for (&number, answer) in answers {
        let mut set = |from: u32, answer: &Vec<Insn>| match runs.last_mut() {
            Some(last) if last.0 == from => last.1.clone_from(answer),
            Some(last) if last.1 == *answer => {}
            _ => runs.push((from, answer.clone())),
        };
        set(number, answer);
        set(number + 1, &otherwise);
    }
    runs.dedup_by(|next, previous| next.1 == previous.1);

    let mut program = vec![
        insn(LOAD, ARCH),
        jump(IF_EQUAL, audit_arch, 1, 0),
        KILL_PROCESS,
        insn(LOAD, NUMBER),
    ];
    program.extend(search(&runs));
    program
}

/// Returns a balanced search for the run that contains the number in the accumulator.
fn search(runs: &[(u32, Vec<Insn>)]) -> Vec<Insn> {
    if let [(_, answer)] = runs {
        return answer.clone();
    }
    let (below, from) = runs.split_at(runs.len() / 2);
    let (below, from, pivot) = (search(below), search(from), from[0].0);
    let mut code = match u8::try_from(below.len()) {
        Ok(length) => vec![jump(IF_NOT_BELOW, pivot, length, 0)],
        // A conditional jump reaches 255 instructions; beyond that an unconditional one helps.
        Err(_) => vec![
            jump(IF_NOT_BELOW, pivot, 0, 1),
            insn(JUMP, below.len() as u32),
        ],
    };
    code.extend(below);
    code.extend(from);
    code
}

/// Returns instructions that refuse by one argument, or fall through.
fn argument_rule(argument: &Argument) -> Outcome<Vec<Insn>> {
    let no = if argument.errno == "KILL" {
        KILL_PROCESS
    } else {
        refuse(errno(&argument.errno)?)
    };
    let load = insn(LOAD, argument_low(argument.index));
    let mut code = vec![load];
    for &bits in argument.any_bit.iter().flatten() {
        code.extend([jump(IF_ANY_BIT, u32::try_from(bits)?, 0, 1), no]);
    }
    for &value in argument.equals.iter().flatten() {
        code.extend([jump(IF_EQUAL, u32::try_from(value)?, 0, 1), no]);
    }
    if let Some(values) = &argument.not_equals {
        for (index, &value) in values.iter().enumerate() {
            let past_the_refusal = u8::try_from(values.len() - index)?;
            code.push(jump(IF_EQUAL, u32::try_from(value)?, past_the_refusal, 0));
        }
        code.push(no);
    }
    if let Some(masked) = &argument.masked {
        code.push(insn(AND, u32::try_from(masked.mask)?));
        for &value in &masked.equals {
            code.extend([jump(IF_EQUAL, u32::try_from(value)?, 0, 1), no]);
        }
    }
    if code.len() == 1 {
        return Err(format!(
            "seccomp.toml: the rule on {} refuses nothing",
            argument.syscall
        )
        .into());
    }
    let Some(condition) = &argument.when else {
        return Ok(code);
    };
    // Each of the values leads into the rule; any other value jumps past it.
    let values = &condition.equals;
    let rule_length = u8::try_from(code.len())?;
    let mut whole = vec![insn(LOAD, argument_low(condition.index))];
    for (index, &value) in values.iter().enumerate() {
        let left = u8::try_from(values.len() - index - 1)?;
        let otherwise = if left == 0 { rule_length } else { 0 };
        whole.push(jump(IF_EQUAL, u32::try_from(value)?, left, otherwise));
    }
    whole.append(&mut code);
    Ok(whole)
}

/// Returns the number of an errno. It is the same on x86_64 and aarch64 (asm-generic/errno.h), and
/// does not depend on the build machine.
fn errno(name: &str) -> Outcome<u32> {
    match name {
        "EPERM" => Ok(1),
        "ENOSYS" => Ok(38),
        "ENOPROTOOPT" => Ok(92),
        "EOPNOTSUPP" => Ok(95),
        "EAFNOSUPPORT" => Ok(97),
        other => Err(format!("no number is known for {other}").into()),
    }
}

/// Returns the source that `src/seccomp.rs` includes.
fn generate(
    policy: &Policy,
    numbers: &BTreeMap<String, Number>,
    programs: &[(&str, Vec<Insn>)],
) -> Outcome<String> {
    let mut text = String::new();
    for (name, program) in programs {
        writeln!(text, "pub(super) static {name}: &[libc::sock_filter] = &[")?;
        for Insn { code, jt, jf, k } in program {
            writeln!(
                text,
                "    libc::sock_filter {{ code: {code}, jt: {jt}, jf: {jf}, k: {k} }},"
            )?;
        }
        writeln!(text, "];\n")?;
    }
    writeln!(text, "pub(super) static TABLE: &[Entry] = &[")?;
    let verdicts = [
        ("Allowed", &policy.allowed),
        ("Refused", &policy.refused),
        ("Unsupported", &policy.unsupported),
    ];
    for (verdict, groups) in verdicts {
        for (group, names) in groups {
            for name in names {
                let Some(number) = numbers.get(name).and_then(|n| n.value) else {
                    continue;
                };
                let verdict = if policy.argument.iter().any(|a| a.syscall == *name) {
                    "ByArgument"
                } else {
                    verdict
                };
                writeln!(
                    text,
                    "    Entry {{ name: {name:?}, number: {number}, group: {group:?}, verdict: Verdict::{verdict} }},"
                )?;
            }
        }
    }
    writeln!(text, "];\n")?;
    for (name, number) in numbers.iter().filter(|(_, number)| number.in_libc) {
        if let Some(value) = number.value {
            writeln!(
                text,
                "#[cfg(target_env = \"gnu\")]\nconst _: () = assert!(libc::SYS_{name} == {value}, \"syscalls.txt: {name}\");"
            )?;
        }
    }
    Ok(text)
}
