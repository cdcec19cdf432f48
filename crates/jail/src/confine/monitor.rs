//! The monitor: starts the guest, answers calls that the kernel does not decide, and ends the
//! sandbox.

use super::answers::Answers;
use super::{
    GUEST_MODE, GuestOrder, GuestRequest, MIN_LANDLOCK_ABI, Setup, TerminalReply, privileges,
};
use crate::process::{Census, TreeKill};
use crate::{channel, landlock, process, program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitOptions};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time that the guest has to exit by itself after its link has ended.
const LEAVE_WAIT: Duration = Duration::from_secs(2);
/// Pause between two rounds of killing.
const ROUND_PAUSE: Duration = Duration::from_millis(2);
/// Number of rounds after which killing starts afresh.
const FRESH_AFTER: u32 = 16;

/// Opens a terminal. Returns the master and the slave.
pub type OpenTerminal = fn() -> Result<(OwnedFd, OwnedFd), Errno>;

/// Serves as the monitor of a sandbox whose owner is the parent of this process, at the other end
/// of `link`. Returns when no process of the sandbox is left.
///
/// Precondition: no other thread runs.
///
/// # Errors
/// The reason why the start failed, or why the guest ended, unless it exited with code 0.
pub fn watch_over(link: OwnedFd, open_terminal: OpenTerminal) -> Result<(), String> {
    let owner = rustix::process::getppid().ok_or("there is no owner")?;
    let owner = rustix::process::pidfd_open(owner, PidfdFlags::empty())
        .map_err(|errno| format!("cannot watch the owner: {errno}"))?;
    let setup = channel::receive::<Setup>(&link).map_err(|error| error.to_string())?;
    let (setup, egress) = setup.ok_or("the owner has ended")?;
    let egress = egress.into_iter().next();
    let abi = landlock::abi_version();
    if abi < MIN_LANDLOCK_ABI {
        return Err(format!(
            "this kernel has Landlock ABI {abi}, and {MIN_LANDLOCK_ABI} (Linux 6.12) is needed"
        ));
    }
    // This comes before the guest is started, which inherits it.
    privileges::drop_all().map_err(|errno| format!("cannot give up capabilities: {errno}"))?;
    // Only SIGKILL may end this process before all that it watches.
    process::reset_and_block_signals().map_err(|errno| format!("cannot block signals: {errno}"))?;
    // This too: an orphan of the sandbox would otherwise leave this process's tree and survive.
    process::become_subreaper().map_err(|errno| format!("cannot become a subreaper: {errno}"))?;
    let started = Monitor::start(link, owner, &setup, egress, open_terminal);
    let ended = started.and_then(|mut monitor| monitor.work());
    end_everything();
    ended
}

struct Monitor {
    link: OwnedFd,
    owner: OwnedFd,
    guest: Pid,
    guest_end: OwnedFd,
    control: OwnedFd,
    open_terminal: OpenTerminal,
}

impl Monitor {
    fn start(
        link: OwnedFd,
        owner: OwnedFd,
        setup: &Setup,
        egress: Option<OwnedFd>,
        open_terminal: OpenTerminal,
    ) -> Result<Self, String> {
        let (control, theirs) = program::socket_pair()
            .map_err(|errno| format!("cannot make a socket pair: {errno}"))?;
        let theirs_link = link.try_clone().map_err(|error| error.to_string())?;
        let child = Command::new("/proc/self/exe")
            .arg(GUEST_MODE)
            .stdin(Stdio::from(theirs_link))
            .stdout(Stdio::from(theirs))
            .spawn()
            .map_err(|error| format!("cannot start the guest: {error}"))?;
        let guest = Pid::from_child(&child);
        let guest_end = rustix::process::pidfd_open(guest, PidfdFlags::empty())
            .map_err(|errno| format!("cannot watch the guest: {errno}"))?;
        let order = GuestOrder {
            setup: setup.clone(),
            monitor: rustix::process::getpid().as_raw_pid(),
            has_egress: egress.is_some(),
        };
        channel::send(&control, &order, &[])
            .map_err(|error| format!("cannot send the guest its setup: {error}"))?;
        let confined = channel::receive::<GuestRequest>(&control);
        // A guest that has failed has reported the reason itself.
        let Ok(Some((GuestRequest::Confined, fds))) = confined else {
            return Err("the guest is not confined".to_owned());
        };
        let [listener] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| "there is no listener")?;
        let trees = setup.writable.iter().map(|path| path.as_path().to_owned());
        Answers::start(listener, trees.collect(), egress)?;
        Ok(Self {
            link,
            owner,
            guest,
            guest_end,
            control,
            open_terminal,
        })
    }

    /// Serves until the guest or the owner has ended.
    fn work(&mut self) -> Result<(), String> {
        let mut leave_by = None;
        loop {
            let wait = leave_by.map(|by: Instant| by.saturating_duration_since(Instant::now()));
            if wait == Some(Duration::ZERO) {
                return Ok(());
            }
            let [guest, owner, link, control] = self.wait(wait)?;
            if owner.intersects(PollFlags::IN) {
                return Ok(());
            }
            if control.contains(PollFlags::IN) {
                self.serve_guest();
            }
            if guest.contains(PollFlags::IN) {
                return self.describe_end();
            }
            if leave_by.is_none() && link.intersects(PollFlags::RDHUP | PollFlags::HUP) {
                leave_by = Some(Instant::now() + LEAVE_WAIT);
            }
        }
    }

    fn wait(&self, wait: Option<Duration>) -> Result<[PollFlags; 4], String> {
        // A closed link would wake this process again and again.
        let link = if wait.is_some() {
            PollFlags::empty()
        } else {
            PollFlags::RDHUP
        };
        let link_fd = if wait.is_some() {
            self.guest_end.as_fd()
        } else {
            self.link.as_fd()
        };
        let mut fds = [
            PollFd::new(&self.guest_end, PollFlags::IN),
            PollFd::new(&self.owner, PollFlags::IN),
            PollFd::from_borrowed_fd(link_fd, link),
            PollFd::new(&self.control, PollFlags::IN),
        ];
        let wait = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) => Ok(fds.map(|fd| fd.revents())),
            Err(Errno::INTR) => Ok([PollFlags::empty(); 4]),
            Err(errno) => Err(format!("cannot wait: {errno}")),
        }
    }

    /// Answers one request of the guest. Errors are ignored: they mean that the guest has ended,
    /// which its pidfd reports.
    fn serve_guest(&self) {
        let Ok(Some((GuestRequest::OpenTerminal, _))) = channel::receive(&self.control) else {
            return;
        };
        let _ = match (self.open_terminal)() {
            Ok((master, slave)) => channel::send(
                &self.control,
                &TerminalReply { errno: 0 },
                &[master.as_fd(), slave.as_fd()],
            ),
            Err(errno) => {
                let errno = errno.raw_os_error();
                channel::send(&self.control, &TerminalReply { errno }, &[])
            }
        };
    }

    fn describe_end(&self) -> Result<(), String> {
        let status = rustix::process::waitpid(Some(self.guest), WaitOptions::NOHANG);
        let Ok(Some((_, status))) = status else {
            return Ok(());
        };
        match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) | (None, None) => Ok(()),
            (Some(code), _) => Err(format!("the guest ended with code {code}")),
            (_, Some(signal)) => Err(format!("the guest was ended by signal {signal}")),
        }
    }
}

/// Kills and reaps every descendant, including processes that left their command. A process that
/// loses its parent becomes a child of this process, so none is left when there is no child.
fn end_everything() {
    let own = rustix::process::getpid();
    let mut kill = TreeKill::new();
    while !reap_all() {
        // A census misses processes that are reparented while it is taken, so only the absence of
        // children ends the loop.
        if let Ok(census) = Census::take() {
            let _ = kill.round(own, &census);
        }
        // After many rounds [`TreeKill`] would take this process for a warden that does not exit,
        // and kill it.
        if kill.rounds() > FRESH_AFTER {
            kill = TreeKill::new();
        }
        std::thread::sleep(ROUND_PAUSE);
    }
}

/// Reaps all dead children. Returns true if no child is left.
fn reap_all() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}
