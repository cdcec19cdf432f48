//! The product from end to end: the real binary, used as a person or a script uses it.
//!
//! Everything is tried as whoever runs the tests and, when that is root, as an ordinary user too.
//! No room of this suite knows how the product is built; what can be seen from outside (exit codes,
//! bytes, files, processes) is all that counts.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod agents_inside;
mod as_shown;
mod both_sides;
mod branch_files;
mod build_output;
mod bytes;
mod caches;
mod commits;
mod confined;
mod confined_egress;
mod confined_loopback;
mod copies;
mod crowds;
mod debuggers;
mod denials;
mod depth;
mod descriptors;
mod destruction;
mod egress;
mod egress_addresses;
mod egress_clients;
mod egress_control;
mod egress_limits;
mod egress_log;
mod egress_memory;
mod egress_mismatch;
mod egress_probes;
mod egress_proxy;
mod egress_streams;
mod egress_upstream;
mod endings;
mod file_systems;
mod flood;
mod forks;
mod git_model;
mod git_settings;
mod git_work;
mod held_commits;
mod here;
mod hidden;
mod ignored;
mod interrupted;
mod job_control;
mod limits;
mod machine;
mod mistakes;
mod mounted;
mod nested;
mod own_loopback;
mod owners;
mod pagers;
mod parked;
mod policy;
mod ports;
mod proc_files;
mod project_changes;
mod projects;
mod published;
mod pushes;
mod questions;
mod remote;
mod remote_cli;
mod remote_upkeep;
mod repositories;
mod screen;
mod scripts;
mod secrets;
mod seeds;
mod sentences;
mod settings_in_etc;
mod shell_streams;
mod shown_output;
mod signals;
mod starts;
mod terminal;
mod tool_calls;
mod top_level;
mod tour;
mod typing;
mod umask;
mod untrusted_repository;
mod upkeep;
mod visible_limits;
mod way_back;
mod way_back_files;
mod without_network;
mod workspace;
