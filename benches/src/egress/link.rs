//! A server at the other end of a network link: a pair of virtual interfaces, one of them in a network namespace with
//! the server, and as fast as a good network card.
//!
//! Over loopback a connection is as fast as the processors copy, and whatever stands in its way takes a share of
//! them. Over a link it is as fast as the link, as it is for most programs.

use crate::rival;
use crate::running::Running;
use anyhow::{Context as _, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Speed of the link, as tc(8) writes it.
const RATE: &str = "10gbit";
/// The first of the addresses for measurements of networks (RFC 2544, C.2.2: 198.18.0.0/15).
const FIRST_ADDRESS: u32 = 0xC612_0000;
/// A pair of addresses has the two in the middle of a block of four.
const BLOCK: u32 = 4;
const BLOCKS: u32 = (1 << 17) / BLOCK;

/// Starts a server behind a link of its own, in a thread that listens as long as this program lives; the link goes
/// with the program, however that ends. Making interfaces takes the rights of root.
pub(super) fn serve(answer: fn(&TcpListener)) -> Result<SocketAddrV4> {
    let holder = hold_new_namespace()?;
    let namespace = format!("/proc/{}/ns/net", holder.0.id());
    let number = std::process::id();
    let (here, there) = (format!("gbh{number}"), format!("gbt{number}"));
    let block = FIRST_ADDRESS + number % BLOCKS * BLOCK;
    let (own, server) = (Ipv4Addr::from(block + 1), Ipv4Addr::from(block + 2));
    let peer = holder.0.id().to_string();
    let inside = |words: &[&str]| {
        let net = format!("--net={namespace}");
        run(&[&["nsenter", net.as_str(), "--"], words].concat())
    };
    run(&[
        "ip", "link", "add", &here, "type", "veth", "peer", "name", &there, "netns", &peer,
    ])?;
    run(&["ip", "addr", "add", &format!("{own}/30"), "dev", &here])?;
    run(&["ip", "link", "set", &here, "up"])?;
    inside(&["ip", "addr", "add", &format!("{server}/30"), "dev", &there])?;
    inside(&["ip", "link", "set", &there, "up"])?;
    inside(&[
        "tc", "qdisc", "add", "dev", &there, "root", "tbf", "rate", RATE, "burst", "2mb",
        "latency", "5ms",
    ])?;
    let namespace = File::open(&namespace).context(namespace)?;
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let listener =
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(std::io::Error::from)
                .and_then(|()| TcpListener::bind((server, 0)));
        match listener {
            Ok(listener) => {
                let _ = tell.send(listener.local_addr());
                answer(&listener);
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    });
    let port = told.recv()??.port();
    Ok(SocketAddrV4::new(server, port))
}

/// Keeps a new network namespace until somebody else is in it. It ends with the pipe that it reads.
fn hold_new_namespace() -> Result<Running> {
    let mut holder = rival::quiet(&rival::find("unshare")?);
    holder.args(["--net", "cat"]).stdin(Stdio::piped());
    let mut holder = Running(holder.spawn()?);
    let own = std::fs::read_link("/proc/self/ns/net")?;
    let theirs = format!("/proc/{}/ns/net", holder.0.id());
    let began = Instant::now();
    loop {
        if std::fs::read_link(&theirs).is_ok_and(|net| net != own) {
            return Ok(holder);
        }
        let has_ended = holder.0.try_wait()?.is_some();
        ensure!(
            !has_ended && began.elapsed() < Duration::from_secs(5),
            "`unshare --net` made no network namespace, which takes the rights of root"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn run(words: &[&str]) -> Result<()> {
    let (program, arguments) = words.split_first().context("no program")?;
    let output = Command::new(rival::find(program)?)
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{}`: {}",
        words.join(" "),
        said.trim()
    );
    Ok(())
}
