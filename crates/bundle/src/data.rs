//! Conversion of evaluated values to JSON.

use crate::Json;
use crate::evaluate::Evaluator;
use crate::limits::MAX_DEPTH;
use crate::problem::ProblemCode;
use crate::value::*;

/// Converts a value to JSON. Keys without a value are left out, as in `JSON.stringify`.
///
/// # Errors
/// If the value, or a value in it, is unknown or not plain data.
pub(crate) fn to_json<'a>(evaluator: &Evaluator<'a>, placed: &Placed<'a>) -> Result<Json, Refusal> {
    convert(evaluator, placed, 0)
}

fn convert<'a>(
    evaluator: &Evaluator<'a>,
    placed: &Placed<'a>,
    depth: u32,
) -> Result<Json, Refusal> {
    let span = placed.span;
    evaluator.spend(1, span)?;
    if depth >= MAX_DEPTH {
        return Err(Refusal::new(
            ProblemCode::TooDeep,
            span,
            format!("the value nests deeper than {MAX_DEPTH}"),
            "Write the value flatter.",
        ));
    }
    Ok(match &placed.value {
        Value::Boolean(value) => Json::Boolean(*value),
        Value::Number(value) if value.is_finite() => Json::Number(*value),
        // NaN and infinity become null in JSON.
        Value::Undefined | Value::Null | Value::Number(_) => Json::Null,
        Value::Text(text) => {
            evaluator.spend(text.len() / 256, span)?;
            Json::from(&**text)
        }
        Value::Array(items) => {
            let items: Result<Vec<_>, _> = items
                .iter()
                .map(|item| convert(evaluator, item, depth + 1))
                .collect();
            Json::Array(items?)
        }
        Value::Object(object) => {
            let mut entries = Vec::with_capacity(object.entries.len());
            for entry in &object.entries {
                if let Value::Undefined = entry.value {
                    continue;
                }
                if let Value::Getter(_) = entry.value {
                    return Err(crate::evaluate::getter(entry.key_span));
                }
                let inner = Placed {
                    value: entry.value.clone(),
                    span: entry.span,
                };
                entries.push((
                    entry.key.to_string(),
                    convert(evaluator, &inner, depth + 1)?,
                ));
            }
            Json::Object(entries)
        }
        Value::Unknown(refusal) => return Err((**refusal).clone()),
        value => {
            return Err(Refusal::new(
                ProblemCode::FieldType,
                span,
                format!("{} is no plain data", value.kind()),
                "Write a text, a number, a boolean, a list or an object.",
            ));
        }
    })
}
