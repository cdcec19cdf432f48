//! System calls that test whether the filter is in force.
//!
//! The seccomp mode that the kernel reports only says that there is a filter, and a container
//! engine installs one before ours. So this module makes calls for which our table gives another
//! error than an unfiltered kernel gives to a process without capabilities. None of the calls has
//! an effect without a filter. Set-up makes the same calls anyway: an outer filter that kills a
//! process for an unexpected call meets no new one here.
#![expect(
    unsafe_code,
    reason = "arguments that no safe wrapper would pass: none of them is valid"
)]

use libc::c_long;

/// A system call and the error that the filter returns for it.
struct Trial {
    name: &'static str,
    number: c_long,
    arguments: [c_long; 5],
    answer: i32,
    /// Error that the filter of a sandbox with nested namespaces returns. `None` if that filter
    /// allows the call.
    nested_answer: Option<i32>,
}

const KEYCTL_GET_KEYRING_ID: c_long = 0;
const KEY_SPEC_SESSION_KEYRING: c_long = -3;

const TRIALS: &[Trial] = &[
    // No namespaces: succeeds without a filter.
    Trial {
        name: "unshare",
        number: libc::SYS_unshare,
        arguments: [0; 5],
        answer: libc::EPERM,
        nested_answer: None,
    },
    // Invalid descriptor: EBADF without a filter.
    Trial {
        name: "setns",
        number: libc::SYS_setns,
        arguments: [-1, 0, 0, 0, 0],
        answer: libc::EPERM,
        nested_answer: None,
    },
    // No attributes: EINVAL without a filter.
    Trial {
        name: "mount_setattr",
        number: libc::SYS_mount_setattr,
        arguments: [-1, 0, 0, 0, 0],
        answer: libc::EPERM,
        nested_answer: Some(libc::ENOSYS),
    },
    // A query: the id of the keyring without a filter.
    Trial {
        name: "keyctl",
        number: libc::SYS_keyctl,
        arguments: [KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0, 0, 0],
        answer: libc::EPERM,
        nested_answer: Some(libc::EPERM),
    },
    // Refused by argument. Invalid descriptor: EBADF without a filter.
    Trial {
        name: "ioctl TIOCSTI",
        number: libc::SYS_ioctl,
        arguments: [-1, libc::TIOCSTI as c_long, 0, 0, 0],
        answer: libc::EPERM,
        nested_answer: Some(libc::EPERM),
    },
    // Refused by argument. Without a filter the call makes a socket, because every kernel with
    // NETLINK has this protocol.
    Trial {
        name: "socket NETLINK_USERSOCK",
        number: libc::SYS_socket,
        arguments: [
            libc::AF_NETLINK as c_long,
            (libc::SOCK_RAW | libc::SOCK_CLOEXEC) as c_long,
            libc::NETLINK_USERSOCK as c_long,
            0,
            0,
        ],
        answer: libc::EAFNOSUPPORT,
        nested_answer: Some(libc::EAFNOSUPPORT),
    },
];

/// Returns the calls that did not get the filter's error, each with its result. Empty if the filter
/// is in force. `is_nested` is true if the filter is [`crate::seccomp::Profile::Nested`].
pub(crate) fn unfiltered(is_nested: bool) -> Vec<String> {
    TRIALS
        .iter()
        .filter_map(|trial| {
            let answer = if is_nested {
                trial.nested_answer?
            } else {
                trial.answer
            };
            let [first, second, third, fourth, fifth] = trial.arguments;
            // SAFETY: all arguments are integers or null, and no call here does anything with them
            // but refuse them: the reasons stand beside the trials. The socket of the last one is
            // never made under the filter, and is closed on exec otherwise.
            let result =
                unsafe { libc::syscall(trial.number, first, second, third, fourth, fifth) };
            if result >= 0 {
                return Some(format!("{} answered {result}", trial.name));
            }
            let errno = std::io::Error::last_os_error().raw_os_error();
            (errno != Some(answer)).then(|| {
                format!(
                    "{} answered error {}",
                    trial.name,
                    errno.unwrap_or_default()
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::{Profile, install};

    #[test]
    fn without_the_filter_no_trial_has_its_answer() {
        assert_eq!(unfiltered(false).len(), TRIALS.len());
        let nested = TRIALS.iter().filter(|trial| trial.nested_answer.is_some());
        assert_eq!(unfiltered(true).len(), nested.count());
    }

    #[test]
    fn under_the_filter_every_trial_has_its_answer() {
        // A filter for all threads would apply to the other tests as well.
        for child in ["child", "nested_child"] {
            let name = format!("sys::filter_trial::tests::{child}");
            let out = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &name, "--ignored"])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success() && text.contains("1 passed"), "{text}");
        }
    }

    #[test]
    #[ignore = "run in a process of its own by the test above"]
    fn child() {
        rustix::thread::set_no_new_privs(true).unwrap();
        install(Profile::Default).unwrap();
        assert_eq!(unfiltered(false), Vec::<String>::new());
    }

    #[test]
    #[ignore = "run in a process of its own by the test above"]
    fn nested_child() {
        rustix::thread::set_no_new_privs(true).unwrap();
        install(Profile::Nested).unwrap();
        assert_eq!(unfiltered(true), Vec::<String>::new());
    }
}
