//! Scripts for the shell in the container, and answers of `check.sh`.

use glovebox_carrier::show_message;
use glovebox_sandbox::backend;

/// Shell functions of `check.sh`, such as `check` and `install_guest`.
const FUNCTIONS: &str = include_str!("check.sh");

/// Quotes one word for a POSIX shell.
pub(crate) fn quote(word: &str) -> String {
    String::from_utf8_lossy(&backend::quote(word.as_bytes())).into_owned()
}

/// Returns a script that sets `values` and calls `call` of `check.sh`.
pub(crate) fn check_script(values: &[(&str, &str)], call: &str) -> String {
    let values: Vec<(&str, &[u8])> = values
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    let script = backend::shell_script(&values, FUNCTIONS);
    format!("{}{call}\n", String::from_utf8_lossy(&script))
}

/// Suffixes of variables whose values are secrets. The service's own key has such a name, and
/// commands of the guest do not need it.
const SECRET_ENDS: [&str; 6] = [
    "_KEY",
    "_TOKEN",
    "_SECRET",
    "_PASSWORD",
    "_CREDENTIALS",
    "_PASSWD",
];

/// Returns a bash script that starts the guest with the environment of the container, without
/// secrets.
pub(crate) fn start_script(program: &str, run_dir: &str, cwd: Option<&str>) -> String {
    let ends: Vec<String> = SECRET_ENDS.iter().map(|end| format!("*{end}")).collect();
    let enter = cwd.map_or_else(String::new, |dir| format!("cd -- {} || exit\n", quote(dir)));
    // If the names cannot be listed, the guest must not start: it would inherit the secrets.
    format!(
        "shopt -s nocasematch && names=$(compgen -e) || exit\n\
         for name in $names; do case $name in {}) unset \"$name\" || exit ;; esac; done\n\
         {enter}exec {} serve --resume {} --lines",
        ends.join("|"),
        quote(program),
        quote(run_dir)
    )
}

/// Answers of a script, in their order.
// TRUST: any process in the container may have written each line; the nonce only tells answers from
// noise.
#[derive(Debug)]
pub(crate) struct Answers<'a> {
    output: &'a str,
    marker: String,
}

impl<'a> Answers<'a> {
    pub(crate) fn new(output: &'a str, nonce: &str) -> Self {
        let marker = format!("GLOVEBOX-{nonce} ");
        Self { output, marker }
    }

    /// Returns the detail of the last answer with this word. None if there is none.
    pub(crate) fn last(&self, word: &str) -> Option<&'a str> {
        self.output.lines().rev().find_map(|line| {
            let answer = line.strip_prefix(self.marker.as_str())?;
            let (found, detail) = answer.split_once(' ').unwrap_or((answer, ""));
            (found == word).then_some(detail)
        })
    }

    /// Returns the details of all answers with this word, in their order.
    pub(crate) fn all(&self, word: &str) -> impl Iterator<Item = &'a str> {
        self.output.lines().filter_map(move |line| {
            let answer = line.strip_prefix(self.marker.as_str())?;
            answer.strip_prefix(word)?.strip_prefix(' ')
        })
    }

    /// Returns the reason why the script failed: a word and its detail, escaped. None if it did not
    /// fail.
    pub(crate) fn failure(&self) -> Option<(String, String)> {
        let failure = self.last("fail")?;
        let (word, detail) = failure.split_once(' ').unwrap_or((failure, ""));
        Some((
            show_message(word.as_bytes()),
            show_message(detail.as_bytes()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn script_parses_in_a_plain_shell() {
        let script = check_script(&[("n", "it's")], "check");
        assert!(!script.contains("# "), "{script}");
        let output = Command::new("sh")
            .args(["-n", "-c", &script])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    #[test]
    fn answers_are_told_from_noise_by_the_nonce() {
        let output =
            "GLOVEBOX-1 dir /forged\nbanner\nGLOVEBOX-2 dir /a b\nGLOVEBOX-2 fail arch \x1bx\n";
        let answers = Answers::new(output, "2");
        assert_eq!(answers.last("dir"), Some("/a b"));
        assert_eq!(answers.failure().unwrap().1, "\\x1bx");
        assert!(Answers::new("GLOVEBOX-2 dir", "3").last("dir").is_none());
    }
}
