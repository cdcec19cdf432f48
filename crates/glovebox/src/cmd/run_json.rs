//! `glovebox run --json`: prints one object after the command has ended, or if it never began.

use super::exec::{MAX_CAPTURED_BYTES, add_report, sentence, words};
use super::limit_end::{WallNote, as_json};
use super::{Cx, run::run_command};
use crate::args::RunArgs;
use crate::exit::{CONFLICT, CommandError, CommandResult, Kind};
use crate::render;
use crate::streams::{
    CallerDescriptors, Capture, InputFrom, OnSignal, Signals, StreamsEnd, carry, is_null_device,
};
use glovebox_proto::{Exec, Exit, ExitReport, Request, Stdin};
use glovebox_sandbox::Sandbox;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Output of a command, and how it ended.
#[derive(Debug)]
pub(super) struct CapturedRun {
    output: Capture,
    report: Option<ExitReport>,
    /// Walls and limits that the command met.
    pub(super) walls: Vec<WallNote>,
    /// Error that kept the command from ending by itself. None if it ended.
    pub(super) failure: Option<CommandError>,
}

impl CapturedRun {
    /// Runs `exec` and keeps its output.
    pub(super) fn carry(
        &mut self,
        sandbox: &Arc<Sandbox>,
        mut exec: Exec,
        descriptors: CallerDescriptors,
        signals: &Signals,
    ) -> Result<StreamsEnd, CommandError> {
        let input = if is_null_device() {
            InputFrom::Nothing
        } else {
            exec.stdin = Stdin::Stream;
            InputFrom::Stdin
        };
        let request = Request::Exec(exec);
        let ended = carry(
            sandbox,
            request,
            input,
            descriptors,
            OnSignal::PassOn,
            signals,
            &mut self.output,
        )?;
        if let StreamsEnd::Exited(report) = &ended {
            self.report = Some(report.clone());
        }
        Ok(ended)
    }
}

/// Runs the command and prints the object.
pub(super) fn run(cx: &Cx, args: &RunArgs) -> CommandResult {
    let mut captured = CapturedRun {
        output: Capture::new(MAX_CAPTURED_BYTES),
        report: None,
        walls: Vec::new(),
        failure: None,
    };
    let ended = run_command(cx, args, Some(&mut captured));
    let ended = match captured.failure.take() {
        Some(error) => Err(error),
        None => ended,
    };
    let mut data = Map::new();
    data.insert("name".to_owned(), args.keep.clone().into());
    data.insert("command".to_owned(), words(&args.command).into());
    if let Some(report) = &captured.report {
        render::output_fields(&mut data, "stdout", &captured.output.stdout);
        render::output_fields(&mut data, "stderr", &captured.output.stderr);
        data.insert("truncated".to_owned(), captured.output.is_truncated.into());
        add_report(&mut data, report);
        data.insert("denials".to_owned(), as_json(&captured.walls));
    }
    match (ended, &captured.report) {
        (Ok(code), Some(report)) => {
            let is_success = report.exit == Exit::Code(0) && !report.timed_out;
            let mut message = sentence(report);
            if is_success && code == CONFLICT {
                message.push_str(", and what it changed conflicts with your own changes");
            }
            let data = Value::Object(data);
            render::print(render::envelope(is_success && code == 0, &message, &data))?;
            Ok(code)
        }
        (Ok(code), None) => Ok(code),
        (Err(error), _) if error.kind == Kind::BrokenPipe => Err(error),
        (Err(error), _) => {
            // The object is the answer; the same message on standard error would be noise.
            render::print(render::failure(&error, &Value::Object(data)))?;
            Ok(error.stand_in_code())
        }
    }
}
