//! Texts of services in our messages.

use glovebox_proto::visible;

/// Maximum length of a text, in characters.
const MAX_MESSAGE_CHARS: usize = 200;

/// Prepares a text of a service for a message: one line of at most 200 characters, control
/// characters escaped.
// TRUST: the service, or an impostor in its place, chose the text.
pub fn show_message(bytes: &[u8]) -> String {
    let bytes = bytes.trim_ascii();
    // A character has four bytes at most. One more character shows that the text was longer.
    let most = bytes.len().min(4 * (MAX_MESSAGE_CHARS + 1));
    let shown = visible::line(&bytes[..most]);
    if shown.chars().count() <= MAX_MESSAGE_CHARS {
        return shown;
    }
    let mut cut: String = shown.chars().take(MAX_MESSAGE_CHARS - 1).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_service_are_short_and_show_control_characters() {
        assert_eq!(show_message(b" a\x1b[2J\n"), "a\\x1b[2J");
        for text in [
            "\x07".repeat(5000),
            "é".repeat(5000),
            "\u{1f600}".repeat(201),
        ] {
            let long = show_message(text.as_bytes());
            assert_eq!(long.chars().count(), MAX_MESSAGE_CHARS);
            assert!(long.ends_with('…'), "{long}");
        }
    }
}
