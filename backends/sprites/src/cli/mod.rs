//! The service's own program `sprite` as the transport to the machines.
//!
//! It is for users who are logged in with that program and have no token at hand. It can do less
//! than the service's API: it sets no network policy and no labels.

mod connect;
mod listing;
mod program;

pub use connect::CliConnect;
pub use program::Cli;

use glovebox_sandbox::BackendOption;

/// Path of the program, if it is not found by its name.
pub(crate) const PROGRAM: BackendOption = BackendOption {
    name: "sprites.cli",
    flag: "sprites-cli",
    variable: "GLOVEBOX_SPRITES_CLI",
    value: "FILE",
    help: "With `--backend sprites --carrier cli`: the program `sprite`, where PATH does not lead to it",
    meaning: "with `backend = \"sprites\"` and `carrier = \"cli\"`: the program `sprite`, where `PATH` does not lead to it",
    is_path: true,
    check: |_| Ok(()),
};

/// Syntax of the program's command line.
pub(crate) const SYNTAX: BackendOption = BackendOption {
    name: "sprites.cli_syntax",
    flag: "sprites-cli-syntax",
    variable: "GLOVEBOX_SPRITES_CLI_SYNTAX",
    value: "WORD",
    help: "With `--backend sprites --carrier cli`: `current`, or `old` for a program that takes the name as a word",
    meaning: "with `backend = \"sprites\"` and `carrier = \"cli\"`: `current`, or `old` for a program that takes the \
              name of a machine as a word (`sprite exec NAME`)",
    is_path: false,
    check: |text| Syntax::parse(text).map(drop),
};

/// Syntax of the program's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// `sprite exec -s NAME -- sh`.
    Current,
    /// `sprite exec NAME sh`.
    Old,
}

impl Syntax {
    /// Parses the value of the option.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "current" => Ok(Self::Current),
            "old" => Ok(Self::Old),
            _ => Err("write `current` or `old`".to_owned()),
        }
    }

    fn create(self, name: &str) -> Vec<&str> {
        match self {
            Self::Current => vec!["create", "--skip-console", name],
            Self::Old => vec!["create", name],
        }
    }

    fn list(self, prefix: &str) -> Vec<&str> {
        match self {
            Self::Current => vec!["list", "--prefix", prefix],
            Self::Old => vec!["list", "--json"],
        }
    }

    fn shell(self, name: &str) -> Vec<&str> {
        match self {
            Self::Current => vec!["exec", "-s", name, "--no-port-forward", "--", "sh"],
            Self::Old => vec!["exec", name, "sh"],
        }
    }

    fn destroy(self, name: &str) -> Vec<&str> {
        match self {
            Self::Current => vec!["destroy", "--force", name],
            Self::Old => vec!["delete", name],
        }
    }
}
