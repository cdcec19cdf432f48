//! How much memory the connections of one sandbox may take together, and what keeps them within that.
//!
//! Every connection has buffers of a fixed size. What takes more of them has fewer places: TLS that ends here, and
//! HTTP/2 in it, where each of many requests has buffers of its own.

use crate::outward::tls_client::HTTP2;
use std::io;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

/// Connections of one sandbox at once; more wait to be accepted.
pub(crate) const MAX_CONNECTIONS: usize = 1024;
/// Those of them with TLS that ends here; more wait for an end.
const MAX_TLS: usize = 256;
/// Those of these that speak HTTP/2; more are offered HTTP/1.1.
const MAX_HTTP2: usize = 16;

/// Buffer of one direction of a connection that is passed on as it is.
pub(crate) const PUMP_BYTES: usize = 64 << 10;
/// Largest head of a request or an answer of HTTP/1, and each of the two buffers of each of both ends.
pub(crate) const HTTP1_BYTES: usize = 64 << 10;
/// Headers of one of them.
pub(crate) const HTTP1_HEADERS: usize = 1000;
/// Requests of one connection of HTTP/2 at once.
pub(crate) const HTTP2_STREAMS: u32 = 100;
/// Largest head of one of them, and of its answer.
pub(crate) const HTTP2_HEAD_BYTES: u32 = 32 << 10;
/// What of one request or answer waits to be sent.
pub(crate) const HTTP2_SEND_BYTES: usize = 32 << 10;
/// What of one request or answer may have come before it is read.
pub(crate) const HTTP2_STREAM_WINDOW: u32 = 1 << 20;
/// The same of all of a connection's, at each end.
pub(crate) const HTTP2_WINDOW: u32 = 2 << 20;
/// What TLS holds of both ends: records that come, and what waits to be sent.
const TLS_BYTES: usize = 256 << 10;
/// All else of one connection: its tasks, its records.
const OTHER_BYTES: usize = 16 << 10;

/// What all connections of a sandbox take at most.
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

/// The places of connections that take more than others.
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

    /// Waits for a place of a connection with TLS that ends here.
    pub(crate) async fn tls(&self) -> io::Result<SemaphorePermit<'_>> {
        self.tls.acquire().await.map_err(closed)
    }

    /// A place for HTTP/2, where it is among what a program offers. When there is none it is taken out of the offer;
    /// who offers nothing else waits.
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

/// Nobody closes them.
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
