//! Route of one request through the supervisor: its client, and the credit of each channel.
//!
//! Credit is passed from end to end, from the consumer to the producer. The supervisor only checks
//! it, so that neither side can make it buffer more than one window for each channel.

use crate::link::StreamSet;
use glovebox_proto::limits::WINDOW_BYTES;
use glovebox_proto::{Channel, WireError};

/// Key of a client, which is never used twice.
pub(super) type ClientKey = u64;

/// An open request.
#[derive(Debug)]
pub(super) struct Route {
    /// Client of the request. `None` for a request of the supervisor, and if the client has
    /// disconnected and the guest has not replied yet.
    pub(super) client: Option<ClientKey>,
    /// Id of the request that the client chose.
    pub(super) client_id: u32,
    flow: StreamSet,
    /// Number of bytes that the guest may still send, by channel from [`Channel::Stdout`] on.
    inbound: [u32; 3],
    ended: [bool; 3],
    /// Number of bytes that the client may still send.
    outbound: u32,
}

fn slot(channel: Channel) -> Option<usize> {
    match channel {
        Channel::Input => None,
        Channel::Stdout => Some(0),
        Channel::Stderr => Some(1),
        Channel::Content => Some(2),
    }
}

const OUTPUTS: [Channel; 3] = [Channel::Stdout, Channel::Stderr, Channel::Content];

fn violation(what: &str) -> WireError {
    WireError::BadPayload {
        what: "frame",
        detail: what.to_owned(),
    }
}

impl Route {
    /// Creates the route of a request of the supervisor itself.
    pub(super) fn own(flow: StreamSet) -> Self {
        Self {
            client: None,
            ..Self::new(0, 0, flow)
        }
    }

    pub(super) fn new(client: ClientKey, client_id: u32, flow: StreamSet) -> Self {
        Self {
            client: Some(client),
            client_id,
            flow,
            inbound: [WINDOW_BYTES; 3],
            ended: [false; 3],
            outbound: WINDOW_BYTES,
        }
    }

    /// Accounts for data from the guest. Returns false if the frame is empty and can be dropped.
    pub(super) fn output(
        &mut self,
        channel: Channel,
        len: u32,
        is_last: bool,
    ) -> Result<bool, WireError> {
        // TRUST: the guest chooses channel, size and order.
        let Some(slot) = slot(channel).filter(|_| self.flow.allows(channel)) else {
            return Err(violation("data on a channel the request does not have"));
        };
        if self.ended[slot] {
            return Err(violation("data after its end"));
        }
        let room = self.inbound[slot];
        self.inbound[slot] = room
            .checked_sub(len)
            .ok_or(WireError::WindowOverrun(u64::from(
                len.saturating_sub(room),
            )))?;
        self.ended[slot] = is_last;
        Ok(len > 0 || is_last)
    }

    /// Accounts for credit from the client to the guest.
    pub(super) fn credit_from_client(
        &mut self,
        channel: Channel,
        bytes: u32,
    ) -> Result<(), WireError> {
        let Some(slot) = slot(channel).filter(|_| self.flow.allows(channel)) else {
            return Err(violation("credit for a channel the request does not have"));
        };
        add(&mut self.inbound[slot], bytes)
    }

    /// Accounts for input from the client.
    pub(super) fn input(&mut self, channel: Channel, len: u32) -> Result<(), WireError> {
        if channel != Channel::Input || !self.flow.has_input {
            return Err(violation("input the request does not have"));
        }
        let room = self.outbound;
        self.outbound = room
            .checked_sub(len)
            .ok_or(WireError::WindowOverrun(u64::from(
                len.saturating_sub(room),
            )))?;
        Ok(())
    }

    /// Accounts for credit from the guest to the client.
    pub(super) fn credit_from_guest(
        &mut self,
        channel: Channel,
        bytes: u32,
    ) -> Result<(), WireError> {
        if channel != Channel::Input || !self.flow.has_input {
            return Err(violation("credit for a channel the request does not have"));
        }
        add(&mut self.outbound, bytes)
    }

    /// Detaches a client that has disconnected. Returns the credit that it will not send any
    /// longer, so that the guest can finish.
    pub(super) fn abandon(&mut self) -> Vec<(Channel, u32)> {
        self.client = None;
        OUTPUTS
            .into_iter()
            .filter_map(|channel| self.refill(channel))
            .collect()
    }

    /// Returns the credit to send at once for data that has no receiver.
    pub(super) fn refill(&mut self, channel: Channel) -> Option<(Channel, u32)> {
        let slot = slot(channel).filter(|slot| self.flow.allows(channel) && !self.ended[*slot])?;
        let used = WINDOW_BYTES - self.inbound[slot];
        self.inbound[slot] = WINDOW_BYTES;
        (used > 0).then_some((channel, used))
    }
}

fn add(room: &mut u32, bytes: u32) -> Result<(), WireError> {
    let sum = u64::from(*room) + u64::from(bytes);
    if sum > u64::from(WINDOW_BYTES) {
        return Err(WireError::WindowOverrun(sum - u64::from(WINDOW_BYTES)));
    }
    *room = sum as u32;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec() -> Route {
        Route::new(
            1,
            1,
            StreamSet {
                has_input: true,
                has_output: true,
                has_content: false,
            },
        )
    }

    #[test]
    fn both_directions_are_held_to_their_windows() {
        let mut route = exec();
        assert_eq!(route.output(Channel::Stdout, WINDOW_BYTES, false), Ok(true));
        assert_eq!(
            route.output(Channel::Stdout, 1, false),
            Err(WireError::WindowOverrun(1))
        );
        route.credit_from_client(Channel::Stdout, 10).unwrap();
        assert_eq!(route.output(Channel::Stdout, 10, true), Ok(true));
        assert!(route.output(Channel::Stdout, 0, false).is_err());
        assert!(route.output(Channel::Content, 0, false).is_err());
        assert_eq!(route.output(Channel::Stderr, 0, false), Ok(false));
        route.input(Channel::Input, WINDOW_BYTES).unwrap();
        assert!(route.input(Channel::Input, 1).is_err());
        assert!(
            route
                .credit_from_guest(Channel::Input, WINDOW_BYTES + 1)
                .is_err()
        );
        route.credit_from_guest(Channel::Input, 7).unwrap();
        route.input(Channel::Input, 7).unwrap();
    }

    #[test]
    fn an_abandoned_route_gives_its_room_back_once() {
        let mut route = exec();
        route.output(Channel::Stderr, 100, false).unwrap();
        assert_eq!(route.abandon(), [(Channel::Stderr, 100)]);
        assert_eq!(route.abandon(), []);
        route.output(Channel::Stdout, 5, false).unwrap();
        assert_eq!(route.refill(Channel::Stdout), Some((Channel::Stdout, 5)));
    }
}
