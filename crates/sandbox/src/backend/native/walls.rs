//! Lines of the isolation report about what was observed and tried inside, not about what was
//! requested.

use crate::Report;
use glovebox_jail::plan::Plan;
use glovebox_jail::stage0::SelfTest;
use glovebox_spec::{Isolation, LimitState, Net};

/// First ABI of Landlock that can refuse abstract Unix sockets.
const SCOPE_ABI: u32 = 6;

/// Adds the wall around the network.
pub(super) fn network(report: &mut Report, spec: &Isolation, found: &SelfTest) {
    let seen = &found.observed;
    let interfaces = seen.interfaces.join(", ");
    match spec.net {
        Net::None => report.wall(
            "network",
            LimitState::Enforced,
            format!("own namespace; interfaces inside: {interfaces}; no route beyond them"),
        ),
        Net::Egress => report.wall(
            "network",
            LimitState::Enforced,
            format!(
                "own namespace; interfaces inside: {interfaces}; no route beyond them: connections go through the \
                 owner, to listed hosts only"
            ),
        ),
        Net::Host => {
            report.wall(
                "network",
                LimitState::Absent,
                format!("the host's network is shared; interfaces inside: {interfaces}"),
            );
            if !seen
                .landlock
                .is_some_and(|trial| trial.is_abstract_socket_refused)
            {
                let has = match found.landlock_abi {
                    0 => "none".to_owned(),
                    abi => format!("ABI {abi}"),
                };
                report.degraded.push(format!(
                    "abstract Unix sockets of the host can be reached from inside: refusing them takes \
                     Landlock ABI {SCOPE_ABI}, and this kernel has {has}"
                ));
            }
        }
    }
}

/// Adds Landlock, the second wall around files.
pub(super) fn landlock(report: &mut Report, found: &SelfTest) {
    match (found.landlock_abi, found.observed.landlock) {
        (abi, Some(trial)) if trial.is_refused => report.wall(
            "landlock",
            LimitState::Enforced,
            format!(
                "ABI {abi}, on every command; a process under it was refused what no rule grants"
            ),
        ),
        _ => report.wall(
            "landlock",
            LimitState::Absent,
            "this kernel has none; the mounts still hold",
        ),
    }
}

/// Adds the reason for which debuggers do not work inside, if they do not.
pub(super) fn tracing(report: &mut Report, found: &SelfTest) {
    if let Some(why) = found.tracing.why_off() {
        let hint = found.tracing.remedy();
        let hint = hint.map_or(String::new(), |remedy| format!("; {remedy}"));
        report.degraded.push(format!(
            "gdb, strace and LeakSanitizer do not work inside: {why}{hint}"
        ));
    }
}

/// Adds whether commands can create namespaces, and the risks of that.
pub(super) fn namespaces(report: &mut Report, plan: &Plan, found: &SelfTest) {
    let Some(nested) = plan.seal.nested else {
        let detail = match found.max_user_namespaces {
            Some(0) => "none can be made, by kernel limit and seccomp",
            _ => "refused by seccomp alone",
        };
        report.wall("namespaces", LimitState::Enforced, detail);
        return;
    };
    report.wall(
        "landlock",
        LimitState::Absent,
        "NESTED: not on commands, for it refuses every mount; the mounts of the sandbox hold",
    );
    let groups = match nested.cgroup_namespaces {
        0 => "none of control groups".to_owned(),
        count => format!("{count} of control groups"),
    };
    report.wall(
        "namespaces",
        LimitState::Absent,
        format!(
            "NESTED: commands may make up to {} of each kind ({groups}), and have every capability in them",
            nested.namespaces
        ),
    );
    report.degraded.push(
        "commands reach much more of the kernel in namespaces of their own: a bug there is a way out".to_owned(),
    );
    report.degraded.push(
        "a /proc that commands mount for themselves shows the machine's boot parameters and what else is covered in \
         the sandbox's own; their terminals and file systems in memory are not counted with the sandbox's"
            .to_owned(),
    );
    if nested.cgroup_namespaces == 0 {
        report.degraded.push(
            "namespaces of control groups cannot be made inside, because the caller's own group could be written \
             there: bubblewrap needs `--unshare-user --unshare-pid` and the like in place of `--unshare-all`"
                .to_owned(),
        );
    } else {
        report.degraded.push(
            "names and counters of the machine's control groups can be read in such a namespace"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_jail::stage0::observation::{LandlockTrial, Observation};

    fn found(landlock_abi: u32, trial: Option<LandlockTrial>) -> SelfTest {
        SelfTest {
            landlock_abi,
            observed: Observation {
                interfaces: vec!["lo".to_owned(), "eth0".to_owned()],
                landlock: trial,
                ..Observation::default()
            },
            ..SelfTest::default()
        }
    }

    fn lines(spec: &Isolation, found: &SelfTest) -> Report {
        let mut report = Report::new("native", "box");
        network(&mut report, spec, found);
        landlock(&mut report, found);
        report
    }

    #[test]
    fn a_shared_network_without_scopes_is_degraded() {
        let spec = Isolation {
            net: Net::Host,
            ..Isolation::default()
        };
        let refused = LandlockTrial {
            is_refused: true,
            is_granted: true,
            has_own_descriptors: true,
            is_abstract_socket_refused: false,
        };
        let old = lines(&spec, &found(5, Some(refused)));
        assert_eq!(old.degraded.len(), 1);
        assert!(old.degraded[0].contains("ABI 5"), "{:?}", old.degraded);
        assert!(old.walls[0].detail.contains("lo, eth0"));
        let without = lines(&spec, &found(0, None));
        assert!(without.degraded[0].contains("none"));
        assert_eq!(without.walls[1].state, LimitState::Absent);
        // The opposite case: the socket is refused, so no weakness is reported.
        let scoped = LandlockTrial {
            is_abstract_socket_refused: true,
            ..refused
        };
        let new = lines(&spec, &found(7, Some(scoped)));
        assert_eq!(new.degraded, Vec::<String>::new());
        assert_eq!(new.walls[1].state, LimitState::Enforced);
    }

    #[test]
    fn a_network_of_its_own_has_no_abstract_sockets_of_the_host() {
        let own = lines(&Isolation::default(), &found(0, None));
        assert_eq!(own.degraded, Vec::<String>::new());
        assert_eq!(own.walls[0].state, LimitState::Enforced);
    }
}
