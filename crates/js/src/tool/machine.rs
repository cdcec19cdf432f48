//! Runtime of one call: the modules of a tool, the loop of jobs and timers, and the conversion of
//! exceptions to errors.

use super::fetches::Fetches;
use super::host;
use super::output::Output;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_js::tool_call::{CallError, CallErrorKind, LogLevel, TOOL_FILE, ToolCall};
use glovebox_js::tool_fetch::{FetchOutcome, FetchReply};
use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::promise::PromiseState;
use rquickjs::{
    CatchResultExt as _, CaughtError, Context, Ctx, Exception, FromJs as _, Function, Module,
    Object, Persistent, Promise, Result, Runtime, TypedArray, Value,
};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Stack limit of JavaScript, in bytes. The main thread has eight megabytes, which the engine's C
/// functions share.
const STACK_BYTES: usize = 2 << 20;
/// Maximum number of pending timers.
const MAX_TIMERS: usize = 10_000;
/// Message of the engine's exception for a lack of memory.
const OUT_OF_MEMORY: &str = "out of memory";
/// Message of the engine for a failure without an exception, which may be due to a lack of memory.
const UNKNOWN: &str = "QuickJS library created a unknown error";
const MAX_STACK_BYTES: usize = 4096;
/// Maximum number of unhandled rejections that are logged.
const MAX_REJECTIONS: usize = 16;

/// Functions of `surroundings.js`; `None` until it has been evaluated.
type Api = Rc<RefCell<Option<Persistent<Object<'static>>>>>;
/// Rejected promises that are not handled so far, each with a short text of the reason.
type Rejections = Rc<RefCell<Vec<(Persistent<Value<'static>>, String)>>>;

/// Runtime of one call.
pub(super) struct Machine {
    api: Api,
    context: Context,
    clock: Rc<Clock>,
    fetches: Rc<Fetches>,
    rejections: Rejections,
    output: Output,
}

/// Event that a tool waits for.
enum Event {
    Timer(u32),
    Reply(FetchReply),
}

/// End of the call, and the timers of the tool.
pub(super) struct Clock {
    until: Instant,
    next_id: Cell<u32>,
    timers: RefCell<BinaryHeap<Reverse<(Instant, u32)>>>,
    live: RefCell<BTreeSet<u32>>,
}

impl Clock {
    /// Starts a timer and returns its number. `None` if there are too many.
    pub(super) fn start(&self, ms: f64) -> Option<u32> {
        let mut timers = self.timers.borrow_mut();
        if timers.len() >= MAX_TIMERS {
            return None;
        }
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(1).max(1));
        timers.push(Reverse((
            Instant::now() + Duration::from_millis(ms as u64),
            id,
        )));
        self.live.borrow_mut().insert(id);
        Some(id)
    }

    pub(super) fn forget(&self, id: u32) {
        self.live.borrow_mut().remove(&id);
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Returns the time and number of the next timer that is not cancelled.
    fn next_due(&self) -> Option<(Instant, u32)> {
        let mut timers = self.timers.borrow_mut();
        loop {
            let Reverse((at, id)) = *timers.peek()?;
            if self.live.borrow().contains(&id) {
                return Some((at, id));
            }
            timers.pop();
        }
    }

    /// Removes the next timer, which must have this number.
    fn take(&self, id: u32) {
        self.timers.borrow_mut().pop();
        self.forget(id);
    }
}

/// Waits for the next timer, or the response to a request. `None` if the call ends first or nothing
/// is due yet.
fn next_event(clock: &Clock, fetches: &Fetches) -> Option<Event> {
    let due = clock.next_due();
    let wake = due.map_or(clock.until, |(at, _)| at.min(clock.until));
    if fetches.is_open() {
        if let Some(reply) = fetches.wait(wake) {
            return Some(Event::Reply(reply));
        }
    } else if due.is_some() {
        std::thread::sleep(wake.saturating_duration_since(Instant::now()));
    }
    let (at, id) = due?;
    if at > clock.until || Instant::now() < at {
        return None;
    }
    clock.take(id);
    Some(Event::Timer(id))
}

impl Machine {
    /// Creates a runtime with the JavaScript code around a tool, but without the tool's code.
    pub(super) fn new(call: &ToolCall, output: &Output) -> Result<Self> {
        let clock = Rc::new(Clock {
            until: Instant::now() + Duration::from_millis(call.limits.wall_ms),
            next_id: Cell::new(1),
            timers: RefCell::default(),
            live: RefCell::default(),
        });
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(call.limits.memory_bytes as usize);
        runtime.set_max_stack_size(STACK_BYTES);
        let watched = Rc::clone(&clock);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.is_over())));
        let api: Api = Rc::default();
        runtime.set_loader(
            Modules {
                api: Rc::clone(&api),
            },
            Modules {
                api: Rc::clone(&api),
            },
        );
        let rejections = Rejections::default();
        let seen = Rc::clone(&rejections);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |ctx, promise, reason, is_handled| {
                let promise = Persistent::save(&ctx, promise);
                let mut seen = seen.borrow_mut();
                if is_handled {
                    forget(&ctx, &mut seen, &promise);
                } else if seen.len() < MAX_REJECTIONS {
                    seen.push((promise, brief(&ctx, &reason)));
                }
            },
        )));
        let fetches = Rc::new(Fetches::new(output, call.fetch));
        let context = Context::full(&runtime)?;
        context.with(|ctx| {
            let host = host::object(&ctx, output, &clock, &fetches, call.fixed)?;
            let make = host::evaluate(&ctx, include_str!("surroundings.js"))?;
            let made: Object = make.call((host,))?;
            *api.borrow_mut() = Some(Persistent::save(&ctx, made));
            // The engine reads the time zone file on first use. It must do so now, because no file
            // can be opened after the confinement.
            ctx.eval::<Value, _>("new Date(0).getTimezoneOffset()")
                .map(drop)
        })?;
        Ok(Self {
            api,
            context,
            clock,
            fetches,
            rejections,
            output: output.clone(),
        })
    }

    /// Runs the call and sends its result.
    pub(super) fn run(&self, call: &ToolCall) {
        let outcome = self.context.with(|ctx| self.answer(&ctx, call));
        for (_, reason) in self.rejections.borrow().iter() {
            let text = format!("a promise was rejected and nobody handles it: {reason}");
            self.output.log(LogLevel::Warn, &text);
        }
        match outcome {
            Ok(warnings) => self.output.succeed(warnings),
            Err(error) => self.output.fail(error),
        }
    }

    fn answer(
        &self,
        ctx: &Ctx<'_>,
        call: &ToolCall,
    ) -> std::result::Result<Vec<String>, CallError> {
        let api = api_of(ctx, &self.api).map_err(|_| self.lack_of_memory())?;
        let module = Module::declare(ctx.clone(), TOOL_FILE, call.code.as_str())
            .map_err(|error| self.declared(ctx, &api, error))?;
        let (module, ready) = module
            .eval()
            .map_err(|error| self.thrown(ctx, &api, error))?;
        self.settle(ctx, &api, &ready)?;
        let export: Value = module
            .get("default")
            .map_err(|error| self.thrown(ctx, &api, error))?;
        let Some(function) = export.into_function() else {
            return Err(error(
                CallErrorKind::NotFound,
                "the code of the tool has no function as its default export",
            ));
        };
        let run: Function = api
            .get("run")
            .map_err(|error| self.thrown(ctx, &api, error))?;
        let arguments = (
            function,
            call.input.as_str(),
            call.context.as_str(),
            call.call_id.as_str(),
        );
        let result: Promise = run
            .call(arguments)
            .map_err(|error| self.thrown(ctx, &api, error))?;
        let warnings = self.settle(ctx, &api, &result)?;
        let warnings = String::from_js(ctx, warnings).unwrap_or_default();
        Ok(warnings.lines().map(str::to_owned).collect())
    }

    /// Runs jobs and timers until a promise is settled. Returns its value, or the error of the
    /// call.
    fn settle<'js>(
        &self,
        ctx: &Ctx<'js>,
        api: &Object<'js>,
        promise: &Promise<'js>,
    ) -> std::result::Result<Value<'js>, CallError> {
        loop {
            while !self.clock.is_over()
                && promise.state() == PromiseState::Pending
                && ctx.execute_pending_job()
            {}
            if self.clock.is_over() {
                return Err(interrupted());
            }
            if promise.state() != PromiseState::Pending {
                break;
            }
            if self.clock.next_due().is_none() && !self.fetches.is_open() {
                return Err(error(
                    CallErrorKind::Tool,
                    "the tool waits for a promise that is never settled",
                ));
            }
            let done = match next_event(&self.clock, &self.fetches) {
                None => continue,
                Some(Event::Timer(id)) => api
                    .get::<_, Function>("fire")
                    .and_then(|fire| fire.call::<_, ()>((id,))),
                Some(Event::Reply(reply)) => tell(ctx, api, reply),
            };
            done.map_err(|error| self.thrown(ctx, api, error))?;
        }
        // The caller handles this promise, so that its rejection is not logged.
        let own = Persistent::save(ctx, promise.clone().into_value());
        forget(ctx, &mut self.rejections.borrow_mut(), &own);
        promise
            .result::<Value>()
            .unwrap_or(Err(rquickjs::Error::Unknown))
            .map_err(|error| self.thrown(ctx, api, error))
    }

    /// Converts the error of parsing the tool's code.
    fn declared<'js>(
        &self,
        ctx: &Ctx<'js>,
        api: &Object<'js>,
        cause: rquickjs::Error,
    ) -> CallError {
        if let rquickjs::Error::InvalidString(_) = cause {
            return error(
                CallErrorKind::Syntax,
                "the code of the tool has a NUL character",
            );
        }
        let mut told = self.thrown(ctx, api, cause);
        if told.kind == CallErrorKind::Tool && told.name == "SyntaxError" {
            told.kind = CallErrorKind::Syntax;
        }
        told
    }

    /// Converts an exception to the error of the call. Reports a timeout or a lack of memory if
    /// that is the cause.
    fn thrown<'js>(&self, ctx: &Ctx<'js>, api: &Object<'js>, cause: rquickjs::Error) -> CallError {
        let caught = Err::<(), _>(cause).catch(ctx).err();
        if self.clock.is_over() {
            return interrupted();
        }
        let value = match caught {
            Some(CaughtError::Exception(exception)) => exception.into_value(),
            Some(CaughtError::Value(value)) => value,
            Some(CaughtError::Error(cause)) => {
                return error(CallErrorKind::Tool, &cause.to_string());
            }
            None => return error(CallErrorKind::Tool, "the tool failed without saying why"),
        };
        // The engine also throws `null` if it has no memory for an exception. The host decides
        // which one it is by the memory that the process has used.
        if value.is_null() || value.is_undefined() {
            return error(CallErrorKind::Null, &format!("threw {}", value.type_name()));
        }
        let is_engines_own = value.as_exception().is_some();
        let told: Option<Vec<String>> = api
            .get::<_, Function>("describe")
            .and_then(|describe| describe.call((value,)))
            .ok();
        if self.clock.is_over() {
            return interrupted();
        }
        let Some([kind, name, message, stack]) =
            told.and_then(|told| <[String; 4]>::try_from(told).ok())
        else {
            return self.lack_of_memory();
        };
        if is_engines_own && name == "InternalError" && message == OUT_OF_MEMORY {
            return self.lack_of_memory();
        }
        if is_engines_own && name == "InternalError" && message == UNKNOWN {
            return error(CallErrorKind::Null, "the engine failed without saying why");
        }
        let kind = match kind.as_str() {
            "not_json" => CallErrorKind::NotJson,
            "output_limit" => CallErrorKind::OutputLimit,
            _ => CallErrorKind::Tool,
        };
        CallError {
            kind,
            name,
            message,
            stack: own_lines(&stack),
        }
    }

    #[expect(clippy::unused_self, reason = "reads like the other ways to fail")]
    fn lack_of_memory(&self) -> CallError {
        error(
            CallErrorKind::Memory,
            "the tool wanted more memory than it may have",
        )
    }
}

/// Settles the promise of a request.
fn tell<'js>(ctx: &Ctx<'js>, api: &Object<'js>, reply: FetchReply) -> Result<()> {
    let FetchReply { id, mut outcome } = reply;
    let body = match &mut outcome {
        FetchOutcome::Answer(answer) => STANDARD.decode(std::mem::take(&mut answer.body)),
        FetchOutcome::Failure(_) => Ok(Vec::new()),
    };
    let body = TypedArray::new(ctx.clone(), body.unwrap_or_default())?;
    // Serialization cannot fail: the value was parsed from JSON.
    let outcome = serde_json::to_string(&outcome).unwrap_or_default();
    api.get::<_, Function>("fetched")?.call((id, outcome, body))
}

/// Creates an error without an exception.
fn error(kind: CallErrorKind, message: &str) -> CallError {
    CallError {
        kind,
        name: String::new(),
        message: message.to_owned(),
        stack: String::new(),
    }
}

fn interrupted() -> CallError {
    error(
        CallErrorKind::Interrupted,
        "the tool took longer than it may",
    )
}

/// Returns the lines of a stack trace that belong to the tool.
fn own_lines(stack: &str) -> String {
    let mut lines = String::new();
    for line in stack.lines().filter(|line| line.contains(TOOL_FILE)) {
        if lines.len() + line.len() > MAX_STACK_BYTES {
            break;
        }
        if !lines.is_empty() {
            lines.push('\n');
        }
        lines.push_str(line.trim());
    }
    lines
}

/// Returns a short text of a value without running code of the tool.
fn brief<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    let exception = value.as_exception().and_then(Exception::message);
    let text = exception.or_else(|| {
        let is_plain = !value.is_object() && !value.is_symbol();
        is_plain
            .then(|| rquickjs::Coerced::<String>::from_js(ctx, value.clone()).ok())
            .flatten()
            .map(|text| text.0)
    });
    let text = text.unwrap_or_else(|| value.type_name().to_owned());
    text.chars().take(500).collect()
}

/// Removes a promise from the unhandled rejections.
fn forget(
    ctx: &Ctx<'_>,
    rejections: &mut Vec<(Persistent<Value<'static>>, String)>,
    handled: &Persistent<Value<'static>>,
) {
    let value = |saved: &Persistent<Value<'static>>| saved.clone().restore(ctx).ok();
    let handled = value(handled);
    rejections.retain(|(promise, _)| value(promise) != handled);
}

fn api_of<'js>(ctx: &Ctx<'js>, api: &Api) -> Result<Object<'js>> {
    let api = api.borrow().clone().ok_or(rquickjs::Error::Unknown)?;
    api.restore(ctx)
}

/// Loader for the fixed set of modules that a tool can import.
struct Modules {
    api: Api,
}

impl Resolver for Modules {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        _base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        let api = api_of(ctx, &self.api)?;
        let known: Function = api.get("moduleName")?;
        known.call((name,))
    }
}

impl Loader for Modules {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        let api = api_of(ctx, &self.api)?;
        let exports: Object = api.get::<_, Function>("exportsOf")?.call((name,))?;
        let mut source = "const own = import.meta.own;\nexport default own;\n".to_owned();
        for key in exports.keys::<String>() {
            let key = key?;
            source.extend(["export const ", &key, " = own.", &key, ";\n"]);
        }
        let module = Module::declare(ctx.clone(), format!("{name}{}", host::OWN_FILE), source)?;
        module.meta()?.set("own", exports)?;
        Ok(module)
    }
}
