//! Native functions for the JavaScript code around a tool. Each is safe to call with any arguments:
//! a tool that obtains one gains no further abilities. Binary data is text with one character for
//! each byte.

use super::fetches::{Fetches, ToolRequest};
use super::machine::Clock;
use super::output::Output;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};
use glovebox_js::tool_call::{FixedSources, LogLevel, MAX_RESULT_DEPTH, SERIALIZER, TOOL_CALL};
use glovebox_js::tool_fetch::RedirectMode;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Exception, Function, IntoJs as _, Object, Result, TypedArray, Value};
use sha2::Digest as _;
use std::cell::Cell;
use std::rc::Rc;
use url::Url;

/// Name of the code around a tool in stack traces.
pub(super) const OWN_FILE: &str = "<glovebox>";
/// Maximum number of random bytes for each call.
const MAX_RANDOM_BYTES: u32 = 65_536;

/// Parts of the JavaScript code around a tool, by name.
const PARTS: [(&str, &str); 10] = [
    ("abort", include_str!("modules/abort.js")),
    ("buffer", include_str!("modules/buffer.js")),
    ("call", TOOL_CALL),
    ("clone", include_str!("modules/clone.js")),
    ("crypto", include_str!("modules/crypto.js")),
    ("fetch", include_str!("modules/fetch.js")),
    ("serialize", SERIALIZER),
    ("text", include_str!("modules/text.js")),
    ("url", include_str!("modules/url.js")),
    ("util", include_str!("modules/util.js")),
];

/// Evaluates a part of the code around a tool.
pub(super) fn evaluate<'js>(ctx: &Ctx<'js>, source: &str) -> Result<Function<'js>> {
    let mut options = EvalOptions::default();
    options.filename = Some(OWN_FILE.to_owned());
    ctx.eval_with_options(source, options)
}

/// Returns an object with all native functions.
pub(super) fn object<'js>(
    ctx: &Ctx<'js>,
    output: &Output,
    clock: &Rc<Clock>,
    fetches: &Rc<Fetches>,
    fixed: Option<FixedSources>,
) -> Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    host.set("maxDepth", MAX_RESULT_DEPTH)?;
    let out = output.clone();
    host.set(
        "emit",
        Function::new(ctx.clone(), move |piece: String| out.emit(&piece))?,
    )?;
    let out = output.clone();
    host.set(
        "hasLogRoom",
        Function::new(ctx.clone(), move || out.has_log_room())?,
    )?;
    let out = output.clone();
    host.set(
        "log",
        Function::new(ctx.clone(), move |level: String, text: String| {
            let level = match level.as_str() {
                "debug" => LogLevel::Debug,
                "warn" => LogLevel::Warn,
                "error" => LogLevel::Error,
                _ => LogLevel::Info,
            };
            out.log(level, &text);
        })?,
    )?;
    let timers = Rc::clone(clock);
    host.set(
        "timer",
        Function::new(ctx.clone(), move |ctx: Ctx<'_>, ms: f64| {
            timers
                .start(ms)
                .ok_or_else(|| Exception::throw_range(&ctx, "E_LIMIT: there are too many timers"))
        })?,
    )?;
    let timers = Rc::clone(clock);
    host.set(
        "forget",
        Function::new(ctx.clone(), move |id: u32| timers.forget(id))?,
    )?;
    host.set(
        "load",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, name: String| {
            let (_, source) = PARTS
                .iter()
                .find(|(part, _)| *part == name)
                .ok_or_else(|| Exception::throw_message(&ctx, "no such part"))?;
            evaluate(&ctx, source)
        })?,
    )?;
    sources(ctx, &host, fixed)?;
    texts(ctx, &host)?;
    network(ctx, &host, fetches)?;
    host.set(
        "digest",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'_>, algorithm: String, key: Option<String>, data: String| {
                digest(&ctx, &algorithm, key.as_deref(), &data)
            },
        )?,
    )?;
    host.set(
        "parseUrl",
        Function::new(ctx.clone(), |input: String, base: Option<String>| {
            let base = base.map(|base| Url::parse(&base)).transpose().ok()?;
            let options = Url::options().base_url(base.as_ref());
            options.parse(&input).ok().map(|url| url_parts(&url))
        })?,
    )?;
    host.set(
        "setUrl",
        Function::new(ctx.clone(), |href: String, part: String, value: String| {
            set_url(&href, &part, &value)
        })?,
    )?;
    Ok(host)
}

/// Adds the functions for requests that the host makes.
fn network<'js>(ctx: &Ctx<'js>, host: &Object<'js>, fetches: &Rc<Fetches>) -> Result<()> {
    host.set("canFetch", fetches.is_granted())?;
    let own = Rc::clone(fetches);
    host.set(
        "fetch",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>,
                  method: String,
                  url: String,
                  // Names and values alternate.
                  headers: Vec<String>,
                  body: String,
                  redirect: String| {
                let wanted = ToolRequest {
                    method,
                    url,
                    headers: headers
                        .chunks_exact(2)
                        .map(|pair| (pair[0].clone(), pair[1].clone()))
                        .collect(),
                    body: general_purpose::STANDARD.encode(bytes_of(&body)),
                    redirect: match redirect.as_str() {
                        "error" => RedirectMode::Error,
                        "manual" => RedirectMode::Manual,
                        _ => RedirectMode::Follow,
                    },
                };
                // JavaScript gets the number of the request, or the reason of the refusal as text.
                match own.begin(wanted) {
                    Ok(id) => id.into_js(&ctx),
                    Err(reason) => reason.into_js(&ctx),
                }
            },
        )?,
    )?;
    let own = Rc::clone(fetches);
    host.set(
        "abortFetch",
        Function::new(ctx.clone(), move |id: u32| own.abort(id))?,
    )
}

/// Adds the functions for time and random numbers.
fn sources<'js>(ctx: &Ctx<'js>, host: &Object<'js>, fixed: Option<FixedSources>) -> Result<()> {
    let now = fixed.map(|fixed| fixed.now_ms as f64);
    host.set(
        "now",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| match now {
            Some(now) => Value::new_number(ctx, now),
            None => Value::new_undefined(ctx),
        })?,
    )?;
    let random = Rc::new(Random {
        state: fixed.map(|fixed| Cell::new(fixed.seed)),
    });
    let numbers = Rc::clone(&random);
    host.set(
        "random",
        Function::new(ctx.clone(), move || numbers.fraction())?,
    )?;
    host.set(
        "randomBytes",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, size: u32| {
            let bytes = random.bytes(size.min(MAX_RANDOM_BYTES) as usize);
            bytes
                .ok_or_else(|| Exception::throw_message(&ctx, "the kernel gives no random numbers"))
                .and_then(|bytes| TypedArray::new_copy(ctx.clone(), bytes))
        })?,
    )
}

/// Random numbers of the kernel, or a sequence that a seed determines.
struct Random {
    state: Option<Cell<u64>>,
}

impl Random {
    /// Returns the next number of the sequence (SplitMix64).
    fn next(state: &Cell<u64>) -> u64 {
        state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut mixed = state.get();
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a fraction in [0, 1) of the sequence. Without a seed it returns 0, because the
    /// engine's own generator is used then.
    fn fraction(&self) -> f64 {
        self.state.as_ref().map_or(0.0, |state| {
            (Self::next(state) >> 11) as f64 / (1_u64 << 53) as f64
        })
    }

    fn bytes(&self, size: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; size];
        if let Some(state) = &self.state {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&Self::next(state).to_le_bytes()[..chunk.len()]);
            }
            return Some(bytes);
        }
        let mut filled = 0;
        while filled < size {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags).ok()?;
        }
        Some(bytes)
    }
}

/// Adds the functions that convert between text and bytes.
fn texts<'js>(ctx: &Ctx<'js>, host: &Object<'js>) -> Result<()> {
    host.set(
        "encode",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'js>, text: String, encoding: String| {
                TypedArray::new_copy(ctx.clone(), encode(&text, &encoding))
            },
        )?,
    )?;
    host.set(
        "text",
        Function::new(ctx.clone(), |binary: String, encoding: String| {
            text_of(&bytes_of(&binary), &encoding)
        })?,
    )?;
    host.set(
        "decode",
        Function::new(
            ctx.clone(),
            |binary: String, encoding: String, is_fatal: bool| {
                let bytes = bytes_of(&binary);
                if is_fatal && encoding == "utf-8" {
                    return String::from_utf8(bytes).ok();
                }
                Some(match encoding.as_str() {
                    "utf-16le" => text_of(&bytes, "utf16le"),
                    "utf-8" => text_of(&bytes, "utf8"),
                    _ => binary,
                })
            },
        )?,
    )?;
    host.set(
        "wholeCharacters",
        Function::new(ctx.clone(), |binary: String, encoding: String| {
            let bytes = bytes_of(&binary);
            match encoding.as_str() {
                "utf-16le" => bytes.len() / 2 * 2,
                "utf-8" => match std::str::from_utf8(&bytes) {
                    Err(error) if error.error_len().is_none() => error.valid_up_to(),
                    _ => bytes.len(),
                },
                _ => bytes.len(),
            }
        })?,
    )?;
    host.set(
        "unescapeForm",
        Function::new(ctx.clone(), |text: String| {
            let pair = format!("x={text}");
            url::form_urlencoded::parse(pair.as_bytes())
                .next()
                .map(|(_, value)| value.into_owned())
                .unwrap_or_default()
        })?,
    )
}

/// Returns the bytes of a text with one character for each byte.
fn bytes_of(binary: &str) -> Vec<u8> {
    binary.chars().map(|character| character as u8).collect()
}

fn binary_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Decodes base64 like Node: both alphabets, padding optional, up to the first `=`. Other
/// characters are skipped.
fn decode_base64(text: &str) -> Vec<u8> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let mut clean: Vec<u8> = text
        .bytes()
        .take_while(|byte| *byte != b'=')
        .filter_map(|byte| match byte {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => Some(byte),
            _ => None,
        })
        .collect();
    if clean.len() % 4 == 1 {
        clean.pop();
    }
    LENIENT.decode(clean).unwrap_or_default()
}

fn encode(text: &str, encoding: &str) -> Vec<u8> {
    match encoding {
        "hex" => {
            let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
            text.as_bytes()
                .chunks_exact(2)
                .map_while(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
                .collect()
        }
        "base64" | "base64url" => decode_base64(text),
        "latin1" => text.encode_utf16().map(|unit| unit as u8).collect(),
        "utf16le" => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        _ => text.as_bytes().to_vec(),
    }
}

fn text_of(bytes: &[u8], encoding: &str) -> String {
    match encoding {
        "hex" => {
            use std::fmt::Write as _;
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        }
        "base64" => general_purpose::STANDARD.encode(bytes),
        "base64url" => general_purpose::URL_SAFE_NO_PAD.encode(bytes),
        "latin1" => binary_of(bytes),
        "utf16le" => {
            let units = bytes
                .chunks_exact(2)
                .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            char::decode_utf16(units)
                .map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Returns the digest of data, or its HMAC if there is a key.
fn digest(ctx: &Ctx<'_>, algorithm: &str, key: Option<&str>, data: &str) -> Result<String> {
    let data = bytes_of(data);
    let key = key.map(bytes_of);
    macro_rules! with {
        ($kind:ty) => {
            match key {
                None => <$kind>::digest(&data).to_vec(),
                Some(key) => match Hmac::<$kind>::new_from_slice(&key) {
                    Ok(mut mac) => {
                        mac.update(&data);
                        mac.finalize().into_bytes().to_vec()
                    }
                    Err(error) => return Err(Exception::throw_message(ctx, &error.to_string())),
                },
            }
        };
    }
    let result = match algorithm {
        "md5" => with!(md5::Md5),
        "sha1" => with!(sha1::Sha1),
        "sha256" => with!(sha2::Sha256),
        "sha384" => with!(sha2::Sha384),
        "sha512" => with!(sha2::Sha512),
        _ => return Err(Exception::throw_message(ctx, "no such digest")),
    };
    Ok(binary_of(&result))
}

/// Returns `href`, `origin`, `protocol`, `username`, `password`, `host`, `hostname`, `port`,
/// `pathname`, `search`, `hash`.
fn url_parts(url: &Url) -> Vec<String> {
    use url::quirks::*;
    vec![
        href(url).to_owned(),
        origin(url),
        protocol(url).to_owned(),
        username(url).to_owned(),
        password(url).to_owned(),
        host(url).to_owned(),
        hostname(url).to_owned(),
        port(url).to_owned(),
        pathname(url).to_owned(),
        search(url).to_owned(),
        hash(url).to_owned(),
    ]
}

/// Sets a part of a URL and returns all parts. `None` if the value is invalid.
fn set_url(href: &str, part: &str, value: &str) -> Option<Vec<String>> {
    use url::quirks;
    let mut url = Url::parse(href).ok()?;
    match part {
        "protocol" => quirks::set_protocol(&mut url, value).ok()?,
        "username" => quirks::set_username(&mut url, value).ok()?,
        "password" => quirks::set_password(&mut url, value).ok()?,
        "host" => quirks::set_host(&mut url, value).ok()?,
        "hostname" => quirks::set_hostname(&mut url, value).ok()?,
        "port" => quirks::set_port(&mut url, value).ok()?,
        "pathname" => quirks::set_pathname(&mut url, value),
        "search" => quirks::set_search(&mut url, value),
        "hash" => quirks::set_hash(&mut url, value),
        _ => return None,
    }
    Some(url_parts(&url))
}
