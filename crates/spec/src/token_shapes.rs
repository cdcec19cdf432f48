//! Shapes of tokens by issuer: the table that every search for secrets uses.

/// Shape of one issuer's tokens.
#[derive(Debug, Clone, Copy)]
pub struct TokenShape {
    /// Prefix of every such token.
    pub prefix: &'static str,
    /// Fewest characters after the prefix.
    least: usize,
    /// Returns true for the characters that may follow the prefix.
    class: fn(u8) -> bool,
}

const fn shape(prefix: &'static str, least: usize, class: fn(u8) -> bool) -> TokenShape {
    TokenShape {
        prefix,
        least,
        class,
    }
}

const fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

const fn letter_or_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

const fn upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

/// Shapes of tokens, as their issuers publish them.
pub const TOKEN_SHAPES: &[TokenShape] = &[
    shape("AGE-SECRET-KEY-1", 50, upper_or_digit),
    shape("AIza", 35, word),
    shape("AKIA", 16, upper_or_digit),
    shape("ASIA", 16, upper_or_digit),
    shape("dop_v1_", 60, letter_or_digit),
    shape("gho_", 36, letter_or_digit),
    shape("ghp_", 36, letter_or_digit),
    shape("ghr_", 36, letter_or_digit),
    shape("ghs_", 36, letter_or_digit),
    shape("ghu_", 36, letter_or_digit),
    shape("github_pat_", 22, word),
    shape("glpat-", 20, word),
    shape("hf_", 30, letter_or_digit),
    shape("npm_", 36, letter_or_digit),
    shape("pypi-AgEI", 40, word),
    shape("rk_live_", 16, letter_or_digit),
    shape("sk-ant-", 20, word),
    shape("sk-proj-", 20, word),
    shape("sk_live_", 16, letter_or_digit),
    shape("xapp-", 20, word),
    shape("xoxa-", 20, word),
    shape("xoxb-", 20, word),
    shape("xoxp-", 20, word),
    shape("xoxs-", 20, word),
];

impl TokenShape {
    /// Returns true if a token of this shape begins at `at`, where the text has its prefix.
    pub fn is_token_at(&self, text: &[u8], at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        let rest = text.get(at + self.prefix.len()..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| (self.class)(**byte)).count();
        // Documentation shows keys such as `AKIAIOSFODNN7EXAMPLE`.
        let is_example = rest[..length].windows(7).any(|part| part == b"EXAMPLE");
        !before.is_some_and(|byte| word(*byte)) && length >= self.least && !is_example
    }
}
