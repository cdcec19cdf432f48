//! The numbers `SPECIFICATION.md` promises, and whether this run has seen them.

use crate::table::Table;
use crate::verdict::Verdict;
use crate::{checkpoint, exec, files, idle, mcp, output, pull, push, start, tools, turn, whole};

/// Looks every promise up in what was measured.
pub(crate) fn judge(table: &Table) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut at_most = |what: &str, found: Option<f64>, allowed: Option<f64>, unit: &str| {
        let both = found.zip(allowed);
        verdicts.push(Verdict {
            what: what.to_owned(),
            ratio: both.map(|(found, allowed)| found / allowed),
            detail: both.map_or_else(
                || "not measured in this run".to_owned(),
                |(found, allowed)| format!("{found:.1} {unit}, allowed {allowed:.1}"),
            ),
        });
    };
    let us = "us";
    let called = table.p50_us(mcp::GROUP, mcp::LIBRARY);
    for (way, server) in [("over pipes", mcp::PIPES), ("over HTTP", mcp::HTTP)] {
        at_most(
            &format!("Read by an MCP client {way}: within 1 ms of the same call by library"),
            table.p50_us(mcp::GROUP, server),
            called.map(|called| called + 1000.0),
            us,
        );
    }
    let started = table.p50_us(start::GROUP, start::DEFAULT);
    at_most(
        "start + exec `true` + destroy by library: p50 within 2 ms",
        started,
        Some(2000.0),
        us,
    );
    at_most(
        "start + exec `true` + destroy by library: faster than bubblewrap",
        started,
        table.p50_us(start::GROUP, start::BWRAP),
        us,
    );
    at_most(
        "`glovebox run -- true`, whole process: within 2x bubblewrap",
        table.p50_us(whole::GROUP, whole::GLOVEBOX),
        table
            .p50_us(whole::GROUP, start::BWRAP)
            .map(|time| time * 2.0),
        us,
    );
    for command in exec::COMMANDS {
        let group = exec::group(command);
        at_most(
            &format!("exec of `{command}` in a running sandbox: within 100 us of a direct spawn"),
            table.p50_us(&group, exec::LIBRARY),
            table.p50_us(&group, exec::DIRECT).map(|time| time + 100.0),
            us,
        );
    }
    let small = files::group("read", files::SMALL);
    let read = table.p50_us(&small, files::NATIVE);
    at_most("read of 4 KiB: within 100 us", read, Some(100.0), us);
    at_most(
        "read of 4 KiB: within 2x of local placement",
        read,
        table.p50_us(&small, files::LOCAL).map(|time| time * 2.0),
        us,
    );
    for verb in ["read", "write"] {
        let group = files::group(verb, files::LARGE);
        at_most(
            &format!("100 MiB {verb}: at least 0.8x the speed of direct file I/O"),
            table.p50_us(&group, files::NATIVE),
            table.p50_us(&group, files::DIRECT).map(|time| time / 0.8),
            us,
        );
    }
    for tool in tools::FILE_TOOLS {
        let group = tools::group(tool);
        let taken = table.p50_us(&group, tools::TOOL);
        at_most(
            &format!("{tool} of a 4 KiB file through the layer: within 100 us"),
            taken,
            Some(100.0),
            us,
        );
        at_most(
            &format!("{tool} of a 4 KiB file through the layer: within 2x of local placement"),
            taken,
            table.p50_us(&group, tools::LOCAL).map(|time| time * 2.0),
            us,
        );
    }
    at_most(
        "Grep in 100k files: within 1.3x of `rg`",
        table.p50_us(tools::GREP, tools::TOOL),
        table.p50_us(tools::GREP, tools::RG).map(|time| time * 1.3),
        us,
    );
    let turns = turn::group(turn::LONG);
    at_most(
        "200 turns of the agent: within 1 ms each of the same calls alone",
        table.p50_us(&turns, turn::LOOP),
        table
            .p50_us(&turns, turn::BARE)
            .map(|time| time + 1000.0 * turn::LONG as f64),
        us,
    );
    at_most(
        "1000 idle sandboxes: within 1 MiB each, all included",
        table.value(idle::GROUP, &idle::total(1000)),
        Some(1024.0),
        "KiB",
    );
    at_most(
        "copy push of many files, first time: no slower than `tar | base64`",
        table.p50_us(push::FIRST, push::COPY),
        table.p50_us(push::FIRST, push::TAR),
        us,
    );
    at_most(
        "copy push of many files, after 10 changes: 5x faster than `tar | base64`",
        table.p50_us(push::AGAIN, push::COPY),
        table.p50_us(push::AGAIN, push::TAR).map(|time| time / 5.0),
        us,
    );
    for whose in [push::HOST_MEMORY, push::GUEST_MEMORY] {
        at_most(
            &format!("copy push of many files: {whose} within 64 MiB"),
            table.value(push::FIRST, whose),
            Some(64.0),
            "MiB",
        );
    }
    at_most(
        "project of many files in an overlay: ready within 50 ms",
        table.p50_us(pull::READY, pull::MANY),
        Some(50_000.0),
        us,
    );
    at_most(
        "pull of 10 changes out of many files: within 100 ms",
        table.p50_us(pull::PULL, pull::GLOVEBOX),
        Some(100_000.0),
        us,
    );
    at_most(
        "pull of 10 changes out of many files: peak memory within 64 MiB",
        table.value(pull::PULL, pull::MEMORY),
        Some(64.0),
        "MiB",
    );
    for operation in ["checkpoint", "fork"] {
        at_most(
            &format!("{operation} with 1 GiB written: p50 within 5 ms"),
            table.value(
                checkpoint::GROUP,
                &checkpoint::figure(operation, checkpoint::LARGEST),
            ),
            Some(5000.0),
            us,
        );
    }
    for whose in [output::HOST_MEMORY, output::GUEST_MEMORY] {
        at_most(
            &format!("a flood of output: {whose} within 64 MiB"),
            table.value(output::GROUP, whose),
            Some(64.0),
            "MiB",
        );
    }
    verdicts
}
