//! Hints in the wording of the command line: a setting is named by the flag that sets it.

use glovebox_proto::{Limit, Remedy, Setting, Wording};

/// Wording of the command line.
struct Flags;

impl Wording for Flags {
    fn setting(&self, setting: Setting, value: Option<&str>) -> String {
        format!("`{}`", setting.as_flag(value))
    }

    fn raise_limit(&self, limit: Limit) -> String {
        let setting = limit.setting();
        match limit {
            // Limits that a project may need to raise permanently.
            Limit::Memory | Limit::Disk => format!(
                "raise the limit with `{}`, or `{}` in glovebox.toml",
                setting.as_flag(None),
                setting.name()
            ),
            Limit::CpuTime | Limit::Processes | Limit::FileSize => {
                format!("raise the limit with `{}`", setting.as_flag(None))
            }
        }
    }
}

/// Words a hint for a user of the command line.
pub(crate) fn in_flags(remedy: &Remedy) -> String {
    remedy.worded(&Flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::{Command, CommandFactory as _};

    fn has_flag(command: &Command, flag: &str) -> bool {
        let is_it = |arg: &clap::Arg| {
            arg.get_long()
                .is_some_and(|long| flag == format!("--{long}"))
                || arg
                    .get_short()
                    .is_some_and(|short| flag == format!("-{short}"))
        };
        command.get_arguments().any(is_it)
            || command.get_subcommands().any(|below| has_flag(below, flag))
    }

    #[test]
    fn every_setting_is_a_flag() {
        let command = Cli::command();
        for &setting in Setting::ALL {
            let flag = setting.as_flag(None);
            assert!(has_flag(&command, &flag), "{setting:?}: there is no {flag}");
        }
    }

    #[test]
    fn a_limit_is_raised_with_its_flag() {
        let line = |limit| in_flags(&Remedy::RaiseLimit(limit));
        assert_eq!(
            line(Limit::Memory),
            "raise the limit with `--memory`, or `memory` in glovebox.toml"
        );
        assert_eq!(line(Limit::Processes), "raise the limit with `--pids`");
    }
}
