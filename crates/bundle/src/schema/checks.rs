//! Bounds and formats of zod's strings, numbers and arrays.

use super::Converter;
use super::zod_schema::ZodSchema;
use crate::json::{Json, MAX_SAFE};
use crate::provenance;
use crate::value::*;
use oxc_span::Span;

/// Formats of strings: name in zod, and name in JSON Schema (empty if there is none).
const FORMATS: [(&str, &str); 36] = [
    ("email", "email"),
    ("url", "uri"),
    ("httpUrl", "uri"),
    ("uuid", "uuid"),
    ("uuidv4", "uuid"),
    ("uuidv6", "uuid"),
    ("uuidv7", "uuid"),
    ("guid", "uuid"),
    ("emoji", "emoji"),
    ("nanoid", "nanoid"),
    ("cuid", "cuid"),
    ("cuid2", "cuid2"),
    ("ulid", "ulid"),
    ("xid", "xid"),
    ("ksuid", "ksuid"),
    ("ipv4", "ipv4"),
    ("ipv6", "ipv6"),
    ("mac", "mac"),
    ("cidrv4", "cidrv4"),
    ("cidrv6", "cidrv6"),
    ("base64", "base64"),
    ("base64url", "base64url"),
    ("e164", "e164"),
    ("jwt", "jwt"),
    ("hostname", "hostname"),
    ("hex", "hex"),
    ("datetime", "date-time"),
    ("date", "date"),
    ("time", "time"),
    ("duration", "duration"),
    ("iso.datetime", "date-time"),
    ("iso.date", "date"),
    ("iso.time", "time"),
    ("iso.duration", "duration"),
    ("ip", ""),
    ("cidr", ""),
];

/// Pattern of zod's times of day, in which seconds and their fraction are optional.
const TIME: &str = r"^(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?$";

impl<'a> Converter<'_, 'a> {
    /// Converts `z.email()` and similar functions of zod 4, which make a string with a format.
    pub(super) fn text_format(&mut self, name: &str, made: &Made<'a>) -> Option<ZodSchema<'a>> {
        let (_, format) = FORMATS.iter().find(|(known, _)| *known == name)?;
        let mut json = Json::object();
        json.set("type", "string".into());
        let mut schema = ZodSchema::new(json);
        self.set_format(&mut schema, format, &made.arguments, made.span);
        Some(schema)
    }

    fn set_format(
        &mut self,
        schema: &mut ZodSchema<'a>,
        format: &str,
        arguments: &[Placed<'a>],
        span: Span,
    ) {
        if format == "time" {
            // A time in zod has no offset, which the format of JSON Schema requires.
            match arguments.first().map(|argument| &argument.value) {
                None | Some(Value::Text(_)) => schema.patterns.push(TIME.to_owned()),
                Some(_) => self.lossy(span, "the precision of a time is not said in JSON Schema"),
            }
            return;
        }
        if format.is_empty() {
            self.lossy(
                span,
                "the format has no name in JSON Schema; every text is accepted",
            );
            return;
        }
        self.lossy(
            span,
            format!(
                "the format `{format}` is told to the model and not checked; every text is accepted"
            ),
        );
        schema.json.set("format", format.into());
        if matches!(format, "base64" | "base64url") {
            schema.json.set("contentEncoding", format.into());
        }
    }

    /// Applies `.check(z.minLength(1), ...)` of zod/mini.
    pub(super) fn mini_check(&mut self, schema: &mut ZodSchema<'a>, check: &Placed<'a>) {
        match &check.value {
            Value::Made(made) if provenance::is_zod(&made.origin().package) => {
                if let Callee::Import(path) = &made.callee {
                    let name = provenance::zod_function(path).unwrap_or_default();
                    let made = made.clone();
                    match (name.as_str(), made.argument(0)) {
                        ("describe", Some(text)) => {
                            if let Some(text) = self.text(Some(text)) {
                                schema.json.set("description", Json::from(&*text));
                            }
                        }
                        ("meta", Some(meta)) => {
                            if let Some(Json::Object(entries)) = self.value(meta) {
                                for (key, value) in entries {
                                    schema.json.set(&key, value);
                                }
                            }
                        }
                        (name, _) => self.check(schema, name, &made.arguments, made.span),
                    }
                }
            }
            _ => self.lossy(
                check.span,
                "`check` is code and not applied; more is accepted than in the bundle",
            ),
        }
    }

    /// Applies a bound or a format.
    pub(super) fn check(
        &mut self,
        schema: &mut ZodSchema<'a>,
        name: &str,
        arguments: &[Placed<'a>],
        span: Span,
    ) {
        if schema.has_type("number") || schema.has_type("integer") {
            self.number_check(schema, name, arguments, span);
        } else if schema.has_type("array") {
            self.size_check(schema, name, arguments, span, ("minItems", "maxItems"));
        } else if schema.has_type("string") {
            self.text_check(schema, name, arguments, span);
        } else {
            self.lossy(
                span,
                format!("`{name}` is not known for this type and left out"),
            );
        }
    }

    fn number_check(
        &mut self,
        schema: &mut ZodSchema<'a>,
        name: &str,
        arguments: &[Placed<'a>],
        span: Span,
    ) {
        let first = arguments.first();
        let (word, bound) = match name {
            "min" | "gte" | "minimum" => ("minimum", self.number(first, span)),
            "max" | "lte" | "maximum" => ("maximum", self.number(first, span)),
            "gt" => ("exclusiveMinimum", self.number(first, span)),
            "lt" => ("exclusiveMaximum", self.number(first, span)),
            "positive" => ("exclusiveMinimum", Some(0.0)),
            "negative" => ("exclusiveMaximum", Some(0.0)),
            "nonnegative" => ("minimum", Some(0.0)),
            "nonpositive" => ("maximum", Some(0.0)),
            "multipleOf" | "step" => {
                if let Some(step) = self.number(first, span) {
                    schema.json.set("multipleOf", step.into());
                }
                return;
            }
            "int" | "safe" => {
                schema.json.set("type", "integer".into());
                tighten(&mut schema.json, "minimum", -MAX_SAFE);
                tighten(&mut schema.json, "maximum", MAX_SAFE);
                return;
            }
            "finite" => return,
            _ => {
                self.lossy(
                    span,
                    format!("`{name}` is not known for numbers and left out"),
                );
                return;
            }
        };
        if let Some(bound) = bound {
            tighten(&mut schema.json, word, bound);
        }
    }

    fn size_check(
        &mut self,
        schema: &mut ZodSchema<'a>,
        name: &str,
        arguments: &[Placed<'a>],
        span: Span,
        (low, high): (&str, &str),
    ) {
        let first = arguments.first();
        match name {
            "min" | "minLength" | "minSize" => {
                if let Some(bound) = self.number(first, span) {
                    tighten(&mut schema.json, low, bound);
                }
            }
            "max" | "maxLength" | "maxSize" => {
                if let Some(bound) = self.number(first, span) {
                    tighten(&mut schema.json, high, bound);
                }
            }
            "length" | "size" => {
                if let Some(bound) = self.number(first, span) {
                    schema.json.set(low, bound.into());
                    schema.json.set(high, bound.into());
                }
            }
            "nonempty" => tighten(&mut schema.json, low, 1.0),
            "rest" => {
                if let Some(first) = first {
                    let rest = self.inner(&first.clone()).json;
                    schema.json.set("items", rest);
                    schema.json.remove("maxItems");
                }
            }
            _ => self.lossy(
                span,
                format!("`{name}` is not known for this type and left out"),
            ),
        }
    }

    fn text_check(
        &mut self,
        schema: &mut ZodSchema<'a>,
        name: &str,
        arguments: &[Placed<'a>],
        span: Span,
    ) {
        let first = arguments.first();
        match name {
            "regex" => match first.map(|first| &first.value) {
                Some(Value::Regex(regex)) => {
                    if regex.flags.contains('i') || regex.flags.contains('s') {
                        self.lossy(span, "flags of a pattern are not said in JSON Schema");
                    }
                    schema.patterns.push(regex.pattern.clone());
                }
                Some(Value::Unknown(refusal)) => self.notes.push((**refusal).clone()),
                _ => self.lossy(span, "the pattern is not known and left out"),
            },
            "startsWith" | "endsWith" | "includes" => {
                if let Some(text) = self.text(first) {
                    let text = escape(&text);
                    schema.patterns.push(match name {
                        "startsWith" => format!("^{text}.*"),
                        "endsWith" => format!(".*{text}$"),
                        _ => text,
                    });
                }
            }
            "lowercase" => schema.patterns.push("^[^A-Z]*$".to_owned()),
            "uppercase" => schema.patterns.push("^[^a-z]*$".to_owned()),
            "trim" | "toLowerCase" | "toUpperCase" | "normalize" | "slugify" | "overwrite" => {
                self.not_applied(span, name);
            }
            "min" | "max" | "length" | "minLength" | "maxLength" | "nonempty" => {
                self.size_check(schema, name, arguments, span, ("minLength", "maxLength"));
            }
            _ => match FORMATS.iter().find(|(known, _)| *known == name) {
                Some((_, format)) => self.set_format(schema, format, arguments, span),
                None => self.lossy(
                    span,
                    format!("`{name}` is not known for texts and left out"),
                ),
            },
        }
    }
}

/// Sets a bound unless a narrower one exists. Keeps either the inclusive or the exclusive bound of
/// each end, as zod does.
fn tighten(json: &mut Json, word: &str, bound: f64) {
    let number = |json: &Json, word: &str| match json.get(word) {
        Some(Json::Number(number)) => Some(*number),
        _ => None,
    };
    let is_low = word.starts_with("min") || word == "exclusiveMinimum";
    let is_narrower = |new: f64, old: f64| if is_low { new > old } else { new < old };
    if number(json, word).is_none_or(|old| is_narrower(bound, old)) {
        json.set(word, bound.into());
    }
    let (plain, exclusive) = if is_low {
        ("minimum", "exclusiveMinimum")
    } else {
        ("maximum", "exclusiveMaximum")
    };
    if let (Some(closed), Some(open)) = (number(json, plain), number(json, exclusive)) {
        if is_narrower(closed, open) {
            json.remove(exclusive);
        } else {
            json.remove(plain);
        }
    }
}

/// Escapes text for a pattern.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if r".*+?^${}()|[]\/".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrower_bound_stays() {
        let mut json = Json::object();
        tighten(&mut json, "minimum", -MAX_SAFE);
        tighten(&mut json, "exclusiveMinimum", 0.0);
        assert_eq!(json.get("minimum"), None);
        tighten(&mut json, "minimum", 3.0);
        assert_eq!(json.get("exclusiveMinimum"), None);
        tighten(&mut json, "minimum", 1.0);
        assert_eq!(json.get("minimum"), Some(&Json::Number(3.0)));
    }
}
