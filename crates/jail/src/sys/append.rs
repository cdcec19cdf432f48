//! Appending file content to a vector, without zeroing the capacity first, and on large pages if
//! there is much content.
#![expect(
    unsafe_code,
    reason = "the standard library fills spare capacity only to its end, and not in one read"
)]

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::Advice;

/// Capacity from which on the kernel is asked for large pages. Faulting in many MiB page by page, 4
/// KiB each, costs more than reading the content.
const MANY_BYTES: usize = 8 << 20;
/// Page size that mappings are rounded to: the smallest of the supported machines.
const PAGE_BYTES: usize = 4096;

/// Reads once, at most `max` bytes, and appends them to `bytes`. Returns the number of bytes read;
/// 0 at the end of the file.
pub(crate) fn append(fd: impl AsFd, bytes: &mut Vec<u8>, max: usize) -> Result<usize, Errno> {
    let capacity = bytes.capacity();
    bytes.reserve(max);
    if bytes.capacity() > capacity && bytes.capacity() >= MANY_BYTES {
        prefer_large_pages(bytes);
    }
    let held = bytes.len();
    let room = bytes.spare_capacity_mut();
    let room = room.get_mut(..max).unwrap_or_default();
    let (read, _) = rustix::io::read(fd, room)?;
    let count = read.len();
    // SAFETY: read(2) has initialised the first `count` bytes after the first `held`, which is what
    // rustix tells by the type of `read`, and they lie within the capacity they were taken from.
    unsafe { bytes.set_len(held + count) };
    Ok(count)
}

/// Asks for large pages for the whole of a vector's mapping. Advice for a part of it would split
/// the mapping, which then could not be moved when it grows. Errors are ignored: a kernel without
/// large pages refuses, which changes nothing.
fn prefer_large_pages(bytes: &mut Vec<u8>) {
    let start = bytes.as_mut_ptr();
    let before = start.addr() % PAGE_BYTES;
    let len = (before + bytes.capacity()).next_multiple_of(PAGE_BYTES);
    // SAFETY: this advice changes neither the content of memory nor the rights to it, for any data
    // in the first and the last page. The address is only passed to the kernel, which refuses wrong
    // ones.
    let _ = unsafe {
        rustix::mm::madvise(
            start.wrapping_sub(before).cast(),
            len,
            Advice::LinuxHugepage,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn no_more_is_read_than_was_asked_for_and_what_was_there_stays() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"0123456789").unwrap();
        let mut bytes = b"held".to_vec();
        assert_eq!(append(&reader, &mut bytes, 3), Ok(3));
        assert_eq!(bytes, b"held012");
        assert_eq!(append(&reader, &mut bytes, 0), Ok(0));
        assert_eq!(append(&reader, &mut bytes, 1 << 20), Ok(7));
        assert_eq!(bytes, b"held0123456789");
        drop(writer);
        assert_eq!(append(&reader, &mut bytes, 1), Ok(0));
        assert_eq!(bytes.len(), 14);
    }

    #[test]
    fn what_is_much_stays_whole_while_it_grows() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let total = 5 * MANY_BYTES;
        let sender = std::thread::spawn(move || {
            let bytes: Vec<u8> = (0..total).map(|at| (at / 5) as u8).collect();
            writer.write_all(&bytes).unwrap();
        });
        let mut bytes = Vec::new();
        while append(&reader, &mut bytes, 128 << 10) != Ok(0) {}
        sender.join().unwrap();
        assert_eq!(bytes.len(), total);
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == (at / 5) as u8)
        );
    }

    #[test]
    fn an_error_changes_nothing() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let mut bytes = b"held".to_vec();
        assert_eq!(append(&writer, &mut bytes, 8), Err(Errno::BADF));
        assert_eq!(bytes, b"held");
    }
}
