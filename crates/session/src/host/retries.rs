//! Variables that keep package managers from trying again where the answer is no.
//!
//! Each of them waits between its attempts, longer each time: more than a minute of `npm install`. In a sandbox
//! without network, or with listed hosts only, the second attempt meets what the first has met. What the user has set for such a program counts
//! instead, also where it is not passed on otherwise: it is a number and no secret.

use glovebox_settings::Surroundings;

/// A variable and its value where the network is off or of listed hosts.
const RETRIES: [(&str, &str); 7] = [
    ("npm_config_fetch_retries", "0"),
    ("YARN_HTTP_RETRY", "0"),
    ("PIP_RETRIES", "0"),
    // After its work pip asks for its own newest version, and tries that again as well.
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("UV_HTTP_RETRIES", "0"),
    ("CARGO_NET_RETRY", "0"),
    ("BUNDLE_RETRY", "0"),
];
/// Longest value of the user's that is taken; a number has a few digits.
const MAX_VALUE_BYTES: usize = 16;

/// The variables for commands in a sandbox with a network of its own.
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
