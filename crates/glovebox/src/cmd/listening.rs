//! Errors for an address on which the process cannot listen, with a hint.

use crate::exit::CommandError;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// Creates the error for `address`, which came from `flag`.
pub(super) fn cannot_listen(address: SocketAddr, error: &io::Error, flag: &str) -> CommandError {
    let told = CommandError::io(format!("listen at {address}"), error);
    match error.kind() {
        ErrorKind::AddrInUse => told.remedy(format!(
            "something listens there already: name another port with {flag}, or port 0 for a free one"
        )),
        ErrorKind::AddrNotAvailable => told.remedy(format!(
            "this machine has no such address: name one that `ip addr` shows with {flag}"
        )),
        ErrorKind::PermissionDenied => told.remedy(format!(
            "ports below 1024 are for root: name a higher one with {flag}"
        )),
        _ => told,
    }
}
