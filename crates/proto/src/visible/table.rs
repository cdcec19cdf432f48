//! Characters that hide, act or reorder text. Terminals, models, MCP clients and the web interface
//! use the same table.
//!
//! A test writes the copy of the web interface, `web/src/model/visible-table.ts`, from this table:
//! `GLOVEBOX_TEST_BLESS=1 cargo test --package glovebox-proto`.

/// Class of a character that is escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignClass {
    /// The character can make a text read as another text.
    Warn,
    /// The character looks like another one but is harmless: a blank other than the space, or
    /// private use.
    Note,
}

use SignClass::{Note, Warn};

/// First and last code point with their class, in ascending order. [`is_plane_end`] covers the
/// noncharacters at the end of each plane.
pub(super) const RANGES: &[(u32, u32, SignClass)] = &[
    (0x0000, 0x0008, Warn),
    (0x000b, 0x001f, Warn),
    (0x007f, 0x009f, Warn),
    (0x00a0, 0x00a0, Note),
    (0x00ad, 0x00ad, Warn),
    (0x034f, 0x034f, Warn),
    (0x061c, 0x061c, Warn),
    (0x115f, 0x1160, Warn),
    (0x1680, 0x1680, Note),
    (0x17b4, 0x17b5, Warn),
    (0x180b, 0x180f, Warn),
    (0x2000, 0x200a, Note),
    (0x200b, 0x200f, Warn),
    (0x2028, 0x202e, Warn),
    (0x202f, 0x202f, Note),
    (0x205f, 0x205f, Note),
    (0x2060, 0x206f, Warn),
    (0x2800, 0x2800, Warn),
    (0x3000, 0x3000, Note),
    (0x3164, 0x3164, Warn),
    (0xe000, 0xf8ff, Note),
    (0xfdd0, 0xfdef, Warn),
    (0xfe00, 0xfe0f, Warn),
    (0xfeff, 0xfeff, Warn),
    (0xffa0, 0xffa0, Warn),
    (0xfff0, 0xfffb, Warn),
    (0x1bca0, 0x1bca3, Warn),
    (0x1d173, 0x1d17a, Warn),
    (0xe0000, 0xe0fff, Warn),
    (0xf0000, 0xffffd, Note),
    (0x0010_0000, 0x0010_fffd, Note),
];

/// Combining marks, drawn over the character before them. A pile of marks covers other lines.
pub(super) const MARKS: &[(u32, u32)] = &[
    (0x0300, 0x034e),
    (0x0350, 0x036f),
    (0x0483, 0x0489),
    (0x0591, 0x05bd),
    (0x0610, 0x061a),
    (0x064b, 0x065f),
    (0x06d6, 0x06dc),
    (0x0e34, 0x0e3a),
    (0x0e47, 0x0e4e),
    (0x1ab0, 0x1aff),
    (0x1dc0, 0x1dff),
    (0x20d0, 0x20f0),
    (0xfe20, 0xfe2f),
];

/// Most combining marks in a row that scripts need. Further marks are escaped.
pub(super) const MAX_MARKS: u32 = 8;

/// Mongolian letters. A Mongolian variation selector after one of them is ordinary text.
pub(super) const MONGOLIAN: (u32, u32) = (0x1820, 0x18aa);

/// Ideographs. A selector of the Variation Selectors Supplement after one of them is ordinary text.
pub(super) const HAN: &[(u32, u32)] = &[
    (0x2e80, 0x2fd5),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3038, 0x303b),
    (0x3400, 0x4dbf),
    (0x4e00, 0x9fff),
    (0xf900, 0xfad9),
    (0x20000, 0x323af),
];

/// Short names of characters in warnings. Other characters appear as their code point.
pub(super) const NAMES: &[(u32, &str)] = &[
    (0x00, "NUL"),
    (0x01, "SOH"),
    (0x02, "STX"),
    (0x03, "ETX"),
    (0x04, "EOT"),
    (0x05, "ENQ"),
    (0x06, "ACK"),
    (0x07, "BEL"),
    (0x08, "BS"),
    (0x0b, "VT"),
    (0x0c, "FF"),
    (0x0d, "CR"),
    (0x0e, "SO"),
    (0x0f, "SI"),
    (0x10, "DLE"),
    (0x11, "DC1"),
    (0x12, "DC2"),
    (0x13, "DC3"),
    (0x14, "DC4"),
    (0x15, "NAK"),
    (0x16, "SYN"),
    (0x17, "ETB"),
    (0x18, "CAN"),
    (0x19, "EM"),
    (0x1a, "SUB"),
    (0x1b, "ESC"),
    (0x1c, "FS"),
    (0x1d, "GS"),
    (0x1e, "RS"),
    (0x1f, "US"),
    (0x7f, "DEL"),
    (0x9b, "CSI"),
    (0xa0, "NBSP"),
    (0xad, "SHY"),
    (0x034f, "CGJ"),
    (0x061c, "ALM"),
    (0x200b, "ZWSP"),
    (0x200c, "ZWNJ"),
    (0x200d, "ZWJ"),
    (0x200e, "LRM"),
    (0x200f, "RLM"),
    (0x2028, "LSEP"),
    (0x2029, "PSEP"),
    (0x202a, "LRE"),
    (0x202b, "RLE"),
    (0x202c, "PDF"),
    (0x202d, "LRO"),
    (0x202e, "RLO"),
    (0x202f, "NNBSP"),
    (0x2060, "WJ"),
    (0x2066, "LRI"),
    (0x2067, "RLI"),
    (0x2068, "FSI"),
    (0x2069, "PDI"),
    (0x3000, "IDSP"),
    (0xfeff, "BOM"),
];

/// Returns true for the two noncharacters at the end of each plane.
pub(super) const fn is_plane_end(code: u32) -> bool {
    code & 0xfffe == 0xfffe
}

/// Returns the class of a code point without regard to its neighbours.
pub(super) fn find_class(code: u32) -> Option<SignClass> {
    if is_plane_end(code) {
        return Some(Warn);
    }
    let after = RANGES.partition_point(|(first, ..)| *first <= code);
    let (_, last, class) = RANGES.get(after.checked_sub(1)?)?;
    (code <= *last).then_some(*class)
}

pub(super) fn is_in(ranges: &[(u32, u32)], code: u32) -> bool {
    ranges
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    /// Returns the table as a module of the web interface.
    fn write_module() -> String {
        let mut text =
            "// Written from crates/proto/src/visible/table.rs by its test; change that one.\n\n"
                .to_owned();
        let ranges = |text: &mut String, name: &str, ranges: &[(u32, u32)]| {
            let _ = writeln!(
                text,
                "export const {name}: readonly (readonly [number, number])[] = ["
            );
            for (first, last) in ranges {
                let _ = writeln!(text, "  [0x{first:04x}, 0x{last:04x}],");
            }
            text.push_str("];\n\n");
        };
        let of_class = |class| {
            let ranges = RANGES.iter().filter(|range| range.2 == class);
            ranges
                .map(|(first, last, _)| (*first, *last))
                .collect::<Vec<_>>()
        };
        let mut warn = of_class(Warn);
        warn.extend((0..=16).map(|plane| (plane << 16 | 0xfffe, plane << 16 | 0xffff)));
        ranges(&mut text, "WARN", &warn);
        ranges(&mut text, "NOTE", &of_class(Note));
        ranges(&mut text, "MARKS", MARKS);
        ranges(&mut text, "HAN", HAN);
        ranges(&mut text, "MONGOLIAN", &[MONGOLIAN]);
        let _ = writeln!(text, "export const MAX_MARKS = {MAX_MARKS};\n");
        text.push_str("export const NAMES: Readonly<Record<number, string>> = {\n");
        for (code, name) in NAMES {
            let _ = writeln!(text, "  0x{code:02x}: \"{name}\",");
        }
        text.push_str("};\n");
        text
    }

    #[test]
    fn web_interface_has_the_same_table() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../web/src/model/visible-table.ts"
        );
        let module = write_module();
        if std::env::var_os("GLOVEBOX_TEST_BLESS").is_some() {
            std::fs::write(file, &module).unwrap();
        }
        assert!(
            std::fs::read_to_string(file).unwrap_or_default() == module,
            "write it with GLOVEBOX_TEST_BLESS=1"
        );
    }

    #[test]
    fn ranges_are_in_order_and_apart() {
        for pair in RANGES.windows(2) {
            assert!(pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0, "{pair:x?}");
        }
    }
}
