//! The documents that are made from promises and results: the tables in `SPECIFICATION.md`, and `docs/benchmarks.md`.
//!
//! In: the promises of [`crate::promise`], the published results in `benches/results.json`. Out: Markdown. A test
//! compares both documents with what they are made from.

use crate::promise::promises;
use crate::table::{Group, Machine, Table};
use crate::verdict::{Standing, Verdict};
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Results that were written down by hand before a run could be published.
const EARLIER: &str = include_str!("../earlier.md");
const BEGIN: &str = "<!-- promises -->\n";
const END: &str = "<!-- end of promises -->\n";

/// The documents of one checkout.
struct Documents {
    results: PathBuf,
    benchmarks: PathBuf,
    specification: PathBuf,
}

impl Documents {
    fn of(root: &Path) -> Self {
        Self {
            results: root.join("benches/results.json"),
            benchmarks: root.join("docs/benchmarks.md"),
            specification: root.join("SPECIFICATION.md"),
        }
    }

    /// The run that was published last; `None` where none was.
    fn published(&self) -> Result<Option<Table>> {
        let path = &self.results;
        let json = match fs::read(path) {
            Ok(json) => json,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let table: Table = serde_json::from_slice(&json)
            .with_context(|| format!("{} is no result of a bench", path.display()))?;
        if table.version != Table::VERSION {
            bail!(
                "{} has version {}, this bench writes {}: publish a new run",
                path.display(),
                table.version,
                Table::VERSION
            );
        }
        Ok(Some(table))
    }

    /// What the specification is to be: its own text with the tables of today's promises.
    fn specification(&self) -> Result<String> {
        let path = self.specification.display();
        let text = fs::read_to_string(&self.specification)
            .with_context(|| format!("cannot read {path}"))?;
        let (before, rest) = text
            .split_once(BEGIN)
            .with_context(|| format!("{path} has no line `{}`", BEGIN.trim_end()))?;
        let (_, after) = rest
            .split_once(END)
            .with_context(|| format!("{path} has no line `{}`", END.trim_end()))?;
        Ok([before, BEGIN, &promise_tables(), END, after].concat())
    }

    fn write(&self) -> Result<()> {
        for (path, text) in [
            (&self.benchmarks, benchmarks(self.published()?.as_ref())),
            (&self.specification, self.specification()?),
        ] {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Publishes a whole run: its results become those of the checkout, and the documents are made from them.
///
/// # Errors
/// When the run left something out on purpose, or a file cannot be written.
pub(crate) fn publish(table: &Table, root: &Path) -> Result<()> {
    if table.is_quick {
        bail!("a quick run is not published: measure without --quick");
    }
    let documents = Documents::of(root);
    let path = &documents.results;
    fs::write(path, serde_json::to_vec_pretty(table)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    documents.write()
}

/// What is promised, and what is a goal.
fn promise_tables() -> String {
    let mut text = String::from(
        "\n| id | what | promise | tests | holds |\n| --- | --- | --- | --- | --- |\n",
    );
    for promise in promises()
        .iter()
        .filter(|promise| promise.standing == Standing::Promise)
    {
        let test = promise
            .test
            .map_or_else(String::new, |test| format!(", `{test}`"));
        let holds = promise
            .except
            .map_or_else(|| "yes".to_owned(), |except| format!("not on {except}"));
        let _ = writeln!(
            text,
            "| {} | {} | {} | `{}`{test} | {holds} |",
            promise.id(),
            cell(&promise.what),
            cell(promise.bound),
            promise.bench
        );
    }
    text.push_str(
        "\nGoals, which have not been reached yet:\n\n| id | what | goal | tests |\n| --- | --- | --- | --- |\n",
    );
    for goal in promises()
        .iter()
        .filter(|promise| promise.standing == Standing::Goal)
    {
        let _ = writeln!(
            text,
            "| {} | {} | {} | `{}` |",
            goal.id(),
            cell(&goal.what),
            cell(goal.bound),
            goal.bench
        );
    }
    text.push('\n');
    text
}

/// `docs/benchmarks.md`.
fn benchmarks(published: Option<&Table>) -> String {
    let mut text = String::from(
        "# Benchmarks\n\n\
         <!-- Generated from benches/results.json: cargo xtask bench --publish -->\n\n\
         What was measured, where and when. [SPECIFICATION.md](../SPECIFICATION.md) says what is promised, \
         and on which\nmachines it does not hold. Contestants of a race take turns in one run, so their ratios mean more \
         than their times: p50\nis the median, min the shortest.\n\n",
    );
    match published {
        Some(table) => results(&mut text, table),
        None => text.push_str(
            "No run has been published as data yet: `cargo xtask bench --publish` does it, on a machine with nothing \
             else to do.\n\n",
        ),
    }
    text.push_str("## Earlier results\n\n");
    text.push_str(EARLIER);
    text
}

fn results(text: &mut String, table: &Table) {
    let Machine {
        date,
        version,
        kernel,
        cpus,
        processor,
        memory_gib,
    } = &table.machine;
    let _ = write!(
        text,
        "| | |\n| --- | --- |\n| date | {date} |\n| Glovebox | {version} |\n| kernel | Linux {kernel} |\n\
         | processors | {cpus}, {} |\n| memory | {memory_gib} GiB |\n\n",
        cell(processor)
    );
    text.push_str(
        "## Promises and goals\n\n\
         | measurement | bound | found | allowed | ratio | |\n| --- | --- | ---: | ---: | ---: | --- |\n",
    );
    for verdict in &table.promises {
        let number = |value: Option<f64>| {
            value.map_or_else(
                || "not measured".to_owned(),
                |value| format!("{value:.1} {}", verdict.unit),
            )
        };
        let Verdict { what, bound, .. } = verdict;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            cell(what),
            cell(bound),
            number(verdict.found),
            number(verdict.allowed),
            verdict
                .ratio()
                .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            verdict.word()
        );
    }
    text.push('\n');
    for group in &table.groups {
        race(text, group);
    }
    if !table.figures.is_empty() {
        text.push_str("## Figures\n\n| figure | value |\n| --- | ---: |\n");
        for figure in &table.figures {
            let _ = writeln!(
                text,
                "| {}: {} | {:.1} {} |",
                cell(&figure.group),
                cell(&figure.name),
                figure.value,
                figure.unit
            );
        }
        text.push('\n');
    }
    if !table.skipped.is_empty() {
        text.push_str("## Not measured\n\n");
        for skipped in &table.skipped {
            let _ = writeln!(
                text,
                "- {}: {}: {}",
                skipped.group, skipped.what, skipped.why
            );
        }
        text.push('\n');
    }
}

fn race(text: &mut String, group: &Group) {
    let _ = write!(
        text,
        "## Race: {}\n\n{}; times in microseconds.\n\n| contestant | n | p50 | p95 | min |",
        group.name, group.what
    );
    for rival in &group.rivals {
        let _ = write!(text, " p50 / min beside {} |", cell(rival));
    }
    text.push_str("\n| --- | ---: | ---: | ---: | ---: |");
    text.push_str(&" ---: |".repeat(group.rivals.len()));
    text.push('\n');
    for row in &group.rows {
        let sample = &row.sample;
        let _ = write!(
            text,
            "| {} | {} | {:.1} | {:.1} | {:.1} |",
            cell(&sample.contestant),
            sample.n,
            sample.p50_us,
            sample.p95_us,
            sample.min_us
        );
        for rival in &group.rivals {
            let ratio = row.ratios.iter().find(|ratio| ratio.rival == *rival);
            let ratio = ratio.map_or_else(String::new, |ratio| {
                format!("{:.2} / {:.2}", ratio.p50, ratio.min)
            });
            let _ = write!(text, " {ratio} |");
        }
        text.push('\n');
    }
    text.push('\n');
}

/// A text as one cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promise::judge;
    use crate::race::{Outcome, Sample};
    use std::time::Duration;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_documents_are_those_of_the_promises_and_the_published_results() {
        let documents = Documents::of(&root());
        if std::env::var_os("GLOVEBOX_TEST_BLESS").is_some() {
            documents.write().unwrap();
        }
        let published = documents.published().unwrap();
        for (path, expected) in [
            (&documents.benchmarks, benchmarks(published.as_ref())),
            (&documents.specification, documents.specification().unwrap()),
        ] {
            let written = fs::read_to_string(path).unwrap_or_default();
            assert_eq!(
                written,
                expected,
                "{} is not what it is made from: run this test with GLOVEBOX_TEST_BLESS=1 to write it anew",
                path.display()
            );
        }
    }

    #[test]
    fn a_promise_names_a_test_that_is_there() {
        for promise in promises() {
            if let Some(test) = promise.test {
                assert!(root().join(test).exists(), "{promise:?}");
            }
        }
    }

    /// A run with one race, as `bench` stores it.
    fn run() -> Table {
        let mut table = Table::new(false);
        let sample = |who: &str, us| Sample::of(who, &[Duration::from_micros(us)]);
        table.race(
            crate::push::FIRST,
            "a | b",
            Outcome {
                samples: vec![sample(crate::push::COPY, 50), sample(crate::push::TAR, 100)],
                dropped: vec![],
            },
            &[crate::push::TAR],
        );
        table.figure(crate::push::FIRST, crate::push::HOST_MEMORY, 32.0, "MiB");
        table.skip("push", "rsync", "there is none");
        table.judge(judge(&table));
        table
    }

    #[test]
    fn a_published_run_comes_back_as_it_was_and_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["benches", "docs"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(
            dir.path().join("SPECIFICATION.md"),
            [BEGIN, "stale table\n", END, "rest\n"].concat(),
        )
        .unwrap();
        let table = run();
        publish(&table, dir.path()).unwrap();

        let documents = Documents::of(dir.path());
        let back = documents.published().unwrap().unwrap();
        assert_eq!(
            serde_json::to_value(&back).unwrap(),
            serde_json::to_value(&table).unwrap()
        );
        let shown = fs::read_to_string(&documents.benchmarks).unwrap();
        for line in [
            "| glovebox, copy mode | 1 | 50.0 | 50.0 | 50.0 | 0.50 / 0.50 |",
            "p50 <= `tar \\| base64` | 50.0 us | 100.0 us | 0.50 | holds |",
            "<= 64 MiB | 32.0 MiB | 64.0 MiB | 0.50 | holds |",
            "| not measured | 2000.0 us |  | unknown |",
            "- push: rsync: there is none",
            "## Earlier results",
        ] {
            assert!(shown.contains(line), "{line}\n{shown}");
        }
        let specification = fs::read_to_string(&documents.specification).unwrap();
        assert!(!specification.contains("stale table") && specification.ends_with("rest\n"));
    }

    #[test]
    fn a_quick_run_and_results_of_another_version_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(publish(&Table::new(true), dir.path()).is_err());

        fs::create_dir(dir.path().join("benches")).unwrap();
        let mut table = run();
        table.version = Table::VERSION + 1;
        let documents = Documents::of(dir.path());
        fs::write(&documents.results, serde_json::to_vec(&table).unwrap()).unwrap();
        let error = documents.published().unwrap_err().to_string();
        assert!(error.contains("publish a new run"), "{error}");
    }
}
