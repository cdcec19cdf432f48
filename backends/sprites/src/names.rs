//! Names and labels of the Sprites that belong to one state directory.

/// Maximum length of the name of a Sprite that Glovebox creates.
const MAX_NAME_BYTES: usize = 40;
/// Characters of the owner in a name.
const OWNER_CHARS: usize = 6;
/// Hexadecimal digits that distinguish names which are equal after shortening.
const HASH_CHARS: usize = 4;

/// Maximum length of the name of any Sprite.
const MAX_FOREIGN_NAME_BYTES: usize = 63;

/// Label of every Sprite that Glovebox has created.
pub const LABEL: &str = "glovebox";

/// Returns the name of the Sprite of a sandbox: `gb-OWNER6-NAME-HASH4`, at most 40 characters of
/// `[a-z0-9-]`.
///
/// `owner` is the id of the state directory, 16 hexadecimal digits. Equal arguments give equal
/// names.
pub fn sprite_name(owner: &str, sandbox: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(owner.as_bytes());
    hasher.update(&[0]);
    hasher.update(sandbox.as_bytes());
    let hash = hasher.finalize().to_hex();
    let prefix = name_prefix(owner);
    let mut name = prefix.clone();
    for c in sandbox.chars().map(|c| c.to_ascii_lowercase()) {
        if name.len() + 1 + HASH_CHARS == MAX_NAME_BYTES {
            break;
        }
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    // A sandbox name without a usable character leaves the prefix, which ends with one dash.
    format!("{}-{}", name.trim_end_matches('-'), &hash[..HASH_CHARS])
}

/// Returns true if a text can be the name of a Sprite. A leading hyphen is refused: a program would
/// read it as an option.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_FOREIGN_NAME_BYTES
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns the prefix of all names of one owner, for listings.
pub fn name_prefix(owner: &str) -> String {
    let owner: String = owner
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(OWNER_CHARS)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    format!("gb-{owner}-")
}

/// Returns the label that proves that a Sprite belongs to an owner.
pub fn owner_label(owner: &str) -> String {
    format!("{LABEL}-owner-{owner}")
}

/// Returns the labels of a Sprite that may be removed after `until`, in seconds since 1970.
pub fn labels(owner: &str, until: u64) -> Vec<String> {
    with_until(vec![LABEL.to_owned(), owner_label(owner)], until)
}

/// Replaces the time in the labels.
pub(crate) fn with_until(mut labels: Vec<String>, until: u64) -> Vec<String> {
    let prefix = format!("{LABEL}-until-");
    labels.retain(|label| !label.starts_with(&prefix));
    labels.push(format!("{prefix}{until}"));
    labels
}

/// Returns the time in the labels, in seconds since 1970. None if there is none.
pub fn read_until(labels: &[String]) -> Option<u64> {
    let prefix = format!("{LABEL}-until-");
    labels
        .iter()
        .find_map(|label| label.strip_prefix(&prefix)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "0123456789abcdef";

    #[test]
    fn names_are_short_plain_and_distinct() {
        let name = sprite_name(OWNER, "builder");
        assert!(name.starts_with("gb-012345-builder-"), "{name}");
        assert_eq!(name, sprite_name(OWNER, "builder"));
        let long = "x".repeat(63);
        let odd = [
            "Builder",
            "b_u.i",
            "",
            "---",
            "größe",
            long.as_str(),
            &long[..62],
        ];
        let mut seen = std::collections::BTreeSet::new();
        for sandbox in odd {
            let name = sprite_name(OWNER, sandbox);
            assert!(name.len() <= MAX_NAME_BYTES, "{name}");
            assert!(name.starts_with(&name_prefix(OWNER)), "{name}");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            assert!(!name.contains("--"), "{name}");
            assert!(seen.insert(name));
        }
        assert_ne!(name, sprite_name("0123459999999999", "builder"));
    }

    #[test]
    fn labels_name_owner_and_time() {
        let labels = labels(OWNER, 1_700_000_000);
        assert_eq!(
            labels,
            [
                "glovebox",
                "glovebox-owner-0123456789abcdef",
                "glovebox-until-1700000000"
            ]
        );
        assert_eq!(read_until(&labels), Some(1_700_000_000));
        let mut with_own = labels.clone();
        with_own.push("team-a".to_owned());
        let renewed = with_until(with_own, 1_700_000_001);
        assert_eq!(read_until(&renewed), Some(1_700_000_001));
        assert_eq!(renewed.len(), 4);
        assert!(renewed.contains(&"team-a".to_owned()));
        assert_eq!(read_until(&["glovebox-until-x".to_owned()]), None);
    }
}
