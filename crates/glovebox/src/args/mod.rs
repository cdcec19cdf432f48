//! The command line: declared once, validated, without side effects.
//!
//! Help texts, shell completions and the man page come from these declarations. Values are typed
//! here; `glovebox-settings` and `glovebox-session` decide their meaning on this machine. No
//! function of this module reads a file, a variable or the terminal.

mod agent;
mod backend_options;
mod bundle;
mod checkpoint;
mod command;
mod config;
mod help;
mod limits;
mod mcp;
mod net;
mod past_time;
mod ports;
#[cfg(test)]
mod reference;
mod sandbox;
mod serve;
#[cfg(test)]
mod settings_help;
mod sync;
mod tools;
mod upkeep;

pub(crate) use agent::{
    AgentArgs, InitArgs, ReplayArgs, ResumeArgs, SessionArgs, SessionDeleteArgs, SessionExportArgs,
    SessionForkArgs, SessionsAction, SessionsArgs, SessionsListArgs,
};
pub(crate) use backend_options::ServiceArgs;
pub(crate) use bundle::{
    BundleAction, BundleArgs, BundleCallArgs, BundleCheckArgs, BundleDevArgs, BundleFile,
    BundleHosts, BundleRunArgs, BundleShowArgs, EngineArg, ExtractArg,
};
pub(crate) use checkpoint::{
    CheckpointAction, CheckpointArgs, CheckpointsArgs, ForkArgs, OneCheckpoint, RestoreArgs,
};
pub(crate) use command::{
    Apply, AttachArgs, CompletionsArgs, DemoArgs, DoctorArgs, ExecArgs, InfoArgs, KillArgs,
    ListArgs, LogsArgs, ManArgs, RunArgs, StartArgs, SuperviseArgs,
};
pub(crate) use config::{ConfigAction, ConfigArgs, ConfigExplainArgs, ProjectArgs, TrustedArgs};
pub(crate) use help::{CompleteArgs, HelpArgs};
pub(crate) use sandbox::SandboxArgs;

pub(crate) use mcp::McpArgs;
pub(crate) use net::{
    NetAction, NetAllowArgs, NetArgs, NetLimitArgs, NetLogArgs, NetPresetsArgs, NetShowArgs,
    NetTestArgs,
};
pub(crate) use ports::{ExposeArgs, Listen, PortsArgs};
pub(crate) use serve::{
    AuditArgs, ServeArgs, TokenAction, TokenArgs, TokenCreateArgs, TokenListArgs, TokenRevokeArgs,
};
pub(crate) use sync::{CommitArgs, DiffArgs, PullArgs, PushArgs};
pub(crate) use tools::{CallArgs, ToolsArgs, WhyArgs};
pub(crate) use upkeep::{
    CacheAction, CacheArgs, CacheListArgs, CachePruneArgs, CpArgs, PruneArgs, RenameArgs,
    StatsArgs, StopArgs,
};

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Run any command in a sandbox that starts in milliseconds, and keep your machine as it was.
#[derive(Debug, Parser)]
#[command(
    name = "glovebox",
    version = env!("GLOVEBOX_VERSION"),
    about,
    long_about = "Run any command in a sandbox that starts in milliseconds, and keep your machine as it was.\n\n\
        The command sees your project at /workspace and may do anything to it; your files stay \
        untouched. It sees the machine's programs, and neither your home, your secrets nor the network.",
    after_help = "Start here:\n  glovebox demo                   see it work, with nothing at stake\n  \
        glovebox run -- make test       run a command on the project you are in\n  \
        glovebox agent --sandbox TASK   give an agent a task in there\n  \
        glovebox doctor                 see what this machine can do\n\n\
        `glovebox help COMMAND` explains a command with examples.",
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// What applies to every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Whether the answer is for a program: the command has `--json`, and it was given.
    #[arg(skip)]
    pub is_json: bool,
}

/// The commands that stand in for others and are run over and over.
///
/// Declaring every command takes about as long as the rest of a short run. What these declarations
/// accept, those of [`Cli`] accept alike, being the same; what they do not, [`Cli`] explains.
#[derive(Debug, Parser)]
#[command(
    name = "glovebox",
    disable_help_subcommand = true,
    disable_help_flag = true,
    disable_version_flag = true
)]
struct FrequentCli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: FrequentCommand,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one, and it is moved on"
)]
enum FrequentCommand {
    Run(RunArgs),
    Exec(ExecArgs),
}

impl Cli {
    /// Parses a command line.
    ///
    /// # Errors
    /// The command line is invalid, or asks for help or the version.
    pub(crate) fn read(argv: &[OsString]) -> Result<Self, clap::Error> {
        let is_frequent = argv
            .get(1)
            .is_some_and(|word| word == "run" || word == "exec");
        if is_frequent
            && let Ok(FrequentCli { global, command }) = FrequentCli::try_parse_from(argv)
        {
            let (is_json, command) = match command {
                FrequentCommand::Run(args) => (args.json, Command::Run(args)),
                FrequentCommand::Exec(args) => (args.json, Command::Exec(args)),
            };
            return Ok(Self {
                global,
                command,
                is_json,
            });
        }
        let mut matches = Self::command().try_get_matches_from(argv)?;
        let is_json = has_json(&matches);
        let cli = Self::from_arg_matches_mut(&mut matches)
            .map_err(|error| error.format(&mut Self::command()))?;
        Ok(Self { is_json, ..cli })
    }
}

/// Returns true if the command that `matches` leads to was given `--json`.
fn has_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, inner)) if has_json(inner) => true,
        _ => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct GlobalArgs {
    /// Say less: only errors
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        help_heading = "Global options"
    )]
    pub quiet: bool,
    /// Say more: what is granted, which limits hold, what changed
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub verbose: bool,
    /// Work as if started in DIR, and take it as the workspace
    #[arg(
        short = 'C',
        value_name = "DIR",
        global = true,
        help_heading = "Global options"
    )]
    pub directory: Option<PathBuf>,
    /// Take the current directory as the workspace, not the top of its git repository
    #[arg(long, global = true, help_heading = "Global options")]
    pub here: bool,
    /// Read this configuration file instead of your own (`~/.config/glovebox/glovebox.toml`)
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        conflicts_with = "no_config",
        help_heading = "Global options"
    )]
    pub config: Option<PathBuf>,
    /// Read no configuration file
    #[arg(long, global = true, help_heading = "Global options")]
    pub no_config: bool,
    /// Let the project's own `glovebox.toml` widen what the sandbox may do
    #[arg(long, global = true, help_heading = "Global options")]
    pub trust_config: bool,
}

/// The commands. Each is described where its arguments are declared.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Agent(Box<AgentArgs>),
    Sessions(SessionsArgs),
    Replay(ReplayArgs),
    Init(InitArgs),
    Run(RunArgs),
    #[command(alias = "create")]
    Start(StartArgs),
    #[command(visible_alias = "ls")]
    List(ListArgs),
    Exec(ExecArgs),
    #[command(visible_aliases = ["console", "shell"])]
    Attach(AttachArgs),
    Stop(StopArgs),
    #[command(visible_alias = "rm")]
    Kill(KillArgs),
    Prune(PruneArgs),
    Cache(CacheArgs),
    Net(NetArgs),
    Rename(RenameArgs),
    Ports(PortsArgs),
    Expose(ExposeArgs),
    Stats(StatsArgs),
    Cp(CpArgs),
    Checkpoint(CheckpointArgs),
    Checkpoints(CheckpointsArgs),
    Restore(RestoreArgs),
    Fork(ForkArgs),
    Diff(DiffArgs),
    Pull(PullArgs),
    Push(PushArgs),
    Logs(LogsArgs),
    Info(InfoArgs),
    Tools(ToolsArgs),
    Call(CallArgs),
    Why(WhyArgs),
    Mcp(McpArgs),
    Bundle(BundleArgs),
    Serve(Box<ServeArgs>),
    Token(TokenArgs),
    Audit(AuditArgs),
    Doctor(DoctorArgs),
    Demo(DemoArgs),
    Completions(CompletionsArgs),
    Config(ConfigArgs),
    Help(HelpArgs),
    #[command(name = "__supervise", hide = true)]
    Supervise(SuperviseArgs),
    #[command(name = "__commit", hide = true)]
    Commit(CommitArgs),
    #[command(name = "__extract", hide = true)]
    Extract,
    #[command(name = "__complete", hide = true)]
    Complete(CompleteArgs),
    #[command(name = "__man", hide = true)]
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a command line as the program does, and checks that the declarations of all commands
    /// agree.
    fn read(command: &str, args: &[&str]) -> Result<Cli, clap::Error> {
        let argv: Vec<OsString> = ["glovebox", command]
            .iter()
            .chain(args)
            .map(OsString::from)
            .collect();
        let read = Cli::read(&argv);
        let whole = Cli::try_parse_from(&argv);
        match (&read, &whole) {
            (Ok(read), Ok(whole)) => assert_eq!(
                format!("{:?} {:?}", read.global, read.command),
                format!("{:?} {:?}", whole.global, whole.command)
            ),
            (Err(read), Err(whole)) => assert_eq!(read.to_string(), whole.to_string()),
            _ => panic!("{argv:?}: {read:?} is not {whole:?}"),
        }
        read
    }

    fn exec(args: &[&str]) -> ExecArgs {
        match read("exec", args).unwrap().command {
            Command::Exec(exec) => exec,
            other => panic!("{other:?}"),
        }
    }

    fn run(args: &[&str]) -> RunArgs {
        match read("run", args).unwrap().command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn declaration_is_sound() {
        Cli::command().debug_assert();
    }

    /// A flattened struct with `next_help_heading` gives its heading to every argument that the
    /// command declares after it.
    #[test]
    fn positional_arguments_have_no_heading_of_options() {
        fn check(command: &clap::Command, seen: &mut usize) {
            for argument in command.get_positionals() {
                assert_eq!(argument.get_help_heading(), None, "{}", command.get_name());
                *seen += 1;
            }
            for inner in command.get_subcommands() {
                check(inner, seen);
            }
        }
        let mut command = Cli::command();
        command.build();
        let mut seen = 0;
        check(&command, &mut seen);
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn flags_after_the_first_word_belong_to_the_command() {
        let args = exec(&["box", "cmd", "-x", "--json", "-q"]);
        assert_eq!(args.command, ["cmd", "-x", "--json", "-q"]);
        assert!(!args.json);
        let args = run(&["ls", "--memory", "-v"]);
        assert_eq!(args.command, ["ls", "--memory", "-v"]);
    }

    #[test]
    fn frequent_commands_are_read_as_the_others_are() {
        for args in [
            &["-q", "--memory", "1GiB", "--", "x", "-h"][..],
            &["-C", "/tmp", "--config", "f", "-v", "ls"],
            &["--tty", "--keep", "a", "--apply", "auto", "x"],
            &["-e", "A=1", "--env", "B", "--timeout", "5s", "x"],
        ] {
            run(args);
        }
        for (command, args) in [
            ("run", &["--help"][..]),
            ("run", &["-h", "x"]),
            ("run", &["--version"]),
            ("run", &["--memroy", "1GiB", "x"]),
            ("run", &["--quiet", "--verbose", "x"]),
            ("run", &["--apply", "auto", "--sync-on-success", "x"]),
            ("exec", &[]),
            ("exec", &["-h"]),
            ("exec", &["--stream", "box", "x"]),
            ("rum", &["x"]),
        ] {
            read(command, args).unwrap_err();
        }
    }

    #[test]
    fn own_flags_come_before_the_name_or_before_the_dashes() {
        let args = exec(&["--json", "box", "cmd", "--json"]);
        assert!(args.json);
        assert_eq!(args.command, ["cmd", "--json"]);
        let args = exec(&["box", "--json", "--", "cmd"]);
        assert!(args.json);
        assert_eq!(args.command, ["cmd"]);
    }

    #[test]
    fn everything_after_the_dashes_is_verbatim() {
        let args = exec(&["box", "--", "-x", "--json"]);
        assert_eq!(args.command, ["-x", "--json"]);
        let args = run(&["--", "echo", "--", "--memory"]);
        assert_eq!(args.command, ["echo", "--", "--memory"]);
        let args = run(&["echo", "--", "x"]);
        assert_eq!(args.command, ["echo", "--", "x"]);
    }
}
