//! Rooms on loan: one per client, taken when it is first needed, given back by one thread of its own,
//! because giving back blocks and clients go at any time.

use super::{House, Room};
use glovebox_proto::{Code, Fault};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

/// Lends rooms of a house.
#[derive(Debug)]
pub(super) struct Porter {
    house: Arc<dyn House>,
    places: Arc<Semaphore>,
    back: Sender<Returned>,
}

/// A room nobody uses any more, and the place it takes until it is given back.
#[derive(Debug)]
struct Returned {
    _room: Arc<dyn Room>,
    _place: OwnedSemaphorePermit,
}

/// Waits until every room is back.
#[derive(Debug)]
pub(super) struct Closing {
    done: Receiver<()>,
    _thread: JoinHandle<()>,
}

/// One client's right to a room.
#[derive(Debug)]
pub(super) struct Lease {
    porter: Arc<Porter>,
    room: OnceCell<(Arc<dyn Room>, OwnedSemaphorePermit)>,
}

impl Porter {
    /// Lends at most `max_rooms` at a time.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(super) fn new(
        house: Arc<dyn House>,
        max_rooms: usize,
    ) -> Result<(Arc<Self>, Closing), Fault> {
        let (back, rooms) = mpsc::channel::<Returned>();
        let (tell, done) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("porter".to_owned())
            .spawn(move || {
                for room in rooms {
                    drop(room);
                }
                // Nobody waits for it when the process ends in a hurry.
                let _ = tell.send(());
            })
            .map_err(|error| {
                Fault::failed(Code::Busy, format!("cannot start a thread: {error}"))
            })?;
        let porter = Arc::new(Self {
            house,
            places: Arc::new(Semaphore::new(max_rooms)),
            back,
        });
        let closing = Closing {
            done,
            _thread: thread,
        };
        Ok((porter, closing))
    }

    pub(super) fn house(&self) -> &dyn House {
        &*self.house
    }

    /// Rooms that can still be lent.
    pub(super) fn free(&self) -> usize {
        self.places.available_permits()
    }
}

impl Closing {
    /// True when every room is back, false when that took longer than `wait`.
    pub(super) fn wait(self, wait: Duration) -> bool {
        self.done.recv_timeout(wait).is_ok()
    }
}

impl Lease {
    pub(super) fn new(porter: Arc<Porter>) -> Self {
        Self {
            porter,
            room: OnceCell::new(),
        }
    }

    /// The room, taken now if it was not before.
    ///
    /// # Errors
    /// `too-many-sandboxes` when all are lent, and whatever keeps the house from giving one.
    pub(super) async fn room(&self) -> Result<Arc<dyn Room>, Fault> {
        let take = || async {
            let places = Arc::clone(&self.porter.places);
            let place = places.try_acquire_owned().map_err(|_| {
                let fault = Fault::refused(Code::TooManySandboxes, "too many clients are here");
                fault.remedy("try again when another has left").retryable()
            })?;
            let house = Arc::clone(&self.porter.house);
            let entered = tokio::task::spawn_blocking(move || house.enter()).await;
            let room = entered
                .unwrap_or_else(|error| Err(Fault::failed(Code::Internal, error.to_string())))?;
            Ok::<_, Fault>((Arc::from(room), place))
        };
        let (room, _) = self.room.get_or_try_init(take).await?;
        Ok(Arc::clone(room))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((room, place)) = self.room.take() {
            // Without a porter the process is about to end, and the room goes with it.
            let _ = self.porter.back.send(Returned {
                _room: room,
                _place: place,
            });
        }
    }
}
