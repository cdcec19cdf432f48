//! The numbers that `SPECIFICATION.md` promises or names as goals, as data, and what a run says about them.
//!
//! A promise has held in a published measurement, and `--check` fails when it does not hold any more. A goal has
//! not held yet; it is measured and shown, and fails nothing. A goal that holds becomes a promise by one word here.

use crate::table::Table;
use crate::verdict::{Standing, Verdict};
use crate::{
    bundle, checkpoint, egress, exec, files, idle, mcp, output, pull, push, serve, start, tools,
    turn, whole,
};

/// A number that a bench stores.
#[derive(Debug, Clone)]
pub(crate) enum Quantity {
    /// The median time of a contestant of a race, in microseconds.
    Median {
        /// The race.
        group: String,
        /// The contestant.
        contestant: &'static str,
    },
    /// A figure beside the races.
    Figure {
        /// The bench.
        group: &'static str,
        /// Its name there.
        name: String,
        /// Its unit.
        unit: &'static str,
    },
}

impl Quantity {
    fn median(group: &str, contestant: &'static str) -> Self {
        Self::Median {
            group: group.to_owned(),
            contestant,
        }
    }

    fn figure(group: &'static str, name: impl Into<String>, unit: &'static str) -> Self {
        Self::Figure {
            group,
            name: name.into(),
            unit,
        }
    }

    fn find(&self, table: &Table) -> Option<f64> {
        match self {
            Self::Median { group, contestant } => table.p50_us(group, contestant),
            Self::Figure { group, name, .. } => table.value(group, name),
        }
    }

    const fn unit(&self) -> &'static str {
        match self {
            Self::Median { .. } => "us",
            Self::Figure { unit, .. } => unit,
        }
    }
}

/// What is allowed at most.
#[derive(Debug, Clone)]
pub(crate) enum Bound {
    /// A bare number, in the unit of the quantity.
    Number(f64),
    /// A rival's number times a factor.
    Times(f64, Quantity),
    /// A rival's number and this many microseconds more.
    Plus(f64, Quantity),
}

impl Bound {
    fn find(&self, table: &Table) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Times(factor, rival) => Some(rival.find(table)? * factor),
            Self::Plus(more, rival) => Some(rival.find(table)? + more),
        }
    }
}

/// One line of `SPECIFICATION.md` with a number.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    /// Number of its id in the document. Never used again after the promise has gone.
    number: u16,
    /// The bench that measures it, as `--only` takes it.
    pub(crate) bench: &'static str,
    /// What is measured.
    pub(crate) what: String,
    /// The bound in words.
    pub(crate) bound: &'static str,
    /// Whether it has held yet.
    pub(crate) standing: Standing,
    /// Where it has been seen not to hold, though it is a promise.
    pub(crate) except: Option<&'static str>,
    /// A test that holds it as well.
    pub(crate) test: Option<&'static str>,
    quantity: Quantity,
    at_most: Bound,
}

impl Promise {
    /// Returns the id under which the document lists the promise, such as `PERF-07`.
    pub(crate) fn id(&self) -> String {
        format!("PERF-{:02}", self.number)
    }
}

/// Looks every promise up in what was measured.
pub(crate) fn judge(table: &Table) -> Vec<Verdict> {
    promises()
        .into_iter()
        .map(|promise| Verdict {
            bench: promise.bench.to_owned(),
            found: promise.quantity.find(table),
            allowed: promise.at_most.find(table),
            unit: promise.quantity.unit().to_owned(),
            what: promise.what,
            bound: promise.bound.to_owned(),
            standing: promise.standing,
        })
        .collect()
}

/// All of them, in the order of `SPECIFICATION.md`.
pub(crate) fn promises() -> Vec<Promise> {
    use Bound::{Number, Plus, Times};
    let median = Quantity::median;
    let mut list = List::default();

    let started = median(start::GROUP, start::DEFAULT);
    list.goal(
        48,
        "start",
        "start, exec `true`, destroy; native, by library",
        "p50 <= 2 ms",
        started.clone(),
        Number(2000.0),
    );
    list.goal(
        49,
        "start",
        "start, exec `true`, destroy, beside bubblewrap",
        "p50 <= bubblewrap's",
        started,
        Times(1.0, median(start::GROUP, start::BWRAP)),
    );
    list.goal(
        50,
        "whole",
        "`glovebox run -- true`, whole process",
        "p50 <= 2x bubblewrap's",
        median(whole::GROUP, whole::GLOVEBOX),
        Times(2.0, median(whole::GROUP, start::BWRAP)),
    );
    for (number, command) in (1..).zip(exec::COMMANDS) {
        let group = exec::group(command);
        list.promise(
            number,
            "exec",
            format!("exec of `{command}` in a running sandbox"),
            "p50 <= a direct spawn + 100 us",
            median(&group, exec::LIBRARY),
            Plus(100.0, median(&group, exec::DIRECT)),
        );
        if command != "echo hi" {
            list.except("a busy machine");
        }
    }
    for (number, tool) in (4..).step_by(2).zip(tools::FILE_TOOLS) {
        let group = tools::group(tool);
        list.promise(
            number,
            "tools",
            format!("{tool} of a 4 KiB file, through the whole layer"),
            "p50 <= 100 us",
            median(&group, tools::TOOL),
            Number(100.0),
        );
        if ["Write", "Edit"].contains(&tool) {
            list.except("a disk that takes more than 200 us to replace a file");
        }
        list.promise(
            number + 1,
            "tools",
            format!("{tool} of a 4 KiB file beside the `host` backend"),
            "p50 <= 2x",
            median(&group, tools::TOOL),
            Times(2.0, median(&group, tools::LOCAL)),
        );
    }
    list.promise(
        14,
        "tools",
        "Grep in a tree of 100,000 files",
        "p50 <= 1.3x `rg`",
        median(tools::GREP, tools::TOOL),
        Times(1.3, median(tools::GREP, tools::RG)),
    );
    let turns = turn::group(turn::LONG);
    list.promise(
        15,
        "turn",
        "200 turns of the agent's loop, log on disk included, beside the same calls alone",
        "p50 <= 1 ms a turn more",
        median(&turns, turn::LOOP),
        Plus(1000.0 * turn::LONG as f64, median(&turns, turn::BARE)),
    );
    list.promise(
        16,
        "turn",
        "the first request of a session, without instructions of the project",
        "<= 20 KiB",
        Quantity::figure(turn::SERVED, turn::FIRST_REQUEST, "KiB"),
        Number(20.0),
    );
    list.goal(
        51,
        "turn",
        "from the last byte of a model's answer to the start of the tool that it calls",
        "p50 <= 1 ms",
        Quantity::figure(turn::SERVED, turn::TO_TOOL, "us"),
        Number(1000.0),
    );
    let transports = [("over pipes", mcp::PIPES), ("over HTTP", mcp::HTTP)];
    for (number, (way, server)) in (17..).zip(transports) {
        list.promise(
            number,
            "mcp",
            format!(
                "Read of 4 KiB by a connected MCP client {way}, beside the same call by library"
            ),
            "p50 <= 1 ms more",
            median(mcp::GROUP, server),
            Plus(1000.0, median(mcp::GROUP, mcp::LIBRARY)),
        );
    }
    let small = files::group("read", files::SMALL);
    list.promise(
        19,
        "files",
        "read of 4 KiB",
        "p50 <= 100 us",
        median(&small, files::NATIVE),
        Number(100.0),
    );
    list.promise(
        20,
        "files",
        "read of 4 KiB beside the `host` backend",
        "p50 <= 2x",
        median(&small, files::NATIVE),
        Times(2.0, median(&small, files::LOCAL)),
    );
    for (number, verb) in (21..).zip(["read", "write"]) {
        let group = files::group(verb, files::LARGE);
        list.promise(
            number,
            "files",
            format!("100 MiB {verb}, beside direct file I/O"),
            "speed >= 0.8x",
            median(&group, files::NATIVE),
            Times(1.0 / 0.8, median(&group, files::DIRECT)),
        );
        if verb == "read" {
            list.except("a kernel that gives no large pages: 0.72x");
        }
    }
    list.promise(
        23,
        "idle",
        "1000 idle sandboxes of one owner, all included",
        "<= 1 MiB each",
        Quantity::figure(idle::GROUP, idle::total(1000), "KiB"),
        Number(1024.0),
    );
    for (number, operation) in (24..).zip(["checkpoint", "fork"]) {
        list.promise(
            number,
            "checkpoint",
            format!("{operation} with 1 GiB written"),
            "p50 <= 5 ms",
            Quantity::figure(
                checkpoint::GROUP,
                checkpoint::figure(operation, checkpoint::LARGEST),
                "us",
            ),
            Number(5000.0),
        );
    }
    list.promise(
        26,
        "push",
        "a project of 100,000 files copied in, first time",
        "p50 <= `tar | base64`",
        median(push::FIRST, push::COPY),
        Times(1.0, median(push::FIRST, push::TAR)),
    );
    list.promise(
        27,
        "push",
        "a project of 100,000 files copied in again after 10 changes",
        "5x faster than `tar | base64`",
        median(push::AGAIN, push::COPY),
        Times(1.0 / 5.0, median(push::AGAIN, push::TAR)),
    );
    for (number, whose) in (28..).zip([push::HOST_MEMORY, push::GUEST_MEMORY]) {
        list.promise(
            number,
            "push",
            format!("a project of 100,000 files copied in: {whose}"),
            "<= 64 MiB",
            Quantity::figure(push::FIRST, whose, "MiB"),
            Number(64.0),
        );
        list.tested_by("crates/workspace/tests/copy_memory.rs");
    }
    list.promise(
        30,
        "pull",
        "a project of 100,000 files in an overlay, ready",
        "p50 <= 50 ms",
        median(pull::READY, pull::MANY),
        Number(50_000.0),
    );
    list.promise(
        31,
        "pull",
        "pull of 10 changes out of 100,000 files, whole process",
        "p50 <= 100 ms",
        median(pull::PULL, pull::GLOVEBOX),
        Number(100_000.0),
    );
    list.promise(
        32,
        "pull",
        format!("pull of 10 changes out of 100,000 files: {}", pull::MEMORY),
        "<= 64 MiB",
        Quantity::figure(pull::PULL, pull::MEMORY, "MiB"),
        Number(64.0),
    );
    for (number, whose) in (33..).zip([output::HOST_MEMORY, output::GUEST_MEMORY]) {
        list.promise(
            number,
            "output",
            format!("a flood of output: {whose}"),
            "<= 64 MiB",
            Quantity::figure(output::GROUP, whose, "MiB"),
            Number(64.0),
        );
        list.tested_by("tests/flow/flood.rs");
    }
    list.promise(
        35,
        "egress",
        "a connection to a listed host, beside a direct one",
        "p50 <= 1 ms more",
        median(egress::CONNECT, egress::GLOVEBOX),
        Plus(1000.0, median(egress::CONNECT, egress::DIRECT)),
    );
    list.promise(
        36,
        "egress",
        "1 GiB from a listed host over a link of 10 Gbit/s, beside a direct connection",
        "speed >= 0.8x",
        median(egress::LINK, egress::GLOVEBOX),
        Times(1.0 / 0.8, median(egress::LINK, egress::DIRECT)),
    );
    list.goal(
        52,
        "egress",
        "1 GiB from a listed host over loopback, beside a direct connection",
        "speed >= 0.8x",
        median(egress::TRANSFER, egress::GLOVEBOX),
        Times(1.0 / 0.8, median(egress::TRANSFER, egress::DIRECT)),
    );
    let refused = [
        (
            "a connection to a name that is not listed fails",
            egress::OTHER_NAME,
        ),
        (
            "a connection to an address that is not listed fails",
            egress::OTHER_ADDRESS,
        ),
        (
            "a connection to a name without network fails",
            egress::NO_NETWORK,
        ),
    ];
    for (number, (what, contestant)) in (37..).zip(refused) {
        list.promise(
            number,
            "egress",
            what,
            "p50 <= 50 ms",
            median(egress::DENIAL, contestant),
            Number(50_000.0),
        );
    }
    bundles(&mut list);
    servers(&mut list);
    list.0
}

/// Sessions over HTTP.
fn servers(list: &mut List) {
    use Bound::Number;
    list.promise(
        46,
        "serve",
        "calls of 100 sessions at once, 20 of Read each",
        "p95 <= 50 ms, none fails",
        Quantity::figure(serve::GROUP, serve::load_p95(serve::SESSIONS), "ms"),
        Number(50.0),
    );
    list.promise(
        47,
        "serve",
        "an idle session with its sandbox, all processes",
        "<= 5 MiB",
        Quantity::figure(serve::GROUP, serve::IDLE_MEMORY, "KiB"),
        Number(5120.0),
    );
}

/// Agents and tools of bundles.
fn bundles(list: &mut List) {
    use Bound::{Number, Times};
    let median = Quantity::median;
    list.promise(
        40,
        "bundle",
        "one call of a bundle's tool over HTTP, with a process and a runtime of its own",
        "p50 <= 5 ms",
        median(bundle::CALL, bundle::HTTP),
        Number(5000.0),
    );
    list.promise(
        41,
        "bundle",
        "the same beside a process of Node for each call",
        "10x faster",
        median(bundle::CALL, bundle::HTTP),
        Times(0.1, median(bundle::CALL, bundle::NODE)),
    );
    let sizes = [
        (bundle::SIZES_KB[0], "p50 <= 20 ms", 20_000.0),
        (bundle::SIZES_KB[1], "p50 <= 250 ms", 250_000.0),
    ];
    for (number, (kb, bound, us)) in (42..).zip(sizes) {
        list.promise(
            number,
            "bundle",
            format!("a bundle of {kb} KB read, in a process of its own"),
            bound,
            median(bundle::EXTRACTION, bundle::of_size(kb)),
            Number(us),
        );
    }
    list.goal(
        53,
        "bundle",
        "32 calls at once beside as many that take all the memory they may have",
        "p95 <= 5x that of 32 calls alone",
        Quantity::figure(bundle::BOMBS, bundle::bombs_p95(true), "ms"),
        Times(
            5.0,
            Quantity::figure(bundle::BOMBS, bundle::bombs_p95(false), "ms"),
        ),
    );
    list.goal(
        54,
        "bundle",
        "a sandbox that waits for calls of tools",
        "<= 8 MiB",
        Quantity::figure(bundle::POOL, bundle::reserve_total(), "KiB"),
        Number(8192.0),
    );
    list.promise(
        44,
        "bundle",
        "200 calls a second of bundles' tools for a minute",
        "5 ms from call to call",
        Quantity::figure(bundle::STEADY, bundle::between_calls(), "us"),
        // A timer may be late.
        Number(5050.0),
    );
    list.promise(
        45,
        "bundle",
        "the same: memory of the host process more at the end",
        "<= 4 MiB",
        Quantity::figure(bundle::STEADY, bundle::GROWTH, "KiB"),
        Number(4096.0),
    );
}

#[derive(Default)]
struct List(Vec<Promise>);

impl List {
    fn promise(
        &mut self,
        number: u16,
        bench: &'static str,
        what: impl Into<String>,
        bound: &'static str,
        quantity: Quantity,
        at_most: Bound,
    ) {
        self.0.push(Promise {
            number,
            bench,
            what: what.into(),
            bound,
            standing: Standing::Promise,
            except: None,
            test: None,
            quantity,
            at_most,
        });
    }

    /// The promise added last does not hold where `except` says.
    fn except(&mut self, except: &'static str) {
        if let Some(last) = self.0.last_mut() {
            last.except = Some(except);
        }
    }

    /// The promise added last is held by a test as well.
    fn tested_by(&mut self, test: &'static str) {
        if let Some(last) = self.0.last_mut() {
            last.test = Some(test);
        }
    }

    fn goal(
        &mut self,
        number: u16,
        bench: &'static str,
        what: impl Into<String>,
        bound: &'static str,
        quantity: Quantity,
        at_most: Bound,
    ) {
        self.promise(number, bench, what, bound, quantity, at_most);
        if let Some(last) = self.0.last_mut() {
            last.standing = Standing::Goal;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_promise_has_a_number_of_its_own() {
        let mut numbers: Vec<u16> = promises().iter().map(|promise| promise.number).collect();
        numbers.sort_unstable();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }

    /// A promise whose quantity no bench stores would be unknown for ever.
    #[test]
    fn every_bench_of_a_promise_is_one() {
        for promise in promises() {
            assert!(
                crate::BENCHES
                    .iter()
                    .any(|(name, _)| *name == promise.bench),
                "{promise:?}"
            );
        }
    }
}
