//! What was measured, for people and for programs.

use crate::race::{Outcome, Sample};
use crate::verdict::Verdict;
use glovebox_agent::Date;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Everything one run has found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) version: u32,
    pub(crate) is_quick: bool,
    /// Where and when.
    pub(crate) machine: Machine,
    /// Benches of times.
    pub(crate) groups: Vec<Group>,
    /// Everything that is not a time, or is one number.
    pub(crate) figures: Vec<Figure>,
    /// What could not be measured, and why.
    pub(crate) skipped: Vec<Skipped>,
    /// What is promised, and whether it holds.
    pub(crate) promises: Vec<Verdict>,
}

/// Where and when something was measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The day, in UTC.
    pub(crate) date: String,
    /// Version of Glovebox.
    pub(crate) version: String,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// Number of processors.
    pub(crate) cpus: usize,
    /// Their model.
    pub(crate) processor: String,
    /// Memory, rounded.
    pub(crate) memory_gib: u64,
}

impl Machine {
    /// This one, now.
    fn here() -> Self {
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let field = |path: &str, name: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']))
                .trim()
                .to_owned()
        };
        let memory_kib = field("/proc/meminfo", "MemTotal");
        let memory_kib: f64 = memory_kib
            .trim_end_matches(" kB")
            .parse()
            .unwrap_or_default();
        Self {
            date: Date::from_unix_ms(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
                .to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel,
            cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            processor: field("/proc/cpuinfo", "model name"),
            memory_gib: (memory_kib / f64::from(1 << 20)).round() as u64,
        }
    }
}

/// One race.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Its name, by which promises find it.
    pub(crate) name: String,
    /// What is raced for.
    pub(crate) what: String,
    /// Whom the others are compared with.
    pub(crate) rivals: Vec<String>,
    /// Fastest first.
    pub(crate) rows: Vec<Row>,
}

/// One contestant of a race.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Its times.
    #[serde(flatten)]
    pub(crate) sample: Sample,
    /// Median divided by that of each rival.
    pub(crate) ratios: Vec<Ratio>,
}

/// A comparison with a rival.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// The rival.
    pub(crate) rival: String,
    /// Own median divided by the rival's.
    pub(crate) p50: f64,
    /// Own minimum divided by the rival's.
    pub(crate) min: f64,
}

/// One number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The bench.
    pub(crate) group: String,
    /// What it is.
    pub(crate) name: String,
    /// The number.
    pub(crate) value: f64,
    /// Its unit.
    pub(crate) unit: String,
}

/// What could not be measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Skipped {
    /// The bench.
    pub(crate) group: String,
    /// The contestant.
    pub(crate) what: String,
    /// The reason.
    pub(crate) why: String,
}

impl Table {
    /// Version of what is stored.
    pub(crate) const VERSION: u32 = 2;

    pub(crate) fn new(is_quick: bool) -> Self {
        Self {
            version: Self::VERSION,
            is_quick,
            machine: Machine::here(),
            groups: Vec::new(),
            figures: Vec::new(),
            skipped: Vec::new(),
            promises: Vec::new(),
        }
    }

    /// Adds a race; everybody is compared with each of `rivals` that took part.
    pub(crate) fn race(&mut self, name: &str, what: &str, outcome: Outcome, rivals: &[&str]) {
        let rivals: Vec<Sample> = rivals
            .iter()
            .filter_map(|rival| {
                outcome
                    .samples
                    .iter()
                    .find(|sample| sample.contestant == *rival)
                    .cloned()
            })
            .collect();
        for (contestant, why) in outcome.dropped {
            self.skip(name, contestant, why);
        }
        let rows = outcome
            .samples
            .into_iter()
            .map(|sample| Row {
                ratios: rivals
                    .iter()
                    .filter(|rival| rival.contestant != sample.contestant)
                    .map(|rival| Ratio {
                        rival: rival.contestant.clone(),
                        p50: sample.p50_us / rival.p50_us,
                        min: sample.min_us / rival.min_us,
                    })
                    .collect(),
                sample,
            })
            .collect();
        self.groups.push(Group {
            name: name.to_owned(),
            what: what.to_owned(),
            rivals: rivals.into_iter().map(|rival| rival.contestant).collect(),
            rows,
        });
    }

    /// Adds one number.
    pub(crate) fn figure(
        &mut self,
        group: &str,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
    ) {
        self.figures.push(Figure {
            group: group.to_owned(),
            name: name.into(),
            value,
            unit: unit.to_owned(),
        });
    }

    /// Says what could not be measured.
    pub(crate) fn skip(&mut self, group: &str, what: impl Into<String>, why: impl Into<String>) {
        self.skipped.push(Skipped {
            group: group.to_owned(),
            what: what.into(),
            why: why.into(),
        });
    }

    /// Adds what is promised and whether it holds.
    pub(crate) fn judge(&mut self, verdicts: Vec<Verdict>) {
        self.promises = verdicts;
    }

    /// The median of a contestant in a race.
    pub(crate) fn p50_us(&self, group: &str, contestant: &str) -> Option<f64> {
        let group = self.groups.iter().find(|found| found.name == group)?;
        let row = group
            .rows
            .iter()
            .find(|row| row.sample.contestant == contestant)?;
        Some(row.sample.p50_us)
    }

    /// A number added by [`Self::figure`].
    pub(crate) fn value(&self, group: &str, name: &str) -> Option<f64> {
        let found = self
            .figures
            .iter()
            .find(|figure| figure.group == group && figure.name == name)?;
        Some(found.value)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Linux {}, {} CPUs; times in microseconds",
            self.machine.kernel, self.machine.cpus
        )?;
        for group in &self.groups {
            writeln!(f, "\n{}: {}", group.name, group.what)?;
            write!(
                f,
                "  {:<44} {:>6} {:>10} {:>10} {:>10}",
                "", "n", "p50", "p95", "min"
            )?;
            for rival in &group.rivals {
                write!(f, "  p50/min vs {rival}")?;
            }
            writeln!(f)?;
            for Row { sample, ratios } in &group.rows {
                let Sample {
                    contestant,
                    n,
                    p50_us,
                    p95_us,
                    min_us,
                } = sample;
                write!(
                    f,
                    "  {contestant:<44} {n:>6} {p50_us:>10.1} {p95_us:>10.1} {min_us:>10.1}"
                )?;
                for rival in &group.rivals {
                    let cell = ratios
                        .iter()
                        .find(|ratio| ratio.rival == *rival)
                        .map_or_else(String::new, |ratio| {
                            format!("{:.2} / {:.2}", ratio.p50, ratio.min)
                        });
                    write!(
                        f,
                        "  {cell:>width$}",
                        width = "p50/min vs ".len() + rival.len()
                    )?;
                }
                writeln!(f)?;
            }
        }
        if !self.figures.is_empty() {
            writeln!(f, "\nfigures")?;
        }
        for Figure {
            group,
            name,
            value,
            unit,
        } in &self.figures
        {
            writeln!(
                f,
                "  {:<56} {value:>12.1} {unit}",
                format!("{group}: {name}")
            )?;
        }
        if !self.skipped.is_empty() {
            writeln!(f, "\nnot measured")?;
        }
        for Skipped { group, what, why } in &self.skipped {
            writeln!(f, "  {group}: {what}: {why}")?;
        }
        if !self.promises.is_empty() {
            writeln!(
                f,
                "\npromises (found divided by allowed; 1.00 is just reached)"
            )?;
        }
        for promise in &self.promises {
            writeln!(f, "  {promise}")?;
        }
        Ok(())
    }
}
