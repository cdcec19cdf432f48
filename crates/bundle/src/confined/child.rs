//! Child process: confines itself before it reads the first byte.

use super::request::{Answer, Header, Work};
use crate::extract;
use crate::limits::{
    CHILD_CPU_S, CHILD_MEMORY_BYTES, MAX_HEADER_BYTES, MAX_MAP_BYTES, MAX_SOURCE_BYTES, STACK_BYTES,
};
use glovebox_jail::compute::{ComputeLimits, confine};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

/// Hidden subcommand of a program that reads bundles. Its body is [`serve_extraction`].
pub const EXTRACT_COMMAND: &str = "__extract";

/// Implements [`EXTRACT_COMMAND`]: confines the process, reads one request from standard input and
/// writes the answer to standard output. Returns the exit code.
pub fn serve_extraction() -> u8 {
    // The thread with the large stack is created first: a confined process cannot create threads.
    let thread = std::thread::Builder::new()
        .name("bundle".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(answer);
    let written = match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(written)) => written,
        Ok(Err(_panic)) => return 101,
        Err(error) => write_answer(&Answer::NotConfined(format!(
            "a thread with a stack of its own: {error}"
        ))),
    };
    u8::from(written.is_err())
}

fn answer() -> io::Result<()> {
    let limits = ComputeLimits {
        memory_bytes: CHILD_MEMORY_BYTES,
        cpu_s: CHILD_CPU_S,
    };
    // Confined before the first byte is read: parsing the request is part of the attack surface.
    let answer = match confine(limits) {
        Err(error) => Answer::NotConfined(error.to_string()),
        Ok(()) => match read_request(io::stdin().lock()) {
            Ok(answer) => answer,
            Err(error) => Answer::NoInput(error.to_string()),
        },
    };
    write_answer(&answer)
}

fn read_request(input: impl Read) -> io::Result<Answer> {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    input
        .by_ref()
        .take(MAX_HEADER_BYTES)
        .read_until(b'\n', &mut line)?;
    let header: Header = serde_json::from_slice(&line)?;
    let source = read_part(&mut input, header.source_bytes, MAX_SOURCE_BYTES)?;
    let map = match header.map_bytes {
        Some(bytes) => Some(read_part(&mut input, bytes, MAX_MAP_BYTES + 1)?),
        None => None,
    };
    Ok(match header.work {
        Work::Extract => {
            let extraction = extract::extract_bytes(&source, map.as_deref(), header.options);
            Answer::Extraction(extraction)
        }
        Work::Wrap => Answer::Wrapped(extract::wrap_bytes(&source)),
    })
}

fn read_part(input: &mut impl Read, bytes: usize, most: usize) -> io::Result<Vec<u8>> {
    if bytes > most {
        return Err(io::Error::other(format!("{bytes} bytes are announced")));
    }
    let mut part = vec![0; bytes];
    input.read_exact(&mut part)?;
    Ok(part)
}

fn write_answer(answer: &Answer) -> io::Result<()> {
    let mut output = BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut output, answer)?;
    output.flush()
}
