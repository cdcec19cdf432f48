//! Descriptors from 3 on that the caller of this program had open.

use crate::sys::inherited;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs;

/// First number that is not a standard stream.
const FIRST_DESCRIPTOR: i32 = 3;

/// Returns the numbers of the descriptors that this process was started with, in order, and has no program that it
/// starts inherit them. Must be called before anything is opened. Without `/proc` there are none.
pub fn note_descriptors() -> Vec<i32> {
    let dir = "/proc/self/fd";
    let mut numbers: Vec<i32> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number >= FIRST_DESCRIPTOR)
        .collect();
    // The directory itself was one of them, and is closed by now.
    numbers.retain(|number| fs::symlink_metadata(format!("{dir}/{number}")).is_ok());
    numbers.sort_unstable();
    for number in &numbers {
        inherited::close_on_exec(*number);
    }
    numbers
}

/// Makes another descriptor of the open file that has this number in this process.
///
/// # Errors
/// Nothing is open under this number.
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
