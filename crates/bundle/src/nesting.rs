//! Estimate of the depth of a source's syntax tree, made before parsing. The parser recurses, and a
//! stack overflow would kill the process.
//!
//! The estimate counts, for every open bracket, the tokens since the last place where an expression
//! or statement must have ended. Every form of nesting needs tokens (brackets, prefix operators,
//! arrows, `if (x) if (y)`, `else if`, `a.b.c`), so the tree is hardly ever deeper than the
//! estimate. For ordinary code, the estimate stays far below the limit. The previous token
//! distinguishes a regular expression from a division, which can fail. The child process that
//! extracts untrusted bundles has limits for that case.

use crate::limits::MAX_NESTING;

/// Place where the syntax exceeds the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooDeep {
    pub offset: u32,
}

/// Scans the tokens of `source`.
///
/// # Errors
/// The first place where the estimate exceeds the limit.
pub(crate) fn check(source: &str) -> Result<(), TooDeep> {
    let mut scan = Scan::new(source.as_bytes());
    while let Some(offset) = scan.step() {
        if scan.total > MAX_NESTING {
            return Err(TooDeep {
                offset: offset as u32,
            });
        }
    }
    Ok(())
}

/// Words before an operand, after which `/` begins a regular expression.
const PREFIX_WORDS: [&[u8]; 17] = [
    b"await",
    b"case",
    b"delete",
    b"do",
    b"else",
    b"extends",
    b"in",
    b"instanceof",
    b"keyof",
    b"new",
    b"of",
    b"return",
    b"throw",
    b"typeof",
    b"void",
    b"yield",
    b"default",
];
/// Words that continue an expression on the next line.
const INFIX_WORDS: [&[u8]; 8] = [
    b"as",
    b"extends",
    b"in",
    b"infer",
    b"instanceof",
    b"is",
    b"of",
    b"satisfies",
];
/// Words whose parentheses precede a statement.
const CONTROL_WORDS: [&[u8]; 4] = [b"if", b"while", b"for", b"with"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Previous {
    /// Nothing, an operator, an opening bracket, or a word before an operand.
    Operator,
    /// The end of an operand.
    Operand,
    /// A closing brace.
    Brace,
    /// The end of `if (...)`.
    Control,
    /// A dot: the next word is the name of a property, even if it is a keyword.
    Dot,
}

#[derive(Debug, Default)]
struct Level {
    chain: u32,
    angles: u32,
    elses: u32,
    is_template: bool,
    is_control: bool,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    levels: Vec<Level>,
    total: u32,
    previous: Previous,
    is_control_next: bool,
    is_line_start: bool,
}

impl<'a> Scan<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            levels: vec![Level::default()],
            total: 0,
            previous: Previous::Operator,
            is_control_next: false,
            is_line_start: true,
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Reads one token and returns its offset; `None` at the end.
    fn step(&mut self) -> Option<usize> {
        self.skip_blanks();
        let start = self.at;
        let byte = *self.bytes.get(start)?;
        match byte {
            b'\'' | b'"' => self.string(byte),
            b'`' => {
                self.at += 1;
                self.operand();
                self.template();
            }
            b'/' if self.previous != Previous::Operand => self.regex(),
            b'(' | b'[' | b'{' => self.open(byte == b'('),
            b')' | b']' | b'}' => self.close(byte),
            _ if is_word(byte) => self.word(),
            _ => self.punctuation(byte),
        }
        Some(start)
    }

    fn skip_blanks(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n' | b'\r', _) => {
                    self.is_line_start = true;
                    self.at += 1;
                }
                (b' ' | b'\t' | 0x0b | 0x0c, _) => self.at += 1,
                (b'/', b'/') => {
                    while self.at < self.bytes.len() && !matches!(self.peek(0), b'\n' | b'\r') {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => {
                    let rest = &self.bytes[self.at + 2..];
                    let length = rest.windows(2).position(|pair| pair == b"*/");
                    self.at += 2 + length.map_or(rest.len(), |length| length + 2);
                }
                _ => return,
            }
        }
    }

    fn count(&mut self) {
        self.total += 1;
        if let Some(level) = self.levels.last_mut() {
            level.chain += 1;
        }
    }

    /// Ends an expression, or a statement if `is_statement`.
    fn end(&mut self, is_statement: bool) {
        if let Some(level) = self.levels.last_mut() {
            self.total -= level.chain;
            level.chain = 0;
            if is_statement {
                self.total -= level.angles;
                level.angles = 0;
            }
        }
    }

    fn operand(&mut self) {
        self.begin_line(false);
        self.count();
        self.previous = Previous::Operand;
    }

    /// Ends the statement before the current token, if the token begins a line and cannot continue
    /// it.
    fn begin_line(&mut self, continues: bool) {
        let ended = match self.previous {
            Previous::Operand => self.is_line_start,
            Previous::Brace => true,
            _ => false,
        };
        if ended && !continues {
            self.end(true);
        }
        self.is_line_start = false;
    }

    fn string(&mut self, quote: u8) {
        self.operand();
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\\' => self.at += 2,
                b'\n' => return,
                byte => {
                    self.at += 1;
                    if byte == quote {
                        return;
                    }
                }
            }
        }
        self.at = self.bytes.len();
    }

    /// Skips the text of a template, to its end or to the next `${`.
    fn template(&mut self) {
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'\\', _) => self.at += 2,
                (b'`', _) => {
                    self.at += 1;
                    self.previous = Previous::Operand;
                    return;
                }
                (b'$', b'{') => {
                    self.at += 2;
                    self.push(Level {
                        is_template: true,
                        ..Level::default()
                    });
                    return;
                }
                _ => self.at += 1,
            }
        }
        self.at = self.bytes.len();
    }

    fn regex(&mut self) {
        self.operand();
        self.at += 1;
        let mut is_class = false;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\\' => self.at += 2,
                b'\n' | b'\r' => return,
                byte => {
                    self.at += 1;
                    match byte {
                        b'[' => is_class = true,
                        b']' => is_class = false,
                        b'/' if !is_class => return,
                        _ => {}
                    }
                }
            }
        }
        self.at = self.bytes.len();
    }

    fn push(&mut self, level: Level) {
        self.count();
        self.levels.push(level);
        self.previous = Previous::Operator;
    }

    fn open(&mut self, is_parenthesis: bool) {
        // A line that begins with a bracket continues the expression before it.
        self.is_line_start = false;
        self.at += 1;
        let is_control = is_parenthesis && self.is_control_next;
        self.is_control_next = false;
        self.push(Level {
            is_control,
            ..Level::default()
        });
    }

    fn close(&mut self, byte: u8) {
        self.at += 1;
        self.is_line_start = false;
        let mut closed = Level::default();
        if self.levels.len() > 1
            && let Some(level) = self.levels.pop()
        {
            self.total -= level.chain + level.angles + level.elses;
            closed = level;
        }
        if closed.is_template && byte == b'}' {
            self.template();
            return;
        }
        self.previous = match byte {
            b'}' => Previous::Brace,
            _ if closed.is_control => Previous::Control,
            _ => Previous::Operand,
        };
    }

    fn word(&mut self) {
        let start = self.at;
        while is_word(self.peek(0)) {
            self.at += 1;
        }
        let word = &self.bytes[start..self.at];
        if self.previous == Previous::Dot {
            self.count();
            self.previous = Previous::Operand;
            return;
        }
        if word == b"else" {
            // Each `else` before it adds a level to the tree, even if blocks end in between.
            self.total += 1;
            if let Some(level) = self.levels.last_mut() {
                level.elses += 1;
            }
            self.previous = Previous::Operator;
            return;
        }
        if word == b"case" && self.previous != Previous::Operator {
            self.end(true);
        }
        self.begin_line(INFIX_WORDS.contains(&word));
        self.is_control_next = CONTROL_WORDS.contains(&word);
        self.count();
        self.previous = if PREFIX_WORDS.contains(&word) || self.is_control_next {
            Previous::Operator
        } else {
            Previous::Operand
        };
    }

    fn punctuation(&mut self, byte: u8) {
        self.at += 1;
        self.is_line_start = false;
        match byte {
            b';' => self.end(true),
            b',' => self.end(false),
            b'<' => {
                self.total += 1;
                if let Some(level) = self.levels.last_mut() {
                    level.angles += 1;
                }
            }
            _ => self.count(),
        }
        self.previous = match (byte, self.previous) {
            (b'.', _) => Previous::Dot,
            // `x++` and `x--` end an operand; operators such as `!==` do not.
            (b'+' | b'-', Previous::Operand) if self.peek(0) == byte => {
                self.at += 1;
                Previous::Operand
            }
            _ => Previous::Operator,
        };
    }
}

/// True for bytes of names and numbers, and for all beyond ASCII.
const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'#' | b'\\' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_nesting_is_counted() {
        for (open, between, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{", "", "}"),
            ("!", "1", ""),
            ("- ", "1", ""),
            ("typeof ", "1", ""),
            ("new ", "x", ""),
            ("a=>", "1", ""),
            ("if(a)", "b", ""),
            ("if(a)\n", "b", ""),
            ("if(a)b;else ", "c", ""),
            ("while(a)\n\n", "b", ""),
            ("a?b:", "c", ""),
            ("a=", "b", ""),
            ("a.b", "", ""),
            ("a+\n", "b", ""),
            ("a in\n", "b", ""),
            ("`${", "1", "}`"),
            ("a:", "b", ""),
            ("f(1,", "2", ")"),
            ("A<B,", "C", ">"),
            ("do ", "1", ""),
            ("if(a)/[(]/;else ", "1", ""),
        ] {
            let deep = |count| format!("{}{between}{}", open.repeat(count), close.repeat(count));
            assert!(check(&deep(30_000)).is_err(), "{open}");
            assert_eq!(check(&deep(100)), Ok(()), "{open}");
        }
    }

    #[test]
    fn length_is_no_depth() {
        for line in [
            "const a = f(b)\n",
            "a.b.c(d)\n",
            "if (a) { b() } else { c() }\nfoo()\n",
            "a = 1;",
            "x(/[`'\"(]/g, '(', \"[\", `{`);",
            "switch (a) { case 1: case 2: b() }\n",
            "class A { x() { return 1 } get y() { return 2 } }\n",
            "if (a) return /[(]/.test(b) // ((((\n",
            "function f() {}\n",
            "/* ( */ f() /* [ */\n",
            "a++\nb--\n",
        ] {
            // A level keeps every `else`, of which files have few.
            let count = if line.contains("else") { 5_000 } else { 50_000 };
            assert_eq!(check(&line.repeat(count)), Ok(()), "{line}");
        }
        let list = format!("[{}]", "{a: 1, b: [2, 3]},".repeat(50_000));
        assert_eq!(check(&list), Ok(()));
    }

    #[test]
    fn what_is_no_source_at_all_ends() {
        for text in [
            "'",
            "`",
            "`${",
            "/",
            "/*",
            "\\",
            "'\\",
            ")))",
            "}}`",
            "\u{feff}é",
            "`\\",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }
}
