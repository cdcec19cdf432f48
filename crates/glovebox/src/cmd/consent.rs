//! Consent to a project's own file: looked up, or asked for on a terminal.

use super::Cx;
use crate::exit::CommandError;
use crate::render::{escape_text, say, say_warning};
use crate::sync::question;
use glovebox_proto::visible::{HiddenCharacters, review_line};
use glovebox_session::host::now_unix_ms;
use glovebox_settings::trust::TrustStore;
use glovebox_settings::{Consent, Demand, ProjectFile, Settings};

/// Maximum number of demands, and of characters in each, that the user is asked about; more is not
/// read before answering.
const MAX_ASKED_DEMANDS: usize = 30;
const MAX_ASKED_CHARS: usize = 500;

impl Cx {
    /// Opens the store of trusted project files.
    pub(crate) fn trust_store(&self, settings: &Settings) -> Result<TrustStore, CommandError> {
        Ok(TrustStore::new(self.state_dir(settings)?))
    }

    /// Looks up whether the user trusts the project's file in its present state.
    pub(crate) fn look_up_consent(&self, settings: &mut Settings) -> Result<(), CommandError> {
        let store = self.trust_store(settings)?;
        if let Some(file) = &mut settings.project_file
            && file.consent == Consent::Unknown
            && let Some(record) = store.find(&file.dir)?
        {
            let since_unix_ms = record.since_unix_ms;
            file.consent = if record.digest == file.digest {
                Consent::Trusted { since_unix_ms }
            } else {
                Consent::Changed { since_unix_ms }
            };
        }
        Ok(())
    }

    /// Returns only if the user has agreed to the demands of the project's file; asks on a
    /// terminal.
    ///
    /// # Errors
    /// A refusal that names what needs consent, and how to give it.
    pub(crate) fn require_consent(
        &self,
        settings: &mut Settings,
        is_outside_native: bool,
    ) -> Result<(), CommandError> {
        // Most projects demand nothing, so check that first: they need no access to the store.
        if settings.check_project(is_outside_native).is_ok() {
            return Ok(());
        }
        self.look_up_consent(settings)?;
        let refused = settings.check_project(is_outside_native);
        if refused.is_err() && question::is_possible() && self.ask_consent(settings)? {
            return Ok(settings.check_project(is_outside_native)?);
        }
        Ok(refused?)
    }

    /// Displays all demands of the file, and asks for consent. Returns false without a question if
    /// they are too long to be read.
    fn ask_consent(&self, settings: &mut Settings) -> Result<bool, CommandError> {
        let demands = settings.all_demands(self.host.home())?;
        let store = self.trust_store(settings)?;
        let Some(file) = &mut settings.project_file else {
            return Ok(false);
        };
        let is_long = |demand: &Demand| demand.line(true).chars().count() > MAX_ASKED_CHARS;
        if demands.len() > MAX_ASKED_DEMANDS || demands.iter().any(is_long) {
            return Ok(false);
        }
        say(format_args!(
            "glovebox: {} came with the project{} and asks for more than you give:",
            escape_text(&file.path.display().to_string()),
            match file.consent {
                Consent::Changed { .. } => ", has changed since you trusted it,",
                _ => "",
            }
        ));
        let mut hidden = HiddenCharacters::of(&file.path.display().to_string());
        for demand in &demands {
            let line = demand.line(true);
            hidden.add(line.as_bytes());
            let shown = review_line(line.as_bytes(), self.talk.has_screen_color());
            say(format_args!("    {shown}"));
        }
        if !hidden.is_empty() {
            say_warning(hidden);
        }
        if !question::agree_before_start("trust this file as it is now? [y]es, [n]o") {
            return Ok(false);
        }
        trust(file, &store)?;
        Ok(true)
    }
}

/// Records that a file is trusted with its present content.
pub(super) fn trust(file: &mut ProjectFile, store: &TrustStore) -> Result<(), CommandError> {
    let record = store.add(&file.dir, &file.digest, now_unix_ms())?;
    file.consent = Consent::Trusted {
        since_unix_ms: record.since_unix_ms,
    };
    Ok(())
}
