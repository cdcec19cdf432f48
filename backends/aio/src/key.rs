//! Credential of a service. No format displays it, its memory is overwritten on drop, and its file
//! is read again after a refusal.

use glovebox_proto::{Code, Fault};
use reqwest::header::HeaderValue;
use std::fmt;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// API key or JWT of an AIO Sandbox.
#[derive(Clone)]
pub struct ApiKey {
    value: Zeroizing<String>,
    file: Option<PathBuf>,
}

impl ApiKey {
    /// Creates a key. `file` is its source; it is read again if the service refuses the key.
    pub fn new(value: Zeroizing<String>, file: Option<PathBuf>) -> Self {
        Self { value, file }
    }

    /// Returns the value of the header `Authorization`.
    ///
    /// # Errors
    /// `invalid-argument` if the key has bytes that no header can hold.
    pub(crate) fn header(&self) -> Result<HeaderValue, Fault> {
        let text = Zeroizing::new(format!("Bearer {}", self.value.as_str()));
        let mut header = HeaderValue::from_str(&text).map_err(|_| {
            Fault::failed(
                Code::InvalidArgument,
                "the key of the AIO Sandbox has characters that cannot be sent, such as a line end",
            )
        })?;
        header.set_sensitive(true);
        Ok(header)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// Reads the file again. Returns true if that gave another key.
    pub(crate) fn read_again(&mut self) -> bool {
        let Some(text) = self
            .file
            .as_ref()
            .and_then(|file| std::fs::read_to_string(file).ok())
        else {
            return false;
        };
        let text = Zeroizing::new(text);
        let value = text.trim();
        let is_other = !value.is_empty() && value != self.value.as_str();
        if is_other {
            self.value = Zeroizing::new(value.to_owned());
        }
        is_other
    }

    /// Redacts the key in a text from the service.
    pub(crate) fn redact(&self, text: String) -> String {
        // A shorter key would match parts of unrelated words.
        if self.value.len() >= 4 && text.contains(self.value.as_str()) {
            return text.replace(self.value.as_str(), "[key]");
        }
        text
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}
