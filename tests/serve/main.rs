//! `glovebox serve` as its clients meet it: tasks, events, files, changes, users, and the end of the server.
//!
//! Runs once, not once per user: what depends on the user is tried as both inside.
//!
//! Where the acceptance criteria of server mode are tested; a file without a directory is one of this suite:
//!
//! | criterion | test |
//! |---|---|
//! | F1 file tools work in the sandbox | `sessions::a_task_works_in_a_sandbox_and_its_changes_are_taken_over_when_somebody_says_so` |
//! | F2 shell and search tools, too | `criteria::f2_shell_and_search_tools_work_in_the_sandbox` |
//! | F3 on the machine itself only when it is said | `operation::without_walls_only_when_it_is_said`; the command line: `tests/agent`, `tests/flow/here.rs` |
//! | F4 the same tools in both placements | `criteria::f4_tools_are_the_same_with_and_without_a_sandbox` |
//! | F5 a sandbox was tried before the server answers | `operation::a_server_says_whether_it_can_work` |
//! | F6 no server without a working sandbox | `operation::a_server_without_a_working_sandbox_does_not_start` |
//! | F7 the command line needs no server | `tests/flow`: no test there starts one |
//! | F8 errors say what to do | `operation::a_server_that_is_started_wrongly_says_how_to_do_it`, `sessions::what_is_asked_for_wrongly_is_told_with_its_field` |
//! | P1 a sandbox within 3 s | `operation::a_server_says_whether_it_can_work`: the probe's own limit is 3 s |
//! | P2, P3 a read, a command in less than twice the local time | not here, where nothing is timed: `benches` |
//! | P4 no leaks | `criteria::p4_sandboxes_that_come_and_go_leave_neither_memory_nor_descriptors` |
//! | P5 ten at once | `limits::many_sessions_work_at_once_each_in_its_own_sandbox` |
//! | S1 no way to the machine's files | `tests/escape` |
//! | S2 timeouts hold | `criteria::s2_a_command_that_ignores_signals_and_hides_its_children_ends_at_its_timeout` |
//! | S3 sessions are apart | `users::two_users_see_nothing_of_each_other` |
//! | S4 no credential is written | `criteria::s4_a_credential_of_the_server_is_in_nothing_that_it_writes_or_answers` |
//! | B1 to B3 sessions, calls and their format as before | in part: `zeros_of_an_earlier_version_are_unknown` in `crates/agent`; there is no release yet whose sessions could be read again |
//! | B4 the API changes only on purpose | `the_description_in_the_repository_is_the_one_that_is_served` in `crates/server`, `operation::the_description_has_every_route` |

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod archives;
mod bundles;
mod criteria;
mod environment;
mod events;
mod faults;
mod lifetime;
mod limits;
mod logs;
mod mcp;
mod operation;
mod previews;
mod quotas;
mod recovery;
mod server;
mod sessions;
mod terminal;
mod tls;
mod users;
mod workspaces;
