//! Store of bundles on disk, named by the SHA-256 of their text and their language, each with its
//! extraction.
//!
//! ```text
//! DIR/HASH.js/bundle            the text as received; HASH.ts if it was read as TypeScript
//!             manifest.json     time and size
//!             extraction-N.json result of version N of the extractor
//! ```
//!
//! One text can be valid in both languages and declare different tools, so the language is part of
//! the name. Signatures belong to uploads, not to texts, and are not stored here.
//!
//! A bundle appears by one rename, complete. If only another version of the extractor has read it,
//! it is read again from the text.

use glovebox_bundle::{
    ConfinedExtractor, EXTRACTOR_VERSION, ExtractError, ExtractOptions, Extraction, Language,
    MAX_SOURCE_BYTES,
};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Name;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

const SOURCE: &str = "bundle";
const MANIFEST: &str = "manifest.json";
/// Version of the manifest format.
const MANIFEST_VERSION: u32 = 2;
/// Maximum size of a file read from the store: an extraction contains every tool's code, escaped as
/// JSON.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Prefix of the names of bundles that are being written.
const UNFINISHED: &str = ".new-";
/// Age after which an unfinished bundle is considered a leftover of a killed process.
const LEFTOVER_AGE: Duration = Duration::from_hours(1);

/// Name of a bundle: the SHA-256 of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleHash([u8; 32]);

impl BundleHash {
    /// Computes the hash of a text.
    pub fn of(source: &[u8]) -> Self {
        Self(Sha256::digest(source).into())
    }
}

impl fmt::Display for BundleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for BundleHash {
    type Err = Fault;

    /// Parses 64 hexadecimal digits, with or without the prefix `sha256:`.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let wrong = || {
            Fault::failed(Code::InvalidArgument, "a bundle is named by its SHA-256")
                .remedy("give the 64 hexadecimal digits that the upload answered")
        };
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// Limits of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreLimits {
    /// Maximum number of bundles.
    pub bundles: usize,
    /// True if the least recently used bundle is removed to make room; otherwise a new one is
    /// refused.
    pub evicts: bool,
}

/// Description of a stored bundle, without its extraction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleSummary {
    version: u32,
    /// SHA-256 of the text, in hexadecimal digits.
    pub hash: String,
    /// Size of the text in bytes.
    pub bytes: u64,
    /// True if the text was read as TypeScript.
    pub is_typescript: bool,
    /// Time of the upload, in milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// Bundle in the store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredBundle {
    /// Name of the bundle.
    pub hash: BundleHash,
    /// Description of the bundle.
    pub summary: BundleSummary,
    /// Extraction, which has no errors.
    pub extraction: Extraction,
}

impl StoredBundle {
    /// Returns the language in which the text was read.
    pub const fn language(&self) -> Language {
        if self.summary.is_typescript {
            Language::TypeScript
        } else {
            Language::JavaScript
        }
    }
}

/// Reason why a bundle was not stored.
#[derive(Debug, Clone, PartialEq)]
pub enum PutError {
    /// The bundle has errors, all of which the extraction contains.
    Refused(Box<Extraction>),
    /// The bundle could not be read or written.
    Fault(Fault),
}

impl From<Fault> for PutError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Reader of bundles' text. Outside of tests it is a process that can do nothing else.
pub trait ReadBundle: fmt::Debug + Send + Sync {
    /// Reads a bundle. The result contains all problems of the bundle.
    ///
    /// # Errors
    /// The reader could not finish, for reasons other than the bundle's problems.
    fn read_bundle(
        &self,
        source: &[u8],
        options: ExtractOptions,
    ) -> Result<Extraction, ExtractError>;
}

impl ReadBundle for ConfinedExtractor {
    fn read_bundle(
        &self,
        source: &[u8],
        options: ExtractOptions,
    ) -> Result<Extraction, ExtractError> {
        self.extract(source, options)
    }
}

/// Bundles of one directory.
#[derive(Debug)]
pub struct BundleStore {
    dir: PathBuf,
    limits: StoreLimits,
    reader: Box<dyn ReadBundle>,
}

impl BundleStore {
    /// Opens the store in `dir`, creates missing directories and removes old unfinished bundles.
    ///
    /// # Errors
    /// The directory cannot be created or read.
    pub fn open(
        dir: &Path,
        limits: StoreLimits,
        reader: impl ReadBundle + 'static,
    ) -> Result<Self, Fault> {
        let store = Self {
            dir: dir.to_owned(),
            limits,
            reader: Box::new(reader),
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| store.broken(&error))?;
        let entries = fs::read_dir(dir).map_err(|error| store.broken(&error))?;
        for entry in entries.flatten() {
            let is_unfinished = entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(UNFINISHED.as_bytes());
            let age = entry.metadata().and_then(|meta| meta.modified());
            let is_old = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LEFTOVER_AGE));
            if is_unfinished && is_old {
                // A leftover takes room but does no harm, so an error is ignored.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(store)
    }

    fn broken(&self, error: &io::Error) -> Fault {
        let message = format!("bundles cannot be kept in {}: {error}", self.dir.display());
        let code = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::NoSpace,
            _ => Code::Io,
        };
        Fault::failed(code, message)
    }

    fn path(&self, hash: BundleHash, language: Language) -> PathBuf {
        self.dir.join(format!("{hash}.{}", extension_of(language)))
    }

    /// Reads a bundle and stores it. Returns the stored one if it exists already.
    ///
    /// # Errors
    /// [`PutError`]: all problems of the bundle, or the fault that kept it from being stored.
    pub fn put(
        &self,
        source: &[u8],
        language: Language,
        now_unix_ms: u64,
    ) -> Result<StoredBundle, PutError> {
        // TRUST: the text comes from any client; its size is bounded here, and it is read without
        // being run.
        if source.len() > MAX_SOURCE_BYTES {
            let message = format!(
                "the bundle has {} bytes, more than {MAX_SOURCE_BYTES}",
                source.len()
            );
            let fault = Fault::failed(Code::TooLarge, message);
            return Err(fault
                .remedy("leave out what the agents do not need, source maps above all")
                .into());
        }
        let hash = BundleHash::of(source);
        if let Some(stored) = self.get(hash, language)? {
            return Ok(stored);
        }
        let text = std::str::from_utf8(source).map_err(|error| {
            let message = format!("the bundle is no UTF-8 text (byte {})", error.valid_up_to());
            Fault::failed(Code::InvalidArgument, message)
                .remedy("send the JavaScript file as it is")
        })?;
        let extraction = self.read_source(text, language)?;
        if extraction.errors().next().is_some() {
            return Err(PutError::Refused(Box::new(extraction)));
        }
        self.make_room()?;
        let summary = BundleSummary {
            version: MANIFEST_VERSION,
            hash: hash.to_string(),
            bytes: source.len() as u64,
            is_typescript: language == Language::TypeScript,
            created_unix_ms: now_unix_ms,
        };
        let stored = StoredBundle {
            hash,
            summary,
            extraction,
        };
        self.restore(&stored, source)?;
        Ok(stored)
    }

    /// Writes a text and its extraction. An existing bundle is not changed.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn restore(&self, stored: &StoredBundle, source: &[u8]) -> Result<(), Fault> {
        let written = self.write(stored, source);
        written.map_err(|error| self.broken(&error))
    }

    /// Writes a bundle under a temporary name and renames it.
    fn write(&self, stored: &StoredBundle, source: &[u8]) -> io::Result<()> {
        let unfinished = self.dir.join(format!("{UNFINISHED}{}", Name::random("b")));
        let written = (|| {
            fs::DirBuilder::new().mode(0o700).create(&unfinished)?;
            write_file(&unfinished.join(SOURCE), source)?;
            write_file(
                &unfinished.join(MANIFEST),
                &serde_json::to_vec(&stored.summary)?,
            )?;
            let extraction = serde_json::to_vec(&stored.extraction)?;
            write_file(&unfinished.join(extraction_file()), &extraction)?;
            let place = self.path(stored.hash, stored.language());
            match fs::rename(&unfinished, place) {
                // Another upload of the same text was faster.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    fs::remove_dir_all(&unfinished)
                }
                renamed => renamed,
            }
        })();
        if written.is_err() {
            let _ = fs::remove_dir_all(&unfinished);
        }
        written
    }

    /// Returns a bundle by name; `None` if it is not stored.
    ///
    /// # Errors
    /// Its files are damaged or cannot be read.
    pub fn get(&self, hash: BundleHash, language: Language) -> Result<Option<StoredBundle>, Fault> {
        let dir = self.path(hash, language);
        let Some(manifest) = self.read(&dir.join(MANIFEST))? else {
            return Ok(None);
        };
        let damaged = || {
            let message = format!("the files of the bundle {hash} are damaged");
            Fault::failed(Code::Io, message).remedy("delete it and upload it again")
        };
        let summary: BundleSummary = serde_json::from_slice(&manifest).map_err(|_| damaged())?;
        let kept = self.read(&dir.join(extraction_file()))?;
        let kept = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let extraction = match kept {
            Some(extraction) => extraction,
            None => self.extract_again(hash, language)?.ok_or_else(damaged)?,
        };
        // Records the last use, for eviction. A store that is not writable can still be read.
        let _ = File::open(&dir).and_then(|dir| dir.set_modified(SystemTime::now()));
        Ok(Some(StoredBundle {
            hash,
            summary,
            extraction,
        }))
    }

    /// Returns the text of a bundle as received; `None` if it is not stored or does not match its
    /// name.
    ///
    /// # Errors
    /// The text cannot be read.
    pub fn source(&self, hash: BundleHash, language: Language) -> Result<Option<Vec<u8>>, Fault> {
        let source = self.read(&self.path(hash, language).join(SOURCE))?;
        Ok(source.filter(|source| BundleHash::of(source) == hash))
    }

    fn read_source(&self, text: &str, language: Language) -> Result<Extraction, Fault> {
        let read = self.reader.read_bundle(text.as_bytes(), language.into());
        read.map_err(|error| {
            let message = format!("the bundle was not read: {error}");
            match error {
                // A later attempt may succeed: the machine lacked resources.
                ExtractError::Start(_) => Fault::failed(Code::Unavailable, message).retryable(),
                ExtractError::NotConfined(_) => Fault::refused(Code::Unavailable, message)
                    .remedy("`glovebox doctor` shows what this machine can do"),
                _ => Fault::failed(Code::TooLarge, message)
                    .remedy("make the bundle smaller, flatter or simpler"),
            }
        })
    }

    /// Reads the text of a bundle with this version of the extractor and stores the result. `None`
    /// if the text is missing or damaged.
    fn extract_again(
        &self,
        hash: BundleHash,
        language: Language,
    ) -> Result<Option<Extraction>, Fault> {
        let dir = self.path(hash, language);
        let Some(source) = self.source(hash, language)? else {
            return Ok(None);
        };
        let Ok(text) = std::str::from_utf8(&source) else {
            return Ok(None);
        };
        let extraction = self.read_source(text, language)?;
        if let Some(problem) = extraction.errors().next() {
            let message = format!("the bundle {hash} is refused by now: {}", problem.reason);
            return Err(Fault::failed(Code::InvalidArgument, message)
                .remedy("correct it and upload it again"));
        }
        // Concurrent readers of the same text write the same result, and the rename is atomic.
        let unfinished = dir.join(format!("{UNFINISHED}{}", Name::random("e")));
        let kept = serde_json::to_vec(&extraction).map_err(io::Error::from);
        let kept = kept.and_then(|bytes| {
            write_file(&unfinished, &bytes)?;
            fs::rename(&unfinished, dir.join(extraction_file()))
        });
        kept.map_err(|error| self.broken(&error))?;
        Ok(Some(extraction))
    }

    /// Returns the names of all bundles, sorted.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<BundleHash>, Fault> {
        let found = self.by_use()?.into_iter();
        let mut hashes: Vec<BundleHash> = found.map(|(_, hash, _)| hash).collect();
        hashes.sort_unstable();
        Ok(hashes)
    }

    /// Returns all bundles, least recently used first.
    fn by_use(&self) -> Result<Vec<(SystemTime, BundleHash, Language)>, Fault> {
        let entries = fs::read_dir(&self.dir).map_err(|error| self.broken(&error))?;
        let mut found: Vec<(SystemTime, BundleHash, Language)> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                let (hash, extension) = name.to_str()?.split_once('.')?;
                let known = [Language::JavaScript, Language::TypeScript];
                let is_of = |language: &Language| extension_of(*language) == extension;
                let language = known.into_iter().find(is_of)?;
                let used = entry.metadata().ok()?.modified().ok()?;
                Some((used, hash.parse().ok()?, language))
            })
            .collect();
        found.sort_unstable_by_key(|(used, hash, _)| (*used, *hash));
        Ok(found)
    }

    fn make_room(&self) -> Result<(), Fault> {
        let found = self.by_use()?;
        let most = self.limits.bundles;
        let Some(too_many) = (found.len() + 1)
            .checked_sub(most)
            .filter(|count| *count > 0)
        else {
            return Ok(());
        };
        if !self.limits.evicts {
            let message = format!("{most} bundles are kept here, and that is the most");
            return Err(
                Fault::failed(Code::NoSpace, message).remedy("delete those that are not used")
            );
        }
        for (_, hash, language) in found.into_iter().take(too_many) {
            self.remove(hash, language)?;
        }
        Ok(())
    }

    /// Removes a bundle. It is no error if it is not stored.
    ///
    /// # Errors
    /// The files cannot be removed.
    pub fn remove(&self, hash: BundleHash, language: Language) -> Result<(), Fault> {
        // Renamed first, so that no reader sees a part of it.
        let gone = self.dir.join(format!("{UNFINISHED}{}", Name::random("x")));
        match fs::rename(self.path(hash, language), &gone) {
            Ok(()) => fs::remove_dir_all(&gone).map_err(|error| self.broken(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Fault> {
        let mut bytes = Vec::new();
        match File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.broken(&error)),
        }
    }
}

const fn extension_of(language: Language) -> &'static str {
    match language {
        Language::JavaScript => "js",
        Language::TypeScript => "ts",
    }
}

fn extraction_file() -> String {
    format!("extraction-{EXTRACTOR_VERSION}.json")
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUNDLE: &str = r#"
        import { createLightfast } from "lightfast/client";
        import { createAgent } from "lightfast/agent";
        import { gateway } from "@ai-sdk/gateway";
        throw new Error("never");
        export default createLightfast({ agents: { a: createAgent({ name: "a", system: "s", model: gateway("gpt-4") }) } });
    "#;

    /// Reads in this process: these tests are about what is kept.
    #[derive(Debug)]
    struct InProcess;

    impl ReadBundle for InProcess {
        fn read_bundle(
            &self,
            source: &[u8],
            options: ExtractOptions,
        ) -> Result<Extraction, ExtractError> {
            let text = std::str::from_utf8(source).unwrap();
            glovebox_bundle::extract(text, options).map_err(ExtractError::Start)
        }
    }

    fn store(dir: &Path, bundles: usize, evicts: bool) -> BundleStore {
        BundleStore::open(dir, StoreLimits { bundles, evicts }, InProcess).unwrap()
    }

    fn put(store: &BundleStore, text: &str) -> Result<StoredBundle, PutError> {
        store.put(text.as_bytes(), Language::JavaScript, 5)
    }

    #[test]
    fn a_bundle_is_found_by_its_digest_and_what_was_read_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let stored = put(&store(dir.path(), 9, false), BUNDLE).unwrap();
        let store = store(dir.path(), 9, false);
        assert_eq!(
            store.get(stored.hash, Language::JavaScript).unwrap(),
            Some(stored.clone())
        );
        assert_eq!(put(&store, BUNDLE).unwrap(), stored);
        assert_eq!(store.list().unwrap(), [stored.hash]);
        let text = format!("sha256:{}", stored.hash);
        assert_eq!(text.parse::<BundleHash>().unwrap(), stored.hash);
        // What another version read does not count.
        let kept = dir
            .path()
            .join(format!("{}.js", stored.hash))
            .join(extraction_file());
        fs::remove_file(&kept).unwrap();
        assert_eq!(
            store.get(stored.hash, Language::JavaScript).unwrap(),
            Some(stored.clone())
        );
        assert!(kept.exists());
        store.remove(stored.hash, Language::JavaScript).unwrap();
        assert_eq!(store.get(stored.hash, Language::JavaScript).unwrap(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_text_that_is_not_the_one_of_the_digest_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 9, false);
        let stored = put(&store, BUNDLE).unwrap();
        let own = dir.path().join(format!("{}.js", stored.hash));
        fs::remove_file(own.join(extraction_file())).unwrap();
        fs::write(own.join(SOURCE), BUNDLE.replace("gpt-4", "gpt-5")).unwrap();
        let fault = store.get(stored.hash, Language::JavaScript).unwrap_err();
        assert!(fault.message.contains("damaged"), "{fault:?}");
    }

    #[test]
    fn nothing_of_a_refused_bundle_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 9, false);
        assert!(matches!(
            put(&store, "export default 1"),
            Err(PutError::Refused(_))
        ));
        assert!(matches!(
            put(&store, "syntax error("),
            Err(PutError::Refused(_))
        ));
        let no_text = store.put(b"\xff", Language::JavaScript, 0);
        assert!(
            matches!(no_text, Err(PutError::Fault(fault)) if fault.code == Code::InvalidArgument)
        );
        let large = vec![b' '; MAX_SOURCE_BYTES + 1];
        let large = store.put(&large, Language::JavaScript, 0);
        assert!(matches!(large, Err(PutError::Fault(fault)) if fault.code == Code::TooLarge));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_number_of_bundles_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let full = store(dir.path(), 2, false);
        let named = |name: &str| BUNDLE.replace("gpt-4", name);
        let first = put(&full, &named("one")).unwrap();
        put(&full, &named("two")).unwrap();
        assert!(
            matches!(put(&full, &named("three")), Err(PutError::Fault(fault)) if fault.code == Code::NoSpace)
        );
        std::thread::sleep(Duration::from_millis(20));
        full.get(first.hash, Language::JavaScript).unwrap();
        let evicting = store(dir.path(), 2, true);
        let third = put(&evicting, &named("three")).unwrap();
        let mut left = [first.hash, third.hash];
        left.sort_unstable();
        assert_eq!(
            evicting.list().unwrap(),
            left,
            "the one used longest ago went"
        );
    }

    #[test]
    fn one_text_in_two_languages_is_two_bundles() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 9, false);
        let first = put(&store, BUNDLE).unwrap();
        let second = store
            .put(BUNDLE.as_bytes(), Language::TypeScript, 6)
            .unwrap();
        assert_eq!(first.hash, second.hash);
        assert_eq!(
            [first.language(), second.language()],
            [Language::JavaScript, Language::TypeScript]
        );
        store.remove(first.hash, Language::JavaScript).unwrap();
        assert_eq!(store.get(first.hash, Language::JavaScript).unwrap(), None);
        let source = store.source(first.hash, Language::TypeScript).unwrap();
        assert_eq!(source.unwrap(), BUNDLE.as_bytes());
        assert_eq!(
            store.get(first.hash, Language::TypeScript).unwrap(),
            Some(second)
        );
    }

    #[test]
    fn names_are_digests_and_nothing_else() {
        for text in [
            "",
            "abc",
            "../../etc/passwd",
            &"g".repeat(64),
            &"+".repeat(64),
            &"é".repeat(32),
        ] {
            assert!(text.parse::<BundleHash>().is_err(), "{text}");
        }
    }
}
