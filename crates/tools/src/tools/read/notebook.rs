//! Jupyter notebook as text: its cells with their sources and outputs.
//!
//! TRUST: a notebook is any JSON from the sandbox. A file that does not look like a notebook gives
//! `None`.

use serde_json::Value;
use std::fmt::Write as _;

/// Maximum number of bytes shown of one output.
const OUTPUT_BYTES: usize = 4000;

/// Renders a notebook. `None` if `bytes` are not one.
pub(super) fn render(bytes: &[u8]) -> Option<String> {
    let notebook: Value = serde_json::from_slice(bytes).ok()?;
    let cells = notebook.get("cells")?.as_array()?;
    let mut text = String::new();
    for (index, cell) in cells.iter().enumerate() {
        let kind = cell
            .get("cell_type")
            .and_then(Value::as_str)
            .unwrap_or("cell");
        let _ = writeln!(text, "# --- cell {} ({kind}) ---", index + 1);
        push_lines(&mut text, &joined(cell.get("source")));
        for output in cell
            .get("outputs")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            push_output(&mut text, output);
        }
    }
    Some(text)
}

fn push_output(text: &mut String, output: &Value) {
    let data = output.get("data");
    let plain = data.and_then(|data| data.get("text/plain"));
    let mut shown = if let Some(name) = output.get("ename").and_then(Value::as_str) {
        let value = output
            .get("evalue")
            .and_then(Value::as_str)
            .unwrap_or_default();
        format!("{name}: {value}")
    } else {
        joined(output.get("text").or(plain))
    };
    for kind in data
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(serde_json::Map::keys)
    {
        if kind.starts_with("image/") {
            let _ = write!(shown, "\n[{kind} left out]");
        }
    }
    if shown.len() > OUTPUT_BYTES {
        let at = crate::cut::floor(shown.as_bytes(), OUTPUT_BYTES);
        let left_out = shown.len() - at;
        shown.truncate(at);
        let _ = write!(shown, "\n[... {left_out} bytes of output left out ...]");
    }
    text.push_str("# output:\n");
    push_lines(text, &shown);
}

fn push_lines(text: &mut String, lines: &str) {
    text.push_str(lines);
    if !lines.is_empty() && !lines.ends_with('\n') {
        text.push('\n');
    }
}

/// Returns a text of the notebook format, which is a string or a list of strings.
fn joined(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_outputs_are_shown() {
        let notebook = br#"{"cells":[{"cell_type":"markdown","source":["a\n","b"]},
            {"cell_type":"code","source":"1+1","outputs":[{"data":{"text/plain":["2"],"image/png":"x"}},
            {"ename":"E","evalue":"bad"},{"text":["out\n"]}]}]}"#;
        assert_eq!(
            render(notebook).unwrap(),
            "# --- cell 1 (markdown) ---\na\nb\n# --- cell 2 (code) ---\n1+1\n# output:\n2\n[image/png left \
             out]\n# output:\nE: bad\n# output:\nout\n"
        );
        assert_eq!(render(b"{}"), None);
        assert_eq!(render(b"[1"), None);
    }
}
