//! Texts of services in messages of ours.

use glovebox_proto::visible;

/// Most characters of a text.
const MAX_MESSAGE_CHARS: usize = 200;

/// Makes a text of a service fit for a sentence: one line, control characters as visible signs, at most 200 of them.
// TRUST: the service chose it, or whatever stands in its place.
pub fn show_message(bytes: &[u8]) -> String {
    let bytes = bytes.trim_ascii();
    // A character takes at most four bytes; one more than fits shows that there is more.
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
