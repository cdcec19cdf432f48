//! `glovebox audit`: the audit log of `glovebox serve`.

use super::Cx;
use crate::args::AuditArgs;
use crate::exit::{CommandError, CommandResult};
use glovebox_server::{AuditFilter, export_audit_log};
use glovebox_session::host::now_unix_ms;
use std::io::{self, ErrorKind};

/// Prints the selected entries.
pub(crate) fn run(cx: &Cx, args: &AuditArgs) -> CommandResult {
    let now = now_unix_ms();
    let filter = AuditFilter {
        since_unix_ms: args.since.map(|time| time.to_unix_ms(now)),
        until_unix_ms: args.until.map(|time| time.to_unix_ms(now)),
        user: args.user.clone(),
    };
    let state_dir = cx.state_dir(&cx.settings(None)?)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    match export_audit_log(&state_dir, &filter, &mut out) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::io("print the audit log", &error))
        }
        _ => Ok(0),
    }
}
