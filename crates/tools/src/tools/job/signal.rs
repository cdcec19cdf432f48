//! Signals as models and people write them: by number or by name. The schema asks for a number,
//! because every signal has one. Names are accepted in addition, like aliases of arguments.

use glovebox_proto::visible;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Names of common signals and their numbers (signal(7)).
const SIGNALS: [(&str, i32); 9] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
];

/// Parses `15`, `"15"`, `"TERM"` and `"SIGTERM"`.
pub(super) fn number_or_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SignalName {
        Number(i32),
        Name(String),
    }
    let Ok(given) = Option::<SignalName>::deserialize(from) else {
        return Err(D::Error::custom(
            "a signal is a number, such as 15, or a name, such as TERM",
        ));
    };
    let name = match given {
        None => return Ok(None),
        Some(SignalName::Number(number)) => return Ok(Some(number)),
        Some(SignalName::Name(name)) => name.to_ascii_uppercase(),
    };
    let short = name.strip_prefix("SIG").unwrap_or(&name);
    let known = SIGNALS.iter().find(|(known, _)| *known == short);
    let number = known.map_or_else(|| short.parse().ok(), |(_, number)| Some(*number));
    number.map(Some).ok_or_else(|| {
        let names = SIGNALS.map(|(name, _)| name).join(", ");
        D::Error::custom(format!(
            "no signal is called `{}`; known are {names}, and all numbers",
            visible::line_of_text(&name)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[derive(Debug, Deserialize)]
    struct SignalArgument {
        #[serde(default, deserialize_with = "number_or_name")]
        signal: Option<i32>,
    }

    fn take(signal: &Value) -> Result<Option<i32>, String> {
        serde_json::from_value::<SignalArgument>(json!({ "signal": signal }))
            .map(|taken| taken.signal)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_and_names_are_taken() {
        assert_eq!(
            serde_json::from_str::<SignalArgument>("{}").unwrap().signal,
            None
        );
        assert_eq!(take(&Value::Null), Ok(None));
        for given in [
            json!(15),
            json!("15"),
            json!("TERM"),
            json!("SIGTERM"),
            json!("sigterm"),
        ] {
            assert_eq!(take(&given), Ok(Some(15)), "{given}");
        }
        for given in [
            json!("SIG"),
            json!(""),
            json!("TERM "),
            json!("a\u{1b}[2Jb"),
        ] {
            let fault = take(&given).unwrap_err();
            assert!(
                fault.contains("known are HUP, INT,") && !fault.contains('\u{1b}'),
                "{fault}"
            );
        }
        for given in [json!(1.5), json!(true), json!([15]), json!(1_u64 << 40)] {
            assert!(
                take(&given).unwrap_err().contains("such as TERM"),
                "{given}"
            );
        }
    }
}
