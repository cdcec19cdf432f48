//! Template literals and their tags, and the limit on the length of texts.

use super::Evaluator;
use crate::limits::MAX_TEXT_BYTES;
use crate::problem::ProblemCode;
use crate::text;
use crate::value::*;
use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};
use std::rc::Rc;

impl<'a> Evaluator<'a> {
    /// Checks the length of an evaluated text.
    pub(super) fn made_text(&self, text: String, span: Span) -> Result<String, Refusal> {
        self.spend(text.len() / 256, span)?;
        if text.len() > MAX_TEXT_BYTES {
            return Err(Refusal::new(
                ProblemCode::TooLarge,
                span,
                format!("the text is longer than {MAX_TEXT_BYTES} bytes"),
                "Shorten it.",
            ));
        }
        Ok(text)
    }

    pub(super) fn template(
        &self,
        node: &'a TemplateLiteral<'a>,
        frame: &Rc<Frame<'a>>,
        is_raw: bool,
    ) -> Result<String, Refusal> {
        let mut made = String::new();
        for (index, quasi) in node.quasis.iter().enumerate() {
            if quasi.lone_surrogates {
                return Err(lone_surrogate(quasi.span));
            }
            match quasi.value.cooked {
                Some(cooked) if !is_raw => made.push_str(&cooked),
                _ => made.push_str(&quasi.value.raw),
            }
            let Some(expression) = node.expressions.get(index) else {
                continue;
            };
            let value = self.known(expression, frame)?;
            let Some(part) = text::of_value(&value) else {
                return Err(Refusal::new(
                    ProblemCode::DynamicValue,
                    expression.span(),
                    format!("{} cannot be put into a text here", value.kind()),
                    "Put a text or a number there.",
                ));
            };
            made.push_str(&part);
            made = self.made_text(made, node.span)?;
        }
        Ok(made)
    }

    pub(super) fn tagged_template(
        &self,
        node: &'a TaggedTemplateExpression<'a>,
        frame: &Rc<Frame<'a>>,
    ) -> Result<Value<'a>, Refusal> {
        if self.is_global_member(&node.tag, "String", "raw") {
            let made = self.template(&node.quasi, frame, true)?;
            return Ok(Value::Text(made.into()));
        }
        match self.known(&node.tag, frame)? {
            Value::Import(path) if crate::provenance::is_dedent(&path) => {
                let made = self.template(&node.quasi, frame, false)?;
                Ok(Value::Text(text::dedent(&made).into()))
            }
            _ => Err(self.dynamic(node.span)),
        }
    }
}

pub(super) fn lone_surrogate(span: Span) -> Refusal {
    Refusal::new(
        ProblemCode::DynamicValue,
        span,
        "the text has one half of a surrogate pair, which is no character",
        "Write the whole character.",
    )
}
