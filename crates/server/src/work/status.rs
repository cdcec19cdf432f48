//! Status of the server for clients that follow it. A new subscriber gets the current status at
//! once, then every change.

use super::environment::EnvironmentSnapshot;
use super::health::ComponentHealth;
use glovebox_agent::Placement;
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::watch;
use utoipa::ToSchema;

/// Number of steps when the server starts: open the files, try a sandbox, read the environment.
const STEPS: u8 = 3;

/// How the server stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ServerStatus {
    /// `starting`, `ready`, or `down` when a component does not work.
    pub state: ServerState,
    /// Where tools work: `sandbox`, or `local` without walls.
    pub placement: &'static str,
    /// The step of the start that is under way; `null` after the last.
    pub startup: Option<StartupStep>,
    /// What is known of each component; empty until they were checked.
    pub components: Vec<ComponentHealth>,
}

/// Whether the server can work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServerState {
    /// It answers, and a step of the start is under way.
    Starting,
    /// It can.
    Ready,
    /// It cannot: a component does not work.
    Down,
}

/// A step of the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct StartupStep {
    /// Its number, from 1.
    pub step: u8,
    /// How many there are.
    pub steps: u8,
    /// What is done in it.
    pub name: &'static str,
}

/// Status and environment, as published to followers.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    pub status: Arc<ServerStatus>,
    pub environment: Arc<EnvironmentSnapshot>,
}

/// Publisher of the current status and environment.
#[derive(Debug)]
pub(crate) struct StatusBoard(watch::Sender<Board>);

impl StatusBoard {
    /// Creates the board of a server whose files are open and whose sandbox was tried: the last
    /// step of the start is under way.
    pub(super) fn new(placement: Placement) -> Self {
        Self(watch::Sender::new(Board {
            status: Arc::new(ServerStatus {
                state: ServerState::Starting,
                placement: placement.as_str(),
                startup: Some(StartupStep {
                    step: STEPS,
                    steps: STEPS,
                    name: "read the environment",
                }),
                components: Vec::new(),
            }),
            environment: Arc::new(EnvironmentSnapshot::starting(placement)),
        }))
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Board> {
        self.0.subscribe()
    }

    pub(crate) fn environment(&self) -> Arc<EnvironmentSnapshot> {
        Arc::clone(&self.0.borrow().environment)
    }

    pub(super) fn set_environment(&self, snapshot: EnvironmentSnapshot) {
        self.0
            .send_modify(|board| board.environment = Arc::new(snapshot));
    }

    pub(super) fn finish_startup(&self) {
        self.change(|status| status.startup = None);
    }

    pub(super) fn set_components(&self, components: &[ComponentHealth]) {
        self.change(|status| status.components = components.to_vec());
    }

    /// Changes the status. Followers are notified only if it differs.
    fn change(&self, change: impl FnOnce(&mut ServerStatus)) {
        self.0.send_if_modified(|board| {
            let mut now = ServerStatus::clone(&board.status);
            change(&mut now);
            let is_down = now.components.iter().any(|component| !component.is_ready);
            now.state = match (&now.startup, is_down) {
                (_, true) => ServerState::Down,
                (Some(_), false) => ServerState::Starting,
                (None, false) => ServerState::Ready,
            };
            let is_new = now != *board.status;
            if is_new {
                board.status = Arc::new(now);
            }
            is_new
        });
    }

    /// Returns the detail of a component if it does not work. None if it works or was not checked
    /// yet.
    pub(super) fn problem_of(&self, component: &str) -> Option<String> {
        let board = self.0.borrow();
        let mut components = board.status.components.iter();
        let broken = components.find(|one| one.name == component && !one.is_ready);
        broken.map(|one| one.detail.clone())
    }

    pub(super) fn is_followed(&self) -> bool {
        self.0.receiver_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(is_ready: bool) -> ComponentHealth {
        ComponentHealth {
            name: "sandbox",
            is_ready,
            detail: String::new(),
        }
    }

    #[test]
    fn who_follows_sees_the_newest_and_hears_only_of_differences() {
        let board = StatusBoard::new(Placement::Sandbox);
        let mut follower = board.subscribe();
        assert_eq!(follower.borrow().status.state, ServerState::Starting);
        board.finish_startup();
        assert!(follower.has_changed().unwrap());
        assert_eq!(
            follower.borrow_and_update().status.state,
            ServerState::Ready
        );
        board.set_components(&[component(true)]);
        let _ = follower.borrow_and_update();
        board.set_components(&[component(true)]);
        assert!(!follower.has_changed().unwrap());
        board.set_components(&[component(false)]);
        assert_eq!(follower.borrow_and_update().status.state, ServerState::Down);
        assert!(board.problem_of("sandbox").is_some());
        assert_eq!(board.problem_of("sessions"), None);
        // A later subscriber gets the current status at once.
        assert_eq!(board.subscribe().borrow().status.state, ServerState::Down);
    }
}
