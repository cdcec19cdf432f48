//! `glovebox init`: writes a commented `glovebox.toml` that fits the project.

use super::Cx;
use crate::args::InitArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Kind of project, recognised by a file in it.
struct Kind {
    file: &'static str,
    name: &'static str,
    /// Build products that are excluded from `pull`.
    products: &'static [&'static str],
    /// Memory that its builds need. None if the default suffices.
    memory: Option<&'static str>,
}

const KINDS: [Kind; 6] = [
    Kind {
        file: "Cargo.toml",
        name: "Rust",
        products: &["/target/"],
        memory: Some("4GiB"),
    },
    Kind {
        file: "package.json",
        name: "JavaScript",
        products: &["node_modules/", "/dist/", "/build/"],
        memory: Some("2GiB"),
    },
    Kind {
        file: "pyproject.toml",
        name: "Python",
        products: &["__pycache__/", ".pytest_cache/", ".venv/"],
        memory: None,
    },
    Kind {
        file: "requirements.txt",
        name: "Python",
        products: &["__pycache__/", ".pytest_cache/", ".venv/"],
        memory: None,
    },
    Kind {
        file: "go.mod",
        name: "Go",
        products: &["/bin/"],
        memory: Some("2GiB"),
    },
    Kind {
        file: "Makefile",
        name: "make",
        products: &["*.o"],
        memory: None,
    },
];

/// Writes the file.
pub(crate) fn run(cx: &Cx, args: &InitArgs) -> CommandResult {
    let project = glovebox_session::host::project_dir(&cx.host)?;
    let text = fitted(&project);
    if args.print {
        render::print(text)?;
        return Ok(0);
    }
    let path = project.join("glovebox.toml");
    let shown = path.display().to_string();
    let mut options = std::fs::OpenOptions::new();
    options.write(true).mode(0o644);
    if args.force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Ok(()) => {
            cx.talk.note(format_args!("wrote {}", cx.short(&path)));
            Ok(0)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(CommandError::refused(
                format!("there is a {shown} already"),
                "look at what would be written with --print, or replace it with --force",
            ))
        }
        Err(error) => Err(CommandError::io(format!("write {shown}"), &error)),
    }
}

/// Returns the file's text for this project. A project's own file can only tighten settings unless
/// the user trusts it, so settings that would widen are comments.
fn fitted(project: &Path) -> String {
    let kinds: Vec<&Kind> = KINDS
        .iter()
        .filter(|kind| project.join(kind.file).is_file())
        .collect();
    let mut names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    names.dedup();
    let mut products: Vec<&str> = kinds
        .iter()
        .flat_map(|kind| kind.products)
        .copied()
        .collect();
    products.sort_unstable();
    products.dedup();
    let mut text = String::from(
        "# Settings of Glovebox for this project. `glovebox config explain` shows what they come to.\n\
         # A project may ask for less than your own settings give. For more, whoever uses it must trust this file\n\
         # as it is: `glovebox config trust`, or --trust-config for one run.\n",
    );
    if !names.is_empty() {
        let _ = writeln!(text, "# Found here: {}.", names.join(", "));
    }
    text.push_str(
        "\n# Agents work in a sandbox here: `glovebox agent TASK` is `glovebox agent --sandbox TASK`.\n\
         mode = \"sandbox\"\n\
         \n# The network inside: none, egress for hosts that `allow` lists, or host for all of it (both widen).\n\
         net = \"none\"\n\
         \n# What all processes together may use. Raising these widens.\n",
    );
    match kinds.iter().find_map(|kind| kind.memory) {
        Some(memory) => {
            let _ = writeln!(
                text,
                "# Usually half of the machine's memory, all processors and 10GiB of disk. A build of this kind wants at \
                 least {memory}.\n# memory = \"{memory}\"\n# disk = \"20GiB\"\n# cpus = \"2\""
            );
        }
        None => text.push_str("# Usually half of the machine's memory, all processors and 10GiB of disk.\n# memory = \"2GiB\"\n# disk = \"1GiB\"\n# cpus = \"1\"\n"),
    }
    text.push_str(
        "\n[sync.push]\n# Files that stay out of the sandbox, as in .gitignore. Files that look like secrets do anyway.\n\
         exclude = []\n",
    );
    text.push_str("\n[sync.pull]\n# Files that do not come back.\n");
    let quoted: Vec<String> = products
        .iter()
        .map(|product| format!("\"{product}\""))
        .collect();
    let _ = writeln!(text, "exclude = [{}]", quoted.join(", "));
    text.push_str(
        "\n[agent]\n# How far an agent may go. A project may lower these.\n\
         max_turns = 100\nmax_time = \"1h\"\n\
         # Choosing a model widens: it decides who reads the project.\n\
         # model = \"anthropic/claude-sonnet-4-6\"\n\
         \n# Servers whose tools an agent has (widens). A command works in the sandbox.\n\
         # [mcp.NAME]\n# command = \"...\"\n",
    );
    text
}
