//! JavaScript runtime that runs scripts in one global scope, with limits on time, memory and stack.
//!
//! Asynchronous work is driven by a loop of this module: jobs of the engine, results of calls, and
//! timers, until the script is settled and nothing is pending. A runtime that ran out of memory or
//! still has pending jobs is discarded with all variables, and the end of the script reports that.

use crate::console::Console;
use crate::desk::ScriptTable;
use crate::outlet::LineWriter;
use glovebox_js::{
    Ending, HostMessage, MAX_ARGUMENT_BYTES, MAX_CALLS, MAX_CONTEXT_BYTES, MEMORY_BYTES, Run,
    ScriptEvent, ScriptException,
};
use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{
    CatchResultExt as _, CaughtError, Context, Ctx, Exception, Function, Object, Persistent,
    Promise, Runtime, Value,
};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

const PRELUDE: &str = include_str!("prelude.js");
/// Name of the prelude in stack traces. It must not contain the name of a script.
const PRELUDE_NAME: &str = "<glovebox>";
/// Maximum number of characters of a stack trace.
const MAX_STACK_CHARS: usize = 4000;
/// Maximum number of characters of an exception's message.
const MAX_MESSAGE_CHARS: usize = 8000;
/// Text of the engine's exception for a lack of memory, which has no other mark. The whole text is
/// compared, because an error of a program in the sandbox may contain these words.
const OUT_OF_MEMORY: &str = "InternalError: out of memory";
/// Maximum number of pending timers.
const MAX_TIMERS: usize = 10_000;
/// Maximum duration of a single wait.
const LONG: Duration = Duration::from_mins(1);

/// State that the engine and its native functions share.
#[derive(Debug)]
struct Shared {
    desk: Arc<ScriptTable>,
    outlet: LineWriter,
    token: RefCell<String>,
    until: Cell<Instant>,
    /// True while a script runs that may be interrupted.
    is_armed: Cell<bool>,
    console: RefCell<Console>,
    next_id: Cell<u32>,
    calls: Cell<u32>,
    /// Number of scripts begun so far, which is part of the present script's name.
    scripts: Cell<u64>,
    open: RefCell<BTreeSet<u32>>,
    timers: RefCell<BinaryHeap<Reverse<(Instant, u32)>>>,
    context: RefCell<Option<(String, u64)>>,
}

/// Runtime with its context and the prelude's functions. Fields are dropped in this order.
struct Machine {
    api: Persistent<Object<'static>>,
    context: Context,
    runtime: Runtime,
}

/// Runs scripts, one at a time.
pub(crate) struct Engine {
    shared: Rc<Shared>,
    machine: Option<Machine>,
    stack_bytes: usize,
    queue: VecDeque<Run>,
}

/// Result of a script.
struct Outcome {
    ending: Ending,
    error: Option<ScriptException>,
    /// True if the script threw `null`, which may stand for an exception that there was no memory
    /// for.
    is_null: bool,
}

impl Outcome {
    fn of(ending: Ending, message: &str) -> Self {
        let error = ScriptException {
            message: message.to_owned(),
            ..ScriptException::default()
        };
        Self {
            ending,
            error: Some(error),
            is_null: false,
        }
    }
}

impl Engine {
    /// Creates an engine without a runtime.
    pub(crate) fn new(desk: Arc<ScriptTable>, outlet: LineWriter, stack_bytes: usize) -> Self {
        let shared = Shared {
            desk,
            outlet,
            token: RefCell::default(),
            until: Cell::new(Instant::now()),
            is_armed: Cell::new(false),
            console: RefCell::default(),
            next_id: Cell::new(1),
            calls: Cell::new(0),
            scripts: Cell::new(0),
            open: RefCell::default(),
            timers: RefCell::default(),
            context: RefCell::default(),
        };
        Self {
            shared: Rc::new(shared),
            machine: None,
            stack_bytes,
            queue: VecDeque::new(),
        }
    }

    /// Runs scripts until the channel is closed.
    pub(crate) fn work(&mut self, incoming: &Receiver<HostMessage>) {
        loop {
            let run = match self.queue.pop_front() {
                Some(run) => run,
                None => match incoming.recv() {
                    Ok(HostMessage::Run(run)) => run,
                    // These belong to a script that has ended.
                    Ok(HostMessage::Answer { .. } | HostMessage::Cancel { .. }) => continue,
                    Err(_) => return,
                },
            };
            self.run(&run, incoming);
        }
    }

    fn run(&mut self, run: &Run, incoming: &Receiver<HostMessage>) {
        let until = Instant::now() + Duration::from_millis(run.limit_ms);
        let shared = Rc::clone(&self.shared);
        let end = |outcome: Outcome, is_fresh| {
            let Outcome { ending, error, .. } = outcome;
            shared.outlet.say(
                &run.token,
                ScriptEvent::End {
                    ending,
                    error,
                    is_fresh,
                },
            );
        };
        if !shared.desk.begin(&run.token, until) {
            return end(
                Outcome::of(Ending::Cancelled, "given up before it began"),
                false,
            );
        }
        shared.outlet.say(&run.token, ScriptEvent::Begin);
        shared.begin(run, until);
        let outcome = match self.machine(run) {
            Ok(()) => self.execute(run, incoming),
            Err(error) => Outcome::of(Ending::OutOfMemory, &format!("no runtime: {error}")),
        };
        // Disarmed first: the checks below evaluate code, which the handler would interrupt after
        // the time limit.
        shared.is_armed.set(false);
        // The watchdog must not report an end of its own from here on.
        shared.desk.end();
        shared.flush();
        if let Some((text, skipped)) = shared.console.borrow_mut().finish() {
            shared
                .outlet
                .say(&run.token, ScriptEvent::Output { text, skipped });
        }
        let outcome = self.judge(outcome);
        let is_fresh = !self.is_sound(outcome.ending);
        if is_fresh {
            self.machine = None;
        }
        end(outcome, is_fresh);
    }

    /// Creates a runtime if there is none, and sets the memory limit for this script.
    fn machine(&mut self, run: &Run) -> rquickjs::Result<()> {
        if self.machine.is_none() {
            self.machine = Some(Machine::new(&self.shared, self.stack_bytes)?);
        }
        if let Some(machine) = &self.machine {
            // Text may take two bytes for each character.
            let limit = MEMORY_BYTES + 2 * run.context_bytes.min(MAX_CONTEXT_BYTES);
            machine.runtime.set_memory_limit(limit as usize);
        }
        let wanted = run.context.clone().map(|path| (path, run.context_bytes));
        if *self.shared.context.borrow() != wanted {
            *self.shared.context.borrow_mut() = wanted;
            self.with_api(|_, api| api.get::<_, Function>("forget")?.call::<_, ()>(()))?;
        }
        Ok(())
    }

    fn with_api<T>(
        &self,
        work: impl for<'js> FnOnce(&Ctx<'js>, Object<'js>) -> rquickjs::Result<T>,
    ) -> rquickjs::Result<T> {
        let machine = self.machine.as_ref().ok_or(rquickjs::Error::Unknown)?;
        machine.context.with(|ctx| {
            let api = machine.api.clone().restore(&ctx)?;
            work(&ctx, api)
        })
    }

    fn execute(&mut self, run: &Run, incoming: &Receiver<HostMessage>) -> Outcome {
        self.shared.scripts.set(self.shared.scripts.get() + 1);
        let mut options = EvalOptions::default();
        options.strict = false;
        options.promise = true;
        options.backtrace_barrier = true;
        options.filename = Some(format!("script{}", self.shared.scripts.get()));
        let shared = Rc::clone(&self.shared);
        let mut later = VecDeque::new();
        let done = self.with_api(|ctx, api| {
            shared.is_armed.set(true);
            let settle: Function = api.get("settle")?;
            let promise: Promise = match ctx.eval_with_options(run.code.as_str(), options) {
                Ok(promise) => promise,
                Err(error) => return Ok(shared.failed(ctx, &api, error)),
            };
            loop {
                while shared.stopped().is_none() && ctx.execute_pending_job() {}
                if let Some(outcome) = shared.stopped() {
                    return Ok(outcome);
                }
                let state = promise.state();
                if state == PromiseState::Rejected || shared.is_idle() {
                    break;
                }
                // Printed text is sent before waiting, so that the host sees it while the script
                // waits.
                shared.flush();
                if let Some((call, is_fault, json)) = shared.wait(incoming, &mut later)
                    && let Err(error) = settle.call::<_, ()>((call, is_fault, json))
                {
                    return Ok(shared.failed(ctx, &api, error));
                }
            }
            Ok(match promise.result::<Object>() {
                None => Outcome::of(
                    Ending::Stuck,
                    "the script waits for a promise that nothing will settle",
                ),
                Some(Err(error)) => shared.failed(ctx, &api, error),
                Some(Ok(result)) => match shared.show(&api, &result) {
                    Ok(()) => Outcome {
                        ending: Ending::Done,
                        error: None,
                        is_null: false,
                    },
                    Err(error) => shared.failed(ctx, &api, error),
                },
            })
        });
        self.queue.append(&mut later);
        done.unwrap_or_else(|error| Outcome::of(Ending::OutOfMemory, &error.to_string()))
    }

    /// Replaces a failure by [`Ending::OutOfMemory`] if a lack of memory is the cause.
    fn judge(&self, outcome: Outcome) -> Outcome {
        let is_near_limit = || {
            self.machine.as_ref().is_some_and(|machine| {
                let usage = machine.runtime.memory_usage();
                usage.malloc_size > usage.malloc_limit / 2
            })
        };
        let says_so = outcome
            .error
            .as_ref()
            .is_some_and(|error| error.message == OUT_OF_MEMORY);
        let is_lack =
            outcome.ending == Ending::Failed && (says_so || outcome.is_null && is_near_limit());
        if is_lack {
            return Outcome::of(
                Ending::OutOfMemory,
                "the script wanted more memory than there is for it",
            );
        }
        outcome
    }

    /// Returns true if the runtime can be used again.
    fn is_sound(&self, ending: Ending) -> bool {
        let Some(machine) = &self.machine else {
            return false;
        };
        ending != Ending::OutOfMemory
            // Pending jobs would run as part of the next script.
            && !machine.runtime.is_job_pending()
            && machine.context.with(|ctx| ctx.eval::<i32, _>("1+1").is_ok_and(|two| two == 2))
    }
}

impl Machine {
    fn new(shared: &Rc<Shared>, stack_bytes: usize) -> rquickjs::Result<Self> {
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(MEMORY_BYTES as usize);
        runtime.set_max_stack_size(stack_bytes);
        let watched = Rc::clone(shared);
        runtime.set_interrupt_handler(Some(Box::new(move || {
            watched.is_armed.get() && watched.stopped().is_some()
        })));
        let context = Context::full(&runtime)?;
        let api = context.with(|ctx| {
            let mut options = EvalOptions::default();
            options.filename = Some(PRELUDE_NAME.to_owned());
            let make: Function = ctx.eval_with_options(PRELUDE, options)?;
            let api: Object = make.call((shared.host(&ctx)?,))?;
            Ok::<_, rquickjs::Error>(Persistent::save(&ctx, api))
        })?;
        Ok(Self {
            api,
            context,
            runtime,
        })
    }
}

impl Shared {
    fn begin(&self, run: &Run, until: Instant) {
        self.token.borrow_mut().clone_from(&run.token);
        self.until.set(until);
        self.calls.set(0);
        self.console.take();
        self.open.take();
        self.timers.take();
    }

    /// Creates the object of native functions that the prelude uses.
    fn host<'js>(self: &Rc<Self>, ctx: &Ctx<'js>) -> rquickjs::Result<Object<'js>> {
        let host = Object::new(ctx.clone())?;
        let own = Rc::clone(self);
        host.set(
            "print",
            Function::new(ctx.clone(), move |text: String| own.print(&text)),
        )?;
        let own = Rc::clone(self);
        host.set(
            "call",
            Function::new(
                ctx.clone(),
                move |ctx: Ctx<'_>, name: String, arguments: String| {
                    own.call(name, arguments)
                        .map_err(|why| Exception::throw_range(&ctx, &why))
                },
            ),
        )?;
        let own = Rc::clone(self);
        host.set(
            "timer",
            Function::new(ctx.clone(), move |ctx: Ctx<'_>, ms: f64| {
                own.timer(ms)
                    .map_err(|why| Exception::throw_range(&ctx, why))
            }),
        )?;
        let own = Rc::clone(self);
        host.set(
            "forget",
            Function::new(ctx.clone(), move |id: u32| own.forget(id)),
        )?;
        let own = Rc::clone(self);
        host.set(
            "context",
            Function::new(ctx.clone(), move |ctx: Ctx<'_>| {
                own.read_context()
                    .map_err(|why| Exception::throw_message(&ctx, &why))
            }),
        )?;
        Ok(host)
    }

    fn print(&self, text: &str) {
        let piece = self.console.borrow_mut().print(text);
        self.output(piece);
    }

    fn flush(&self) {
        let piece = self.console.borrow_mut().flush();
        self.output(piece);
    }

    fn output(&self, piece: Option<String>) {
        if let Some(text) = piece {
            self.outlet.say(
                &self.token.borrow(),
                ScriptEvent::Output { text, skipped: 0 },
            );
        }
    }

    fn id(&self) -> u32 {
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(1).max(1));
        self.open.borrow_mut().insert(id);
        id
    }

    fn call(&self, name: String, arguments: String) -> Result<u32, String> {
        if self.calls.get() >= MAX_CALLS {
            return Err(format!("a script may make {MAX_CALLS} calls, no more"));
        }
        if name.len() > 100 || arguments.len() > MAX_ARGUMENT_BYTES {
            return Err(format!(
                "the arguments of a call take more than {MAX_ARGUMENT_BYTES} bytes"
            ));
        }
        self.calls.set(self.calls.get() + 1);
        // Printed text is sent first, so that the host sees it before the call.
        self.flush();
        let call = self.id();
        self.outlet.say(
            &self.token.borrow(),
            ScriptEvent::Call {
                call,
                name,
                arguments,
            },
        );
        Ok(call)
    }

    fn timer(&self, ms: f64) -> Result<u32, &'static str> {
        if self.timers.borrow().len() >= MAX_TIMERS {
            return Err("there are too many timers");
        }
        let at = Instant::now() + Duration::from_millis(ms as u64);
        let id = self.id();
        self.timers.borrow_mut().push(Reverse((at, id)));
        Ok(id)
    }

    fn forget(&self, id: u32) {
        self.open.borrow_mut().remove(&id);
    }

    fn read_context(&self) -> Result<Option<String>, String> {
        let Some((path, _)) = self.context.borrow().clone() else {
            return Ok(None);
        };
        let fail =
            |error: std::io::Error| format!("CONTEXT_DATA cannot be read from {path}: {error}");
        let bytes = std::fs::metadata(&path).map_err(fail)?.len();
        if bytes > MAX_CONTEXT_BYTES {
            return Err(format!(
                "{path} has {bytes} bytes, which is more than a context may have"
            ));
        }
        let content = std::fs::read(&path).map_err(fail)?;
        Ok(Some(String::from_utf8(content).unwrap_or_else(|error| {
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        })))
    }

    /// Returns true if no call and no timer is pending.
    fn is_idle(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Returns the outcome if the script must end now.
    fn stopped(&self) -> Option<Outcome> {
        if self.desk.is_stopped() {
            return Some(Outcome::of(Ending::Cancelled, "the script was given up"));
        }
        (Instant::now() >= self.until.get())
            .then(|| Outcome::of(Ending::TimedOut, "the script took longer than it may"))
    }

    /// Waits for the result of a call, a timer, or the time limit. Returns the number of the call
    /// or timer, true if the call failed, and the result as JSON text. `None` if nothing is settled
    /// yet. Scripts that arrive are appended to `later`.
    fn wait(
        &self,
        incoming: &Receiver<HostMessage>,
        later: &mut VecDeque<Run>,
    ) -> Option<(u32, bool, String)> {
        let now = Instant::now();
        let due = self.timers.borrow().peek().map(|Reverse((at, _))| *at);
        if due.is_some_and(|at| at <= now) {
            let Reverse((_, id)) = self.timers.borrow_mut().pop()?;
            return self
                .open
                .borrow_mut()
                .remove(&id)
                .then(|| (id, false, String::new()));
        }
        let until = due.map_or(self.until.get(), |at| at.min(self.until.get()));
        match incoming.recv_timeout(until.saturating_duration_since(now).min(LONG)) {
            Ok(HostMessage::Run(run)) => later.push_back(run),
            Ok(HostMessage::Answer {
                token,
                call,
                is_fault,
                json,
            }) => {
                let is_awaited =
                    token == *self.token.borrow() && self.open.borrow_mut().remove(&call);
                return is_awaited.then_some((call, is_fault, json));
            }
            Ok(HostMessage::Cancel { .. }) | Err(RecvTimeoutError::Timeout) => {}
            // The input has ended, so that nothing can be reported.
            Err(RecvTimeoutError::Disconnected) => self.outlet.leave(),
        }
        None
    }

    /// Prints the value of a script unless it is `undefined`.
    fn show<'js>(&self, api: &Object<'js>, result: &Object<'js>) -> rquickjs::Result<()> {
        let value: Value = result.get("value")?;
        if !value.is_undefined() {
            let text: String = api.get::<_, Function>("show")?.call((value,))?;
            self.print(&text);
            if !text.ends_with('\n') {
                self.print("\n");
            }
        }
        Ok(())
    }

    fn failed<'js>(&self, ctx: &Ctx<'js>, api: &Object<'js>, error: rquickjs::Error) -> Outcome {
        let caught = Err::<(), _>(error).catch(ctx).err();
        // An interrupted script has thrown an exception of its own, which must not hide the reason
        // of the interruption.
        if let Some(outcome) = self.stopped() {
            return outcome;
        }
        let (value, plain) = match caught {
            Some(CaughtError::Exception(exception)) => {
                (Some(exception.into_value()), String::new())
            }
            Some(CaughtError::Value(value)) => (Some(value), String::new()),
            Some(CaughtError::Error(rquickjs::Error::InvalidString(_))) => (
                None,
                "SyntaxError: the script has a NUL character".to_owned(),
            ),
            Some(CaughtError::Error(error)) => (None, error.to_string()),
            None => (None, String::new()),
        };
        let is_null = value.as_ref().is_some_and(Value::is_null);
        let told = value.and_then(|value| {
            let describe: Function = api.get("describe").ok()?;
            describe.call::<_, Vec<String>>((value,)).ok()
        });
        if let Some(outcome) = self.stopped() {
            return outcome;
        }
        let mut told = told.unwrap_or_default().into_iter();
        let message = told.next().unwrap_or(plain);
        let stack = told.next().unwrap_or_default();
        Outcome {
            ending: Ending::Failed,
            error: Some(ScriptException {
                line: line_of(&stack, &format!("script{}:", self.scripts.get())),
                message: cut(&message, MAX_MESSAGE_CHARS),
                stack: cut(stack.trim_end(), MAX_STACK_CHARS),
            }),
            is_null,
        }
    }
}

/// Returns the first line of the script that a stack trace names: `script3:LINE:COLUMN`.
fn line_of(stack: &str, script: &str) -> Option<u32> {
    let (_, place) = stack.split_once(script)?;
    place.split(':').next()?.parse().ok()
}

fn cut(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).collect()
}
