//! Descriptors from 3 on that this process inherited.

use crate::sys::inherited;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs;

/// Lowest number that is not a standard stream.
const FIRST_DESCRIPTOR: i32 = 3;

/// Returns the numbers of the descriptors that this process was started with, in ascending order,
/// and sets them to close-on-exec. Must be called before any file is opened. Empty if `/proc`
/// cannot be read.
pub fn note_descriptors() -> Vec<i32> {
    let dir = "/proc/self/fd";
    let mut numbers: Vec<i32> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number >= FIRST_DESCRIPTOR)
        .collect();
    // The descriptor of the directory itself was listed too, and is closed by now.
    numbers.retain(|number| fs::symlink_metadata(format!("{dir}/{number}")).is_ok());
    numbers.sort_unstable();
    for number in &numbers {
        inherited::close_on_exec(*number);
    }
    numbers
}

/// Duplicates the descriptor of this process with this number.
///
/// # Errors
/// No descriptor has this number.
pub fn duplicate_descriptor(number: i32) -> Result<OwnedFd, Errno> {
    inherited::duplicate(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd as _;

    #[test]
    fn duplicate_leads_to_the_same_file_and_a_closed_number_to_none() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let copy = duplicate_descriptor(write.as_raw_fd()).unwrap();
        rustix::io::write(&copy, b"x").unwrap();
        let mut buffer = [0; 4];
        assert_eq!(rustix::io::read(&read, &mut buffer), Ok(1));
        assert_eq!(duplicate_descriptor(100_000).unwrap_err(), Errno::BADF);
    }
}
