//! Variables that keep package managers from retrying requests that cannot succeed.
//!
//! Each package manager waits longer before each attempt, `npm install` for more than a minute.
//! Without a network, or with listed hosts only, a second attempt fails like the first. A value
//! that the user has set takes precedence, even if the variable is not passed on otherwise: it is a
//! number and not a secret.

use glovebox_settings::Surroundings;

/// Variable, and its value if the network is off or restricted to listed hosts.
const RETRIES: [(&str, &str); 7] = [
    ("npm_config_fetch_retries", "0"),
    ("YARN_HTTP_RETRY", "0"),
    ("PIP_RETRIES", "0"),
    // After its work pip asks for its own newest version, and retries that too.
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("UV_HTTP_RETRIES", "0"),
    ("CARGO_NET_RETRY", "0"),
    ("BUNDLE_RETRY", "0"),
];
/// Maximum length of a user's value; a number has a few digits.
const MAX_VALUE_BYTES: usize = 16;

/// Returns the variables for commands in a sandbox with a network of its own.
pub fn retry_limits(host: &Surroundings) -> Vec<(String, String)> {
    let own = |name: &str| {
        let value = host.var(name)?.to_str()?;
        let is_word = value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (is_word && value.len() <= MAX_VALUE_BYTES).then(|| value.to_owned())
    };
    RETRIES
        .iter()
        .map(|(name, value)| {
            let value = own(name).unwrap_or_else(|| (*value).to_owned());
            ((*name).to_owned(), value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn value(vars: &[(&str, &str)], name: &str) -> String {
        let host = Surroundings::fixed(Path::new("/h"), Path::new("/p"), vars);
        let found = retry_limits(&host);
        found.into_iter().find(|(own, _)| own == name).unwrap().1
    }

    #[test]
    fn what_the_user_has_set_counts() {
        assert_eq!(value(&[], "PIP_RETRIES"), "0");
        assert_eq!(value(&[("PIP_RETRIES", "7")], "PIP_RETRIES"), "7");
        assert_eq!(value(&[("PIP_RETRIES", "")], "PIP_RETRIES"), "0");
        assert_eq!(value(&[("PIP_RETRIES", "7")], "CARGO_NET_RETRY"), "0");
        // A number is expected there, and nothing else passes.
        assert_eq!(value(&[("PIP_RETRIES", "hush=hush")], "PIP_RETRIES"), "0");
    }
}
