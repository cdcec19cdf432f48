//! `glovebox serve` as its clients meet it: tasks, events, files, changes, users, and the end of the server.
//!
//! Runs once, not once per user: what depends on the user is tried as both inside.
//!
//! Where the acceptance criteria of server mode are tested; a file without a directory is one of this suite:
//!
//! | criterion | tests |
//! |---|---|
//! | F1 file tools work in the sandbox | `criteria::functional::f1_file_tools_work_in_the_sandbox`, and with an agent `sessions::a_task_works_in_a_sandbox_and_its_changes_are_taken_over_when_somebody_says_so` |
//! | F2 shell and search tools, too | `criteria::functional::f2_shell_and_search_tools_work_in_the_sandbox` |
//! | F3 on the machine itself only when it is said | `criteria::functional::f3_tools_work_on_the_machine_only_when_it_is_said`; of the command line in `tests/agent` |
//! | F4 the same tools in both placements | `criteria::functional::f4_tools_are_the_same_with_and_without_a_sandbox` |
//! | F5 a sandbox was tried before the server answers | `criteria::functional::f5_a_server_has_tried_a_sandbox_before_it_answers` |
//! | F6 no server without a working sandbox | `criteria::functional::f6_a_server_without_a_working_sandbox_does_not_start`; at a service, `elsewhere::f6_a_server_with_a_dead_container_does_not_start_and_names_it` |
//! | F7 the command line needs no server | `criteria::functional::f7_the_command_line_needs_no_server` |
//! | F8 errors say what to do | `criteria::functional::f8_a_server_that_is_started_wrongly_says_how_to_do_it`, `criteria::functional::f8_an_error_of_the_api_has_a_code_a_sentence_and_what_to_do` |
//! | P1 a sandbox within 3 s | `criteria::performance::p1_a_sandbox_is_there_within_three_seconds` |
//! | P2 a read in less than twice the local time | `criteria::performance::p2_a_file_is_read_in_less_than_twice_the_local_time` |
//! | P3 a command, too | `criteria::performance::p3_a_command_takes_less_than_twice_the_local_time` |
//! | P4 no leaks | `criteria::performance::p4_sandboxes_that_come_and_go_leave_neither_memory_nor_descriptors` |
//! | P5 ten at once | `criteria::performance::p5_many_sessions_work_at_once_each_in_its_own_sandbox` |
//! | S1 no way to the machine's files | `criteria::security::s1_tools_have_no_way_to_the_machines_files`; far more in `tests/escape` |
//! | S2 timeouts hold | `criteria::security::s2_a_command_that_ignores_signals_and_hides_its_children_ends_at_its_timeout` |
//! | S3 sessions are apart | `users::s3_two_users_see_nothing_of_each_other`; at a service, `elsewhere::s3_each_user_of_a_service_has_a_container_and_a_third_one_is_refused` |
//! | S4 no credential is written | `criteria::security::s4_a_credential_of_the_server_is_in_nothing_that_it_writes_or_answers` |
//! | B1 earlier sessions go on | `criteria::backwards::b1_a_session_of_an_earlier_version_is_listed_shown_and_goes_on` |
//! | B2 earlier calls are understood | `criteria::backwards::b2_calls_in_the_form_of_an_earlier_version_are_understood` |
//! | B3 events keep their form | `criteria::backwards::b3_events_keep_the_form_of_an_earlier_version` |
//! | B4 the API changes only on purpose | `criteria::backwards::b4_the_description_has_every_route`, `criteria::backwards::b4_the_api_is_the_one_in_the_repository` |

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod accounting;
mod apart;
mod applies;
mod archives;
mod audit;
mod bundles;
mod contract;
mod criteria;
mod elsewhere;
mod environment;
mod events;
mod faults;
mod lifetime;
mod limits;
mod load;
mod logins;
mod logs;
mod mcp;
mod pool;
mod previews;
mod proxies;
mod quotas;
mod recovery;
mod reviews;
mod server;
mod sessions;
mod small_disk;
mod terminal;
mod tls;
mod traces;
mod users;
mod workspaces;
