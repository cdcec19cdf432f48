//! Bound on the memory of all connections of one sandbox, and the limits that keep it.
//!
//! Every connection has buffers of a fixed size. Connections that need more of them have lower
//! limits: intercepted TLS, and HTTP/2 within it, where each simultaneous request has buffers of
//! its own.

use crate::outward::tls_client::HTTP2;
use std::io;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

/// Maximum number of connections of one sandbox; further ones wait to be accepted.
pub(crate) const MAX_CONNECTIONS: usize = 1024;
/// Maximum number of connections with intercepted TLS; further ones wait.
const MAX_TLS: usize = 256;
/// Maximum number of intercepted connections with HTTP/2; further ones are offered HTTP/1.1.
const MAX_HTTP2: usize = 16;

/// Buffer of one direction of a connection that is passed on unchanged, in bytes.
pub(crate) const PUMP_BYTES: usize = 64 << 10;
/// Maximum size of the head of an HTTP/1 request or response, and size of the read and the write
/// buffer of each of the two connections, in bytes.
pub(crate) const HTTP1_BYTES: usize = 64 << 10;
/// Maximum number of headers of an HTTP/1 message.
pub(crate) const HTTP1_HEADERS: usize = 1000;
/// Maximum number of simultaneous requests of an HTTP/2 connection.
pub(crate) const HTTP2_STREAMS: u32 = 100;
/// Maximum size of the head of an HTTP/2 request or response, in bytes.
pub(crate) const HTTP2_HEAD_BYTES: u32 = 32 << 10;
/// Maximum data of one HTTP/2 stream that waits to be sent, in bytes.
pub(crate) const HTTP2_SEND_BYTES: usize = 32 << 10;
/// Receive window of one HTTP/2 stream, in bytes.
pub(crate) const HTTP2_STREAM_WINDOW: u32 = 1 << 20;
/// Receive window of one HTTP/2 connection, in bytes, for each of the two connections.
pub(crate) const HTTP2_WINDOW: u32 = 2 << 20;
/// Buffers of TLS on both connections, in bytes: received records, and data to send.
const TLS_BYTES: usize = 256 << 10;
/// Estimate for everything else of one connection, in bytes: its tasks and its records.
const OTHER_BYTES: usize = 16 << 10;

/// Maximum memory of all connections of a sandbox, in bytes. Checked at compile time below.
const MAX_BYTES: usize = 640 << 20;

const HTTP1_TOTAL: usize = 4 * HTTP1_BYTES;
const HTTP2_TOTAL: usize = 2
    * (HTTP2_WINDOW as usize
        + HTTP2_STREAMS as usize * (HTTP2_HEAD_BYTES as usize + HTTP2_SEND_BYTES));
const _: () = assert!(2 * PUMP_BYTES <= HTTP1_TOTAL, "HTTP/1 is what takes more");
const _: () = assert!(
    MAX_CONNECTIONS * (HTTP1_TOTAL + OTHER_BYTES) + MAX_TLS * TLS_BYTES + MAX_HTTP2 * HTTP2_TOTAL
        <= MAX_BYTES
);

/// Permits for connections that need more memory than others.
#[derive(Debug)]
pub(crate) struct RelayPlaces {
    tls: Semaphore,
    http2: Semaphore,
}

impl RelayPlaces {
    pub(crate) const fn new() -> Self {
        Self {
            tls: Semaphore::const_new(MAX_TLS),
            http2: Semaphore::const_new(MAX_HTTP2),
        }
    }

    /// Waits for the permit of a connection with intercepted TLS.
    pub(crate) async fn tls(&self) -> io::Result<SemaphorePermit<'_>> {
        self.tls.acquire().await.map_err(closed)
    }

    /// Returns a permit for HTTP/2, or `None` if the connection must use another protocol.
    /// `offered` are the protocols that the program offers. If all permits are in use, HTTP/2 is
    /// removed from `offered`; if it is the only protocol offered, this waits for a permit.
    pub(crate) async fn http2(
        &self,
        offered: &mut Vec<Vec<u8>>,
    ) -> io::Result<Option<SemaphorePermit<'_>>> {
        let is_http2 = |protocol: &Vec<u8>| protocol == HTTP2;
        if !offered.iter().any(is_http2) {
            return Ok(None);
        }
        if offered.iter().all(is_http2) {
            return self.http2.acquire().await.map(Some).map_err(closed);
        }
        let place = self.http2.try_acquire().ok();
        if place.is_none() {
            offered.retain(|protocol| !is_http2(protocol));
        }
        Ok(place)
    }
}

/// Converts the error of a closed semaphore. These semaphores are never closed.
fn closed(error: AcquireError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outward::tls_client::HTTP1;
    use std::time::Duration;

    #[test]
    fn who_finds_no_place_for_http2_is_offered_the_other() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let places = RelayPlaces::new();
            let (both, one) = ([HTTP2.to_vec(), HTTP1.to_vec()], [HTTP1.to_vec()]);
            let mut held = Vec::new();
            for _ in 0..MAX_HTTP2 {
                let mut offered = both.to_vec();
                held.push(places.http2(&mut offered).await.unwrap().unwrap());
                assert_eq!(offered, both);
            }
            let mut offered = both.to_vec();
            assert!(places.http2(&mut offered).await.unwrap().is_none());
            assert_eq!(offered, one);
            // Who offers neither, or only the other, needs no place.
            for mut offered in [Vec::new(), one.to_vec()] {
                assert!(places.http2(&mut offered).await.unwrap().is_none());
            }
            // Who offers nothing else waits until there is one.
            let mut only = vec![HTTP2.to_vec()];
            let waiting = places.http2(&mut only);
            let waited = tokio::time::timeout(Duration::from_millis(1), waiting).await;
            assert!(waited.is_err());
            held.pop();
            assert!(places.http2(&mut only).await.unwrap().is_some());
            assert_eq!(only, [HTTP2.to_vec()]);
        });
    }
}
