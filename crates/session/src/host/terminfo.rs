//! Terminfo entry of the user's terminal, if the system has none.
//!
//! Newer terminals (kitty, ghostty, foot) install an entry in the home directory, or name its
//! directory in a variable. Commands receive `TERM`, so they need the entry too. See `terminfo(5)`.

use glovebox_settings::Surroundings;
use glovebox_spec::{Grant, RootFs};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Terminfo directories that every sandbox has.
const SYSTEM: [&str; 4] = [
    "/etc/terminfo",
    "/lib/terminfo",
    "/usr/lib/terminfo",
    "/usr/share/terminfo",
];
/// Maximum size of an entry that is shown, in bytes; the entry of xterm has 4,000.
const MAX_BYTES: u64 = 64 << 10;
/// First bytes of a compiled entry, with numbers of 16 and of 32 bits.
const MAGIC: [[u8; 2]; 2] = [[0x1a, 0x01], [0x1e, 0x02]];

/// Returns a grant that makes the terminal of `TERM` known inside; `None` if it is known anyway, or
/// if no entry exists.
///
/// Inside, the entry is put into the home directory: every build of ncurses searches there, and not
/// every one searches below `/etc`.
pub fn find_terminal(host: &Surroundings, rootfs: &RootFs, home_inside: &Path) -> Option<Grant> {
    let name = host.var("TERM")?.to_str()?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
    if *rootfs != RootFs::Host || name.starts_with('.') || !name.bytes().all(is_name) {
        return None;
    }
    let first = name.as_bytes().first()?;
    // The directory of an entry is named by its first character, or by the character's number on
    // file systems that ignore case.
    let entries = [
        format!("{}/{name}", char::from(*first)),
        format!("{first:x}/{name}"),
    ];
    let is_in = |dir: &Path| entries.iter().any(|entry| dir.join(entry).is_file());
    if SYSTEM.iter().any(|dir| is_in(Path::new(dir))) {
        return None;
    }
    let own = host.var("TERMINFO").map(PathBuf::from);
    let home = host.home().map(|home| home.join(".terminfo"));
    let listed = host.var("TERMINFO_DIRS").unwrap_or_default();
    let dirs = own
        .into_iter()
        .chain(home)
        .chain(std::env::split_paths(listed));
    dirs.filter(|dir| dir.is_absolute())
        .flat_map(|dir| entries.iter().map(move |entry| (dir.join(entry), entry)))
        .find_map(|(path, entry)| {
            let source = path.canonicalize().ok()?;
            is_description(&source).then(|| Grant {
                source,
                target: home_inside.join(".terminfo").join(entry),
            })
        })
}

/// Returns true if a file is a compiled entry, and not some other file that a link leads to.
fn is_description(path: &Path) -> bool {
    let mut magic = [0; 2];
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_BYTES)
        && fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && MAGIC.contains(&magic)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPILED: &[u8] = &[0x1e, 0x02, 0, 0];

    fn write(path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn description_is_found_where_ncurses_looks() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let other = home.join("other");
        let found = |vars: &[(&str, &str)]| {
            let host = Surroundings::fixed(&home, &home, vars);
            find_terminal(&host, &RootFs::Host, Path::new("/inside"))
        };
        let source = |vars: &[(&str, &str)]| found(vars).map(|grant| grant.source);
        write(&home.join(".terminfo/o/own-term"), COMPILED);
        write(&other.join("6f/other-term"), COMPILED);
        let grant = found(&[("TERM", "own-term")]).unwrap();
        assert_eq!(grant.source, home.join(".terminfo/o/own-term"));
        assert_eq!(grant.target, Path::new("/inside/.terminfo/o/own-term"));
        let text = other.to_str().unwrap();
        for variable in ["TERMINFO", "TERMINFO_DIRS"] {
            let at = source(&[("TERM", "other-term"), (variable, text)]);
            assert_eq!(at, Some(other.join("6f/other-term")), "{variable}");
        }
        assert_eq!(source(&[("TERM", "nobodys-term")]), None);
        assert_eq!(source(&[]), None);
    }

    #[test]
    fn other_files_are_no_descriptions() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        write(
            &home.join(".ssh/id_ed25519"),
            b"-----BEGIN PRIVATE KEY-----",
        );
        write(&home.join(".terminfo/t/text"), b"hush");
        std::os::unix::fs::symlink(
            home.join(".ssh/id_ed25519"),
            home.join(".terminfo/t/turned"),
        )
        .unwrap();
        for name in ["text", "turned", "../../.ssh/id_ed25519", ".", ""] {
            let host = Surroundings::fixed(&home, &home, &[("TERM", name)]);
            let found = find_terminal(&host, &RootFs::Host, Path::new("/inside"));
            assert_eq!(found, None, "{name}");
        }
    }
}
