//! Conversion of zod's schemas, of versions 3 and 4 and of `mini`.

use super::unknown_keys::{self, UnknownKeys};
use super::zod_schema::*;
use super::{Converter, Side};
use crate::json::{Json, MAX_SAFE};
use crate::limits::MAX_DEPTH;
use crate::provenance;
use crate::value::*;
use std::rc::Rc;

impl<'a> Converter<'_, 'a> {
    /// Converts a chain of calls, from the function that begins it.
    pub(super) fn zod(&mut self, made: &Rc<Made<'a>>) -> ZodSchema<'a> {
        if let Some(reference) = self.active_reference(made) {
            return reference;
        }
        if self.depth >= MAX_DEPTH {
            let json = self.too_deep(made.span);
            return ZodSchema::new(json);
        }
        if let Err(refusal) = self.evaluator.spend(1, made.span) {
            self.notes.push(refusal);
            return ZodSchema::new(Json::object());
        }
        self.depth += 1;
        // Before the conversion: an occurrence of the schema inside itself then becomes a
        // reference.
        self.active.push((Rc::as_ptr(made), None));
        let mut schema = self.chain(made);
        self.finish(&mut schema);
        if let Some((_, Some(name))) = self.active.pop() {
            self.definitions.push((name.clone(), schema.json));
            schema.json = reference(&format!("#/$defs/{name}"));
        }
        self.depth -= 1;
        schema
    }

    /// Returns a reference if a schema occurs inside itself.
    fn active_reference(&mut self, made: &Rc<Made<'a>>) -> Option<ZodSchema<'a>> {
        let count = self.definitions.len()
            + self
                .active
                .iter()
                .filter(|(_, name)| name.is_some())
                .count();
        let index = self
            .active
            .iter()
            .position(|(active, _)| *active == Rc::as_ptr(made))?;
        if index == 0 {
            return Some(ZodSchema::new(reference("#")));
        }
        let name = self.active[index]
            .1
            .get_or_insert_with(|| format!("__schema{count}"));
        Some(ZodSchema::new(reference(&format!("#/$defs/{name}"))))
    }

    fn chain(&mut self, made: &Rc<Made<'a>>) -> ZodSchema<'a> {
        let mut steps = Vec::new();
        let mut first = made.clone();
        let mut schema = loop {
            let receiver = match &first.callee {
                Callee::Import(path) => {
                    let name = provenance::zod_function(path).unwrap_or_default();
                    break self.function(&name, &first.clone());
                }
                Callee::Method(receiver, _) => receiver.clone(),
            };
            steps.push(first);
            first = receiver;
            if let Some(reference) = self.active_reference(&first) {
                break reference;
            }
        };
        for step in steps.into_iter().rev() {
            if let Err(refusal) = self.evaluator.spend(1, step.span) {
                self.notes.push(refusal);
                break;
            }
            if let Callee::Method(_, name) = &step.callee {
                schema = self.method(schema, &name.clone(), &step);
            }
        }
        schema
    }

    /// Writes the collected parts of a schema: fields of an object, patterns of a string.
    fn finish(&mut self, schema: &mut ZodSchema<'a>) {
        if let Some(made) = schema.fields.take() {
            schema.json = self.fields(&made);
        }
        let mut patterns = std::mem::take(&mut schema.patterns);
        if patterns.len() == 1 && schema.json.get("pattern").is_none() {
            schema.json.set("pattern", Json::String(patterns.remove(0)));
        } else if !patterns.is_empty() {
            if let Some(Json::String(first)) = schema.json.remove("pattern") {
                patterns.insert(0, first);
            }
            let all = patterns.into_iter().map(|pattern| {
                let mut json = Json::object();
                json.set("pattern", Json::String(pattern));
                json
            });
            schema.json.set("allOf", Json::Array(all.collect()));
        }
    }

    fn fields(&mut self, made: &Rc<Made<'a>>) -> Json {
        let mut json = Json::object();
        json.set("type", "object".into());
        let fields = match self.evaluator.shape(made, made.span) {
            Ok(fields) => fields,
            Err(refusal) => {
                self.notes.push(refusal);
                return json;
            }
        };
        let mut properties = Json::object();
        let mut required = Vec::new();
        for entry in &fields.entries {
            let value = match &entry.value {
                // zod uses a getter for a field that refers to its own schema.
                Value::Getter(closure) => self.evaluator.call(closure, Vec::new(), entry.span),
                value => value.clone(),
            };
            let field = self.inner(&Placed {
                value,
                span: entry.span,
            });
            let is_optional = match self.side {
                Side::Input => field.is_optional_in,
                Side::Output => field.is_optional_out,
            };
            if !is_optional {
                required.push(Json::from(&*entry.key));
            }
            properties.set(&entry.key, field.json);
        }
        json.set("properties", properties);
        if !required.is_empty() {
            json.set("required", Json::Array(required));
        }
        match unknown_keys::of(made) {
            UnknownKeys::Stripped if self.side == Side::Input => {}
            UnknownKeys::Stripped | UnknownKeys::Refused => {
                json.set("additionalProperties", Json::Boolean(false));
            }
            UnknownKeys::Kept => json.set("additionalProperties", Json::object()),
            UnknownKeys::Checked(schema) => {
                let inner = self.inner(&schema).json;
                json.set("additionalProperties", inner);
            }
        }
        json
    }

    /// Converts a schema inside another one.
    pub(super) fn inner(&mut self, placed: &Placed<'a>) -> ZodSchema<'a> {
        match &placed.value {
            Value::Made(made) if provenance::is_zod(&made.origin().package) => self.zod(made),
            // Chains such as `List.element` end here.
            Value::Member(made, name) if matches!(&**name, "element") => {
                let mut schema = self.zod(made);
                let items = schema.json.remove("items").unwrap_or_else(Json::object);
                ZodSchema::new(items)
            }
            Value::Unknown(refusal) => {
                self.notes.push((**refusal).clone());
                ZodSchema::new(Json::object())
            }
            _ => {
                let json = self.unrecognised(placed);
                ZodSchema::new(json)
            }
        }
    }

    fn inner_argument(&mut self, made: &Made<'a>, index: usize) -> ZodSchema<'a> {
        match made.argument(index) {
            Some(argument) => self.inner(argument),
            None => ZodSchema::new(Json::object()),
        }
    }

    fn inner_list(&mut self, placed: Option<&Placed<'a>>) -> Vec<ZodSchema<'a>> {
        match placed.map(|placed| (&placed.value, placed)) {
            Some((Value::Array(items), _)) => items.iter().map(|item| self.inner(item)).collect(),
            Some((_, placed)) => {
                self.inner(placed);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Converts a call of `z.NAME(...)`.
    fn function(&mut self, name: &str, made: &Rc<Made<'a>>) -> ZodSchema<'a> {
        let name = match name.strip_prefix("coerce.") {
            Some(name) => {
                self.not_applied(made.span, "coerce");
                name
            }
            None => name,
        };
        match name {
            "string" | "stringbool" => {
                if name == "stringbool" {
                    self.lossy(
                        made.span,
                        "`stringbool` takes a few words; every text is accepted",
                    );
                }
                ZodSchema::typed("string")
            }
            "templateLiteral" => {
                self.lossy(
                    made.span,
                    "the pattern of a template literal is not said; every text is accepted",
                );
                ZodSchema::typed("string")
            }
            "number" | "float32" | "float64" => ZodSchema::typed("number"),
            "int" | "int32" | "uint32" | "integer" => {
                let mut schema = ZodSchema::typed("integer");
                let (low, high) = match name {
                    "int32" => (f64::from(i32::MIN), f64::from(i32::MAX)),
                    "uint32" => (0.0, f64::from(u32::MAX)),
                    _ => (-MAX_SAFE, MAX_SAFE),
                };
                schema.json.set("minimum", low.into());
                schema.json.set("maximum", high.into());
                schema
            }
            "boolean" => ZodSchema::typed("boolean"),
            "null" => ZodSchema::typed("null"),
            "any" | "unknown" | "json" => ZodSchema::new(Json::object()),
            "never" | "undefined" | "void" => {
                let mut json = Json::object();
                json.set("not", Json::object());
                ZodSchema::new(json)
            }
            "bigint" | "int64" | "uint64" => {
                self.lossy(made.span, "JSON has no BigInt; whole numbers are accepted");
                ZodSchema::typed("integer")
            }
            "date" => {
                self.lossy(
                    made.span,
                    "JSON has no dates; a text in ISO 8601 is accepted",
                );
                let mut schema = ZodSchema::typed("string");
                schema.json.set("format", "date-time".into());
                schema
            }
            "literal" => self.literal(made),
            "enum" | "nativeEnum" => self.enumeration(made),
            "object" | "strictObject" | "looseObject" | "extend" | "safeExtend" | "merge"
            | "pick" | "omit" | "partial" | "required" | "catchall" => {
                let mut schema = ZodSchema::typed("object");
                schema.fields = Some(made.clone());
                schema
            }
            "array" => {
                let items = self.inner_argument(made, 0).json;
                array_of(items)
            }
            "tuple" => self.tuple(made),
            "record" | "partialRecord" | "looseRecord" => self.record(made, name),
            "union" | "discriminatedUnion" | "xor" => {
                let options = made.argument(usize::from(name == "discriminatedUnion"));
                let options = self.inner_list(options.cloned().as_ref());
                either(if name == "union" { "anyOf" } else { "oneOf" }, options)
            }
            "intersection" => {
                let left = self.inner_argument(made, 0);
                let right = self.inner_argument(made, 1);
                both(left, right)
            }
            "lazy" => {
                if let Some(Placed {
                    value: Value::Function(closure),
                    span,
                }) = made.argument(0)
                {
                    let span = *span;
                    let value = self.evaluator.call(closure, Vec::new(), span);
                    self.inner(&Placed { value, span })
                } else {
                    let json = self.unsupported(made.span, "lazy");
                    ZodSchema::new(json)
                }
            }
            "preprocess" => {
                self.lossy(made.span, "`preprocess` is not applied");
                self.inner_argument(made, 1)
            }
            "transform" => {
                self.lossy(made.span, "`transform` is not applied");
                ZodSchema::new(Json::object())
            }
            // zod/mini has functions in place of zod's methods.
            "optional" | "nullable" | "nullish" | "_default" | "default" | "prefault" | "catch"
            | "readonly" | "nonoptional" | "pipe" | "brand" | "exactOptional" => {
                let mut schema = self.inner_argument(made, 0);
                self.finish(&mut schema);
                let name = name.trim_start_matches('_');
                let rest = made.arguments.get(1..).unwrap_or_default();
                self.apply(schema, name, rest, made)
            }
            _ => {
                if let Some(schema) = self.text_format(name, made) {
                    return schema;
                }
                let json = self.unsupported(made.span, name);
                ZodSchema::new(json)
            }
        }
    }

    fn literal(&mut self, made: &Rc<Made<'a>>) -> ZodSchema<'a> {
        let values: Vec<Placed<'a>> = match made.argument(0) {
            Some(Placed {
                value: Value::Array(items),
                ..
            }) => (**items).clone(),
            Some(other) => vec![other.clone()],
            None => Vec::new(),
        };
        let mut members = Vec::new();
        for value in &values {
            if let Value::BigInt(_) | Value::Undefined = value.value {
                let json = self.unsupported(value.span, value.value.kind());
                return ZodSchema::new(json);
            }
            members.extend(self.value(value));
        }
        let mut schema = ZodSchema::new(Json::object());
        if let Some(name) = shared_type(&members) {
            schema.json.set("type", name.into());
        }
        if members.len() == 1 {
            schema.json.set("const", members.remove(0));
        } else {
            schema.json.set("enum", Json::Array(members));
        }
        schema
    }

    fn enumeration(&mut self, made: &Rc<Made<'a>>) -> ZodSchema<'a> {
        let mut members = Vec::new();
        match made.argument(0).map(|argument| (&argument.value, argument)) {
            Some((Value::Array(items), _)) => {
                for item in items.iter() {
                    members.extend(self.value(item));
                }
            }
            Some((Value::Object(object), _)) => {
                let is_back = |entry: &Entry<'a>| {
                    // Numeric enums of TypeScript also have entries from the number to the name.
                    matches!(&entry.value, Value::Text(name)
                        if object.get(name).is_some_and(|other| matches!(&other.value, Value::Number(number)
                            if number.to_string() == *entry.key)))
                };
                for entry in object.entries.iter().filter(|entry| !is_back(entry)) {
                    members.extend(self.value(&Placed {
                        value: entry.value.clone(),
                        span: entry.span,
                    }));
                }
            }
            Some((_, argument)) => {
                let argument = argument.clone();
                let json = match &argument.value {
                    Value::Unknown(refusal) => {
                        self.notes.push((**refusal).clone());
                        Json::object()
                    }
                    _ => self.unrecognised(&argument),
                };
                return ZodSchema::new(json);
            }
            None => {}
        }
        enum_of(members)
    }

    fn tuple(&mut self, made: &Rc<Made<'a>>) -> ZodSchema<'a> {
        let items = self.inner_list(made.argument(0).cloned().as_ref());
        // Only the last items may be missing.
        let is_optional = |item: &ZodSchema<'a>| match self.side {
            Side::Input => item.is_optional_in,
            Side::Output => item.is_optional_out,
        };
        let count = items.len() as f64;
        let needed = items
            .iter()
            .rposition(|item| !is_optional(item))
            .map_or(0.0, |last| (last + 1) as f64);
        let mut schema = ZodSchema::typed("array");
        schema.json.set(
            "prefixItems",
            Json::Array(items.into_iter().map(|item| item.json).collect()),
        );
        if let Some(rest) = made.argument(1)
            && let Value::Made(_) = rest.value
        {
            let rest = self.inner(&rest.clone()).json;
            schema.json.set("items", rest);
        } else {
            schema.json.set("items", Json::Boolean(false));
            schema.json.set("maxItems", count.into());
        }
        schema.json.set("minItems", needed.into());
        schema
    }

    fn record(&mut self, made: &Rc<Made<'a>>, name: &str) -> ZodSchema<'a> {
        let mut schema = ZodSchema::typed("object");
        let (key, value) = match made.arguments.as_slice() {
            [value] => (None, value.clone()),
            [key, value, ..] => (Some(key.clone()), value.clone()),
            [] => return schema,
        };
        if let Some(key) = key {
            let key = self.inner(&key).json;
            // Every key of the enum is required.
            if let (Some(Json::Array(names)), "record") = (key.get("enum"), name) {
                let names = names.iter().filter(|name| matches!(name, Json::String(_)));
                schema
                    .json
                    .set("required", Json::Array(names.cloned().collect()));
            }
            schema.json.set("propertyNames", key);
        } else {
            let mut any = Json::object();
            any.set("type", "string".into());
            schema.json.set("propertyNames", any);
        }
        let value = self.inner(&value).json;
        schema.json.set("additionalProperties", value);
        schema
    }

    fn method(
        &mut self,
        mut schema: ZodSchema<'a>,
        name: &str,
        made: &Rc<Made<'a>>,
    ) -> ZodSchema<'a> {
        let is_object = schema.fields.is_some() || schema.has_type("object");
        if is_object {
            // Fields inside would have to become optional too. Without that, less than in the
            // bundle would be accepted.
            if name == "deepPartial" {
                let json = self.unsupported(made.span, name);
                return ZodSchema::new(json);
            }
            if unknown_keys::makes_object(name) {
                let mut next = ZodSchema::typed("object");
                next.fields = Some(made.clone());
                return next;
            }
        }
        if schema.fields.is_some() {
            self.finish(&mut schema);
        }
        self.apply(schema, name, &made.arguments, made)
    }

    /// Applies a method to a schema.
    fn apply(
        &mut self,
        mut schema: ZodSchema<'a>,
        name: &str,
        arguments: &[Placed<'a>],
        made: &Rc<Made<'a>>,
    ) -> ZodSchema<'a> {
        let first = arguments.first();
        match name {
            "optional" | "exactOptional" => {
                self.finish(&mut schema);
                schema.is_optional_in = true;
                schema.is_optional_out = true;
            }
            "nonoptional" => {
                schema.is_optional_in = false;
                schema.is_optional_out = false;
            }
            "nullable" | "nullish" => {
                self.finish(&mut schema);
                let (is_in, is_out) = (schema.is_optional_in, schema.is_optional_out);
                let null = ZodSchema::typed("null");
                if schema.json != null.json {
                    schema = either("anyOf", vec![schema, null]);
                }
                schema.is_optional_in = is_in || name == "nullish";
                schema.is_optional_out = is_out || name == "nullish";
            }
            "default" | "prefault" | "catch" => {
                self.finish(&mut schema);
                schema.is_optional_in = true;
                if name == "catch" {
                    self.not_applied(made.span, name);
                } else {
                    schema.is_optional_out = false;
                }
                match first {
                    Some(Placed {
                        value: Value::Function(_) | Value::Unknown(_),
                        span,
                    }) => self.lossy(
                        *span,
                        format!("the value of `{name}` is only known when the bundle runs; it is left out"),
                    ),
                    Some(value) if name != "prefault" || self.side == Side::Input => {
                        if let Some(value) = self.value(&value.clone()) {
                            schema.json.set("default", value);
                        }
                    }
                    _ => {}
                }
            }
            "readonly" => {
                self.finish(&mut schema);
                schema.json.set("readOnly", Json::Boolean(true));
            }
            "array" => {
                self.finish(&mut schema);
                return array_of(schema.json);
            }
            "or" | "and" => {
                self.finish(&mut schema);
                let other = self.inner_argument(made, 0);
                return if name == "or" {
                    either("anyOf", vec![schema, other])
                } else {
                    both(schema, other)
                };
            }
            "describe" => {
                self.finish(&mut schema);
                match first.map(|first| &first.value) {
                    Some(Value::Text(text)) => schema.json.set("description", Json::from(&**text)),
                    Some(Value::Unknown(refusal)) => self.notes.push((**refusal).clone()),
                    _ => {}
                }
            }
            "meta" => {
                self.finish(&mut schema);
                if let Some(first) = first
                    && let Some(Json::Object(entries)) = self.value(&first.clone())
                {
                    for (key, value) in entries {
                        if key != "id" {
                            schema.json.set(&key, value);
                        }
                    }
                }
            }
            "pipe" => {
                self.finish(&mut schema);
                if self.side == Side::Output
                    && let Some(next) = first
                {
                    return self.inner(&next.clone());
                }
                self.lossy(made.span, "`pipe` is not applied");
            }
            "transform" => {
                self.finish(&mut schema);
                self.lossy(made.span, "`transform` is not applied");
                if self.side == Side::Output {
                    return ZodSchema::new(Json::object());
                }
            }
            "refine" | "superRefine" | "refinement" => {
                self.lossy(
                    made.span,
                    format!(
                        "`{name}` is code and not applied; more is accepted than in the bundle"
                    ),
                );
            }
            "exclude" | "extract" => {
                if let Some(Json::Array(members)) = schema.json.get("enum").cloned()
                    && let Some(Json::Array(named)) =
                        first.and_then(|first| self.value(&first.clone()))
                {
                    let left = members
                        .into_iter()
                        .filter(|member| named.contains(member) == (name == "extract"));
                    return enum_of(left.collect());
                }
            }
            "unwrap" | "innerType" | "removeDefault" => {
                schema.is_optional_in = false;
                schema.is_optional_out = false;
                schema.json.remove("default");
                if let Some(Json::Array(options)) = schema.json.get("anyOf").cloned()
                    && let Some(inner) = options.into_iter().next()
                {
                    schema.json = inner;
                }
            }
            "keyof" => {
                let names = match schema.json.get("properties") {
                    Some(Json::Object(entries)) => entries
                        .iter()
                        .map(|(key, _)| Json::from(key.as_str()))
                        .collect(),
                    _ => Vec::new(),
                };
                return enum_of(names);
            }
            "check" | "with" => {
                for argument in arguments {
                    self.mini_check(&mut schema, argument);
                }
            }
            "brand" | "register" | "clone" | "$type" => {}
            _ => self.check(&mut schema, name, arguments, made.span),
        }
        schema
    }
}
