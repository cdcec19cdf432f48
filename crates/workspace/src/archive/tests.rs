//! Archives from strangers: for each rule, an archive that breaks it and a twin that does not.

use super::*;
use crate::{Change, ChangeKind, ChangeSet, CollectedChanges, Contents, Node, Quota, RelPath};
use flate2::Compression;
use flate2::write::GzEncoder;
use glovebox_proto::{Code, Fault};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;
use testkit::TarBuilder;

const QUOTA: Quota = Quota {
    max_changes: 20,
    max_bytes: 100_000,
    max_depth: 5,
};

/// Unpacks into a new directory. Returns the directory and the result.
fn try_unpack(archive: &[u8]) -> (TempDir, Result<UnpackedTotals, ArchiveError>) {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("into");
    fs::create_dir(&into).unwrap();
    let done = unpack(archive, &into, &QUOTA);
    let beside: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "something was made outside");
    (dir, done)
}

fn problem(archive: &[u8]) -> Option<ArchiveProblem> {
    match try_unpack(archive).1 {
        Ok(_) => None,
        Err(ArchiveError::Refused { problem, .. }) => Some(problem),
        Err(ArchiveError::Failed(fault)) => panic!("{fault:?}"),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Paths below a directory, with their contents.
fn listed(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            let meta = path.symlink_metadata().unwrap();
            let mode = meta.permissions().mode() & 0o7777;
            let what = if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                dirs.push(path);
                "dir".to_owned()
            } else {
                format!("{mode:o} {}", fs::read_to_string(&path).unwrap())
            };
            found.insert(name, what);
        }
    }
    found
}

#[test]
fn a_tree_is_unpacked_as_it_was_packed() {
    let long = "d/".repeat(4) + &"x".repeat(200);
    let archive = TarBuilder::new()
        .global("comment", "of git")
        .dir("./")
        .dir("./src/")
        .header(b'0', 0o6755, "./src/run", "", 2)
        .raw(&[b"hi".as_slice(), &[0; 510]].concat())
        .file("deep/er/file", b"1")
        .dir("deep")
        .entry(b'1', "src/same", "./src/run", b"")
        .link("src/link", "../deep/er")
        .link("dangling", "none")
        .record("path", &long)
        .file("cut", b"2")
        .entry(b'L', "././@LongLink", "", b"named/by/gnu\0")
        .file("cut", b"3")
        .finish();
    let several = [gzip(&archive[..1000]), gzip(&archive[1000..])].concat();
    for archive in [archive.clone(), gzip(&archive), several] {
        let (dir, done) = try_unpack(&archive);
        let totals = UnpackedTotals {
            files: 5,
            directories: 9,
            links: 2,
            bytes: 7,
        };
        assert_eq!(done.unwrap(), totals);
        let found = listed(&dir.path().join("into"));
        for (path, what) in [
            ("src", "dir"),
            // Of the mode only the executable bit is kept.
            ("src/run", "755 hi"),
            // A hard link becomes a separate file.
            ("src/same", "755 hi"),
            ("src/link", "-> ../deep/er"),
            ("dangling", "-> none"),
            ("deep/er/file", "644 1"),
            (long.as_str(), "644 2"),
            ("named/by/gnu", "644 3"),
        ] {
            assert_eq!(found.get(path).map(String::as_str), Some(what), "{found:?}");
        }
    }
    assert_eq!(problem(&TarBuilder::new().finish()), None, "an empty tree");
}

/// Refused archives with the reason, each with a twin that differs only in that point and is taken.
#[test]
fn each_rule_refuses_under_its_own_word() {
    use ArchiveProblem as P;
    let tar = TarBuilder::new;
    let whole = tar().file("a", b"1").finish();
    let zeros = |count: usize| vec![0; count];
    let files = |count: usize| {
        let mut archive = tar();
        for n in 0..count {
            archive = archive.file(&n.to_string(), b"");
        }
        archive.finish()
    };
    let mut flipped = whole.clone();
    flipped[512 + 600] = 1;
    let mut sum = gzip(&whole);
    let end = sum.len() - 6;
    sum[end] ^= 1;
    let deep = |depth: usize| tar().file(&vec!["d"; depth].join("/"), b"").finish();
    let cases: Vec<(P, Vec<u8>, Vec<u8>)> = vec![
        (
            P::Format,
            b"PK\x03\x04 a zip file".repeat(100),
            whole.clone(),
        ),
        (P::Format, b"short".to_vec(), whole.clone()),
        (P::Format, Vec::new(), tar().finish()),
        (P::Corrupt, flipped, whole.clone()),
        (P::Corrupt, sum, gzip(&whole)),
        (
            P::Corrupt,
            [whole.clone(), b"more".to_vec()].concat(),
            [whole.clone(), zeros(9000)].concat(),
        ),
        (
            P::Corrupt,
            tar().entry(b'5', "d", "", b"content").finish(),
            tar().dir("d").finish(),
        ),
        (
            P::Corrupt,
            tar().record("size", "9").file("a", b"1").finish(),
            tar().record("size", "1").file("a", b"1").finish(),
        ),
        (P::Cut, tar().file("a", b"1").unfinished(), whole.clone()),
        (P::Cut, whole[..700].to_vec(), whole.clone()),
        (P::Cut, gzip(&whole)[..40].to_vec(), gzip(&whole)),
        (P::Cut, tar().record("path", "a").finish(), whole.clone()),
        (
            P::Unsupported,
            tar().entry(b'S', "a", "", b"1").finish(),
            tar().entry(b'7', "a", "", b"1").finish(),
        ),
        (
            P::Unsupported,
            tar()
                .record("GNU.sparse.major", "1")
                .file("a", b"1")
                .finish(),
            tar().record("mtime", "1.5").file("a", b"1").finish(),
        ),
        (
            P::Unsupported,
            tar().global("path", "b").file("a", b"1").finish(),
            tar().global("comment", "b").file("a", b"1").finish(),
        ),
        (
            P::AbsolutePath,
            tar().file("/etc/cron.d/x", b"1").finish(),
            tar().file("etc/cron.d/x", b"1").finish(),
        ),
        (
            P::ParentPath,
            tar().file("../x", b"1").finish(),
            tar().file("..x", b"1").finish(),
        ),
        (
            P::ParentPath,
            tar().record("path", "a/../../x").file("a", b"").finish(),
            tar().record("path", "a/x").file("a", b"").finish(),
        ),
        (P::BadName, tar().file("a//b", b"1").finish(), deep(2)),
        (
            P::BadName,
            tar()
                .record("path", &"n".repeat(256))
                .file("a", b"")
                .finish(),
            tar()
                .record("path", &"n".repeat(255))
                .file("a", b"")
                .finish(),
        ),
        (
            P::BadName,
            tar().file(".glovebox-pull-1/x", b"").finish(),
            tar().file(".glovebox/x", b"").finish(),
        ),
        (P::TooDeep, deep(6), deep(5)),
        (
            P::BeneathFile,
            tar().file("a", b"").file("a/b", b"").finish(),
            tar().file("a", b"").file("a.b", b"").finish(),
        ),
        // Through a link, the oldest attack.
        (
            P::BeneathFile,
            tar().link("a", "/etc").file("a/passwd", b"").finish(),
            tar().dir("a").file("a/passwd", b"").finish(),
        ),
        (
            P::Duplicate,
            tar().file("a", b"1").file("./a", b"2").finish(),
            tar().file("a", b"1").file("A", b"2").finish(),
        ),
        (
            P::Duplicate,
            tar().link("a", "b").file("a", b"2").finish(),
            tar().link("a", "b").file("b", b"2").finish(),
        ),
        (
            P::SpecialFile,
            tar().entry(b'4', "disk", "", b"").finish(),
            tar().entry(b'0', "disk", "", b"").finish(),
        ),
        (
            P::SpecialFile,
            tar().entry(b'6', "fifo", "", b"").finish(),
            tar().entry(b'0', "fifo", "", b"").finish(),
        ),
        (
            P::HardLink,
            tar()
                .file("a", b"1")
                .entry(b'1', "b", "/etc/passwd", b"")
                .finish(),
            tar().file("a", b"1").entry(b'1', "b", "a", b"").finish(),
        ),
        (
            P::HardLink,
            tar().entry(b'1', "b", "a", b"").file("a", b"1").finish(),
            tar().file("a", b"1").entry(b'1', "b", "./a", b"").finish(),
        ),
        (
            P::HardLink,
            tar().link("l", "a").entry(b'1', "b", "l", b"").finish(),
            tar().link("l", "a").file("b", b"").finish(),
        ),
        (
            P::LinkLeadsOut,
            tar().link("d/a", "../../etc").finish(),
            tar().link("d/a", "../etc").finish(),
        ),
        (
            P::LinkLeadsOut,
            tar().link("a", "/etc/passwd").finish(),
            tar().link("a", "etc/passwd").finish(),
        ),
        (
            P::LinkLeadsOut,
            tar()
                .link("x/y/up", "../..")
                .link("z", "x/y/up/../../../etc")
                .finish(),
            tar()
                .link("x/y/up", "../..")
                .link("z", "x/y/up/etc")
                .finish(),
        ),
        (
            P::LinkLeadsOut,
            tar().link("a", "b").link("b", "a").finish(),
            tar().link("a", "b").link("b", "c").finish(),
        ),
        (
            P::Git,
            tar().file(".git/config", b"[core]").finish(),
            tar().file(".gitignore", b"x").finish(),
        ),
        (
            P::Git,
            tar().file("sub/.GIT", b"gitdir: /srv/other").finish(),
            tar().file("sub/GIT", b"").finish(),
        ),
        (
            P::Git,
            tar().link("a", "sub/.git/hooks").finish(),
            tar().link("a", "sub/git/hooks").finish(),
        ),
        (P::TooManyEntries, files(21), files(20)),
        (
            P::TooManyEntries,
            (0..21).fold(tar(), |tar, _| tar.dir("./")).finish(),
            (0..20).fold(tar(), |tar, _| tar.dir("./")).finish(),
        ),
        (
            P::TooLarge,
            tar()
                .file("a", &zeros(60_000))
                .file("b", &zeros(60_000))
                .finish(),
            tar()
                .file("a", &zeros(50_000))
                .file("b", &zeros(50_000))
                .finish(),
        ),
        // A file that counts once for each of its names.
        (
            P::TooLarge,
            (0..9)
                .fold(tar().file("a", &zeros(20_000)), |tar, n| {
                    tar.entry(b'1', &n.to_string(), "a", b"")
                })
                .finish(),
            (0..4)
                .fold(tar().file("a", &zeros(20_000)), |tar, n| {
                    tar.entry(b'1', &n.to_string(), "a", b"")
                })
                .finish(),
        ),
        (
            P::TooLarge,
            tar()
                .record("comment", &"x".repeat(70_000))
                .file("a", b"")
                .finish(),
            tar()
                .record("comment", &"x".repeat(60_000))
                .file("a", b"")
                .finish(),
        ),
    ];
    for (at, (wanted, hostile, twin)) in cases.iter().enumerate() {
        assert_eq!(problem(hostile), Some(*wanted), "case {at}");
        assert_eq!(problem(twin), None, "the twin of case {at}, {wanted:?}");
    }
    for one in P::ALL {
        assert!(cases.iter().any(|(problem, ..)| *problem == one), "{one:?}");
        let same = P::ALL.iter().filter(|other| other.code() == one.code());
        assert_eq!(same.count(), 1, "{one:?}");
    }
}

/// The expanded size of a small archive is noticed before it is written.
#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let head = TarBuilder::new().header(b'0', 0o644, "zeros", "", 8 << 30);
    encoder.write_all(&head.unfinished()).unwrap();
    encoder.write_all(&vec![0; 64 << 20]).unwrap();
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 100_000);
    let (dir, done) = try_unpack(&bomb);
    let Err(ArchiveError::Refused { problem, path }) = done else {
        panic!("{done:?}");
    };
    assert_eq!(problem, ArchiveProblem::TooLarge);
    assert_eq!(path.as_deref(), Some("zeros"));
    assert!(listed(&dir.path().join("into")).is_empty());
    // Data after the end marker, where no entry counts it.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&TarBuilder::new().finish()).unwrap();
    encoder.write_all(&vec![0; 64 << 20]).unwrap();
    let bomb = encoder.finish().unwrap();
    assert_eq!(self::problem(&bomb), Some(ArchiveProblem::TooLarge));
}

/// An archive with any change of its bytes is taken or refused. It never creates anything outside,
/// nor more than the quota allows.
#[test]
fn changed_bytes_lead_nowhere_else() {
    let archive = TarBuilder::new()
        .dir("d")
        .file("d/a", &[7; 700])
        .link("l", "d/a")
        .entry(b'1', "h", "d/a", b"")
        .record("path", "p/q")
        .file("x", b"1")
        .entry(b'L', "l", "", b"long\0")
        .file("y", b"2")
        .finish();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut taken = 0;
    for _ in 0..3000 {
        let mut changed = archive.clone();
        let header = random(changed.len() / BLOCK_BYTES) * BLOCK_BYTES;
        for _ in 0..=random(3) {
            changed[header + random(BLOCK_BYTES)] = random(256) as u8;
        }
        if random(2) == 0 {
            // A correct checksum lets the parser reach the other fields.
            fix_sum(&mut changed[header..header + BLOCK_BYTES]);
        }
        if random(8) == 0 {
            changed.truncate(random(changed.len()));
        }
        let (dir, done) = try_unpack(&changed);
        let found = listed_lossy(&dir.path().join("into"));
        assert!(found <= QUOTA.max_bytes, "{found} bytes");
        match done {
            Ok(_) => taken += 1,
            Err(ArchiveError::Refused { .. }) => {}
            Err(ArchiveError::Failed(fault)) => panic!("{fault:?}"),
        }
    }
    assert!(
        taken > 100,
        "{taken}: too few archives got through to say anything"
    );
}

fn fix_sum(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Bytes of the files below a directory.
fn listed_lossy(dir: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.path().symlink_metadata().unwrap();
        if meta.is_dir() {
            bytes += listed_lossy(&entry.path());
        } else if meta.is_file() {
            bytes += meta.len();
        }
    }
    bytes
}

/// Contents in memory.
struct Texts(BTreeMap<RelPath, Vec<u8>>);

impl Contents for Texts {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        match self.0.get(path) {
            Some(text) => Ok(Box::new(io::Cursor::new(text))),
            None => Err(Fault::failed(Code::NotFound, "gone")),
        }
    }

    fn open_base(&self, _: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Err(Fault::failed(Code::NotFound, "there is none"))
    }
}

fn collected(entries: &[(&str, Node, &str)]) -> CollectedChanges {
    let path = |text: &str| RelPath::new(text).unwrap();
    let mut set = ChangeSet::default();
    let mut texts = BTreeMap::new();
    for (name, node, text) in entries {
        texts.insert(path(name), text.as_bytes().to_vec());
        let kind = ChangeKind::Added { to: node.clone() };
        set.changes.push(Change {
            path: path(name),
            kind,
            flags: Vec::new(),
        });
    }
    CollectedChanges::new(set, Box::new(Texts(texts)))
}

fn file(text: &str, is_executable: bool) -> Node {
    Node::File {
        size: text.len() as u64,
        is_executable,
        digest: Some(blake3::hash(text.as_bytes()).into()),
    }
}

#[test]
fn what_is_packed_can_be_unpacked() {
    let long = format!("{}/{}", "n".repeat(150), "ü".repeat(60));
    let target = format!("../{}", "t".repeat(120));
    let link = Node::Link {
        target: target.clone().into_bytes(),
    };
    let text = "x".repeat(1000);
    let tree = collected(&[
        ("d", Node::Dir, ""),
        ("d/empty", file("", false), ""),
        ("d/run", file(&text, true), &text),
        ("d/link", link, ""),
        (&long, file("1", false), "1"),
    ]);
    let mut packed = Vec::new();
    pack(&tree, 1_700_000_000, &mut packed).unwrap();
    let (dir, done) = try_unpack(&packed);
    assert_eq!(done.unwrap().files, 3);
    let found = listed(&dir.path().join("into"));
    assert_eq!(found["d/run"], format!("755 {text}"));
    assert_eq!(found["d/link"], format!("-> {target}"));
    assert_eq!(found[&long], "644 1");
    assert_eq!(found["d/empty"], "644 ");
}

#[test]
fn a_content_that_is_another_one_ends_the_archive_without_its_end() {
    for other in ["other", "one", ""] {
        let tree = collected(&[("a", file("one!", false), other)]);
        let mut packed = Vec::new();
        let failed = pack(&tree, 0, &mut packed).unwrap_err();
        assert!(matches!(failed, PackError::Content(_)), "{failed:?}");
        assert!(problem(&packed).is_some(), "{other}");
    }
}
