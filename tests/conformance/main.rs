//! Every backend, one suite: what a sandbox does must not depend on what stands behind it.
//!
//! Each check is a function over a [`Fixture`]; the macro at the end runs all of them against all
//! backends. What only carriers can get wrong is in `carrier`.

#![expect(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic, and a failure says where it was"
)]

mod advice;
mod carrier;
mod commands;
mod endings;
mod files;
mod fixture;
mod home;
mod jobs;
mod round_trips;
mod scripts;
mod search;
mod sshd;
mod tools;
mod trees;

use fixture::Fixture;

macro_rules! suite {
    (table $table:ident; $($backend:ident),+ => $($room:ident :: $check:ident),+ $(,)?) => {
        /// Names and functions of the checks.
        const $table: &[(&str, fn(&Fixture))] = &[$((stringify!($check), $room::$check)),+];
        suite!($($backend),+ => $($room :: $check),+);
    };
    ($($backend:ident),+ => $($room:ident :: $check:ident),+ $(,)?) => {
        suite!(@each [$($backend),+] ($($room :: $check),+));
    };
    (@each [$($backend:ident),+] $checks:tt) => {
        $(suite!(@one $backend $checks);)+
    };
    (@one $backend:ident ($($room:ident :: $check:ident),+)) => {
        mod $backend {
            $(
                #[test]
                fn $check() {
                    match crate::Fixture::$backend() {
                        Ok(fixture) => crate::$room::$check(&fixture),
                        Err(reason) => testkit::skip!("{reason}"),
                    }
                }
            )+
        }
    };
}

// Through a supervisor as well: what its clients see must be no different. What only an owner can
// do is left out.
suite! {
    supervised =>
    commands::pings_and_tells_facts,
    commands::streams_and_exit_codes_are_kept_apart,
    commands::arguments_environment_and_input_arrive_unchanged,
    commands::any_bytes_come_back_unchanged,
    commands::bad_commands_are_named,
    commands::many_run_at_once,
    commands::a_slow_reader_slows_the_writer_only,
    commands::a_deadline_ends_everything_the_command_started,
    commands::leftovers_are_killed_or_kept_as_asked,
    commands::a_terminal_is_one,
    commands::lent_input_is_counted_and_merged_output_is_one_stream,
    commands::captured_output_is_capped,
    jobs::logs_are_kept_and_read_by_offset,
    jobs::jobs_are_listed_signalled_and_killed,
    jobs::attaching_follows_and_feeds,
    jobs::unknown_jobs_are_named,
    files::content_survives_the_round_trip,
    files::a_large_file_survives_the_round_trip,
    files::names_may_be_any_bytes,
    files::write_modes_differ,
    files::directories_are_made_listed_moved_and_removed,
    files::faults_name_the_reason,
    search::texts_are_replaced_in_place,
    search::files_are_found_by_name_newest_first,
    search::lines_are_found_in_the_newest_files_first,
    search::a_search_ends_in_time_with_what_it_has,
    trees::a_tree_put_is_scanned_and_got_back,
    trees::a_put_stays_beneath_its_root,
    trees::tree_requests_can_be_given_up,
    tools::files_are_written_read_edited_and_found,
    tools::what_is_named_is_deleted_and_no_more,
    tools::a_file_is_moved_and_nothing_is_lost,
    tools::commands_are_jobs_with_sessions,
    tools::what_is_left_out_can_be_read,
    scripts::scripts_keep_their_variables_and_call_tools,
    tools::whatever_comes_has_a_bounded_clear_outcome,
    tools::calls_wait_for_each_other_only_where_they_must,
    tools::a_long_session_loses_nothing_and_leaves_nothing,
    endings::cancelling_ends_the_command,
    endings::dropping_a_stream_ends_the_command,
    endings::the_end_of_the_guest_is_a_loss,
    endings::shutdown_ends_it,
    endings::the_report_states_facts,
}

suite! {
    table CHECKS;
    host, command_sh, command_ssh, sprites_ws, aio_exec, native =>
    commands::pings_and_tells_facts,
    commands::streams_and_exit_codes_are_kept_apart,
    commands::arguments_environment_and_input_arrive_unchanged,
    commands::any_bytes_come_back_unchanged,
    commands::bad_commands_are_named,
    commands::many_run_at_once,
    commands::a_slow_reader_slows_the_writer_only,
    commands::a_deadline_ends_everything_the_command_started,
    commands::leftovers_are_killed_or_kept_as_asked,
    commands::a_terminal_is_one,
    commands::lent_input_is_counted_and_merged_output_is_one_stream,
    commands::captured_output_is_capped,
    jobs::logs_are_kept_and_read_by_offset,
    jobs::jobs_are_listed_signalled_and_killed,
    jobs::attaching_follows_and_feeds,
    jobs::unknown_jobs_are_named,
    files::content_survives_the_round_trip,
    files::a_large_file_survives_the_round_trip,
    files::names_may_be_any_bytes,
    files::write_modes_differ,
    files::directories_are_made_listed_moved_and_removed,
    files::faults_name_the_reason,
    search::texts_are_replaced_in_place,
    search::files_are_found_by_name_newest_first,
    search::lines_are_found_in_the_newest_files_first,
    search::a_search_ends_in_time_with_what_it_has,
    trees::a_tree_put_is_scanned_and_got_back,
    trees::a_put_stays_beneath_its_root,
    trees::tree_requests_can_be_given_up,
    tools::files_are_written_read_edited_and_found,
    home::a_tilde_is_the_home_of_commands,
    tools::what_is_named_is_deleted_and_no_more,
    tools::a_file_is_moved_and_nothing_is_lost,
    tools::commands_are_jobs_with_sessions,
    tools::what_is_left_out_can_be_read,
    advice::only_tools_that_are_there_are_advised,
    scripts::scripts_keep_their_variables_and_call_tools,
    tools::whatever_comes_has_a_bounded_clear_outcome,
    tools::calls_wait_for_each_other_only_where_they_must,
    tools::a_lost_call_is_never_made_twice,
    tools::a_long_session_loses_nothing_and_leaves_nothing,
    endings::cancelling_ends_the_command,
    endings::dropping_a_stream_ends_the_command,
    endings::destroying_leaves_no_process_and_no_directory,
    endings::the_end_of_the_guest_is_a_loss,
    endings::shutdown_ends_it,
    endings::the_wall_clock_limit_ends_it,
    endings::a_required_limit_is_held_or_refused,
    endings::the_report_states_facts,
}

/// Every how many checks of [`CHECKS`] a backend of [`sampled`] has, unless the whole is asked for.
const STEP: usize = 6;

/// Runs a part of the checks against one more backend, or with `GLOVEBOX_TEST_WHOLE` all of them.
fn run_sample(fixture: fn() -> Result<Fixture, String>) {
    let is_whole = std::env::var_os("GLOVEBOX_TEST_WHOLE").is_some();
    for (name, check) in CHECKS.iter().step_by(if is_whole { 1 } else { STEP }) {
        // A failure says which check it was of.
        eprintln!("{name}");
        check(&fixture().unwrap());
    }
}

/// Backends whose guests are reached as those above are, by another way.
mod sampled {
    use crate::{Fixture, run_sample};

    #[test]
    fn sprites_cli() {
        run_sample(Fixture::sprites_cli);
    }

    #[test]
    fn made_up() {
        run_sample(Fixture::made_up);
    }
}
