//! SOCKS version 5 (RFC 1928) as far as programs use it: CONNECT by name or address, without
//! authentication.

use crate::ConnectFailure;
use crate::outward::target::Target;
use crate::policy::name::Host;
use crate::state::{ProxyState, ReachError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Protocol version, which is the first byte that a SOCKS client sends.
pub(crate) const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const ADDRESS_V4: u8 = 1;
const NAME: u8 = 3;
const ADDRESS_V6: u8 = 4;

/// Reply codes (RFC 1928, 6).
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    Refused = 5,
    TtlExpired = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

/// Reads and answers a SOCKS request. Returns the target and the connection to it, which is `None`
/// if requests make their own. The result is `None` if the request was refused and the refusal was
/// sent.
pub(crate) async fn serve(
    stream: &mut TcpStream,
    state: &ProxyState,
) -> io::Result<Option<(Target, Option<TcpStream>)>> {
    let [version, count] = read(stream).await?;
    if version != VERSION {
        return Ok(None);
    }
    let mut methods = vec![0; count.into()];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Ok(None);
    }
    stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    match connect(stream, state).await? {
        Ok(connected) => {
            reply(stream, Reply::Succeeded).await?;
            Ok(Some(connected))
        }
        Err(refusal) => {
            reply(stream, refusal).await?;
            stream.shutdown().await?;
            Ok(None)
        }
    }
}

async fn connect(
    stream: &mut TcpStream,
    state: &ProxyState,
) -> io::Result<Result<(Target, Option<TcpStream>), Reply>> {
    let [version, command, _, address_type] = read(stream).await?;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let (host, shown) = match address_type {
        ADDRESS_V4 => address(Ipv4Addr::from(read::<4>(stream).await?).into()),
        ADDRESS_V6 => address(Ipv6Addr::from(read::<16>(stream).await?).into()),
        NAME => {
            let [length] = read(stream).await?;
            let mut bytes = vec![0; length.into()];
            stream.read_exact(&mut bytes).await?;
            // TRUST: any program inside can send anything here; a name that cannot be parsed
            // unambiguously is refused.
            let host = std::str::from_utf8(&bytes)
                .ok()
                .and_then(|text| Host::parse(text).ok());
            (host, String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => return Ok(Err(Reply::AddressTypeNotSupported)),
    };
    let port = u16::from_be_bytes(read(stream).await?);
    if command != CONNECT {
        return Ok(Err(Reply::CommandNotSupported));
    }
    let target = match state.target(host, &shown, port).await {
        Ok(target) => target,
        Err(ReachError::Refused) => return Ok(Err(Reply::NotAllowed)),
        Err(ReachError::Failed(failure)) => return Ok(Err(failure.into())),
    };
    let server = target.dial_for_tunnel().await;
    Ok(server
        .map(|server| (target, server))
        .map_err(|error| ConnectFailure::from(&error).into()))
}

impl From<ConnectFailure> for Reply {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::UnknownName | ConnectFailure::Unreachable => Self::HostUnreachable,
            ConnectFailure::Refused => Self::Refused,
            // Most servers use this code for a timeout.
            ConnectFailure::TimedOut => Self::TtlExpired,
            ConnectFailure::ProxyRefused { .. } => Self::NotAllowed,
            ConnectFailure::NoResolverAnswer
            | ConnectFailure::ProxyUnreached { .. }
            | ConnectFailure::Other => Self::GeneralFailure,
        }
    }
}

fn address(address: IpAddr) -> (Option<Host>, String) {
    let host = Host::from(address);
    let shown = host.to_string();
    (Some(host), shown)
}

/// Sends a reply. The bound address is left zero: programs inside must not learn addresses of this
/// machine.
async fn reply(stream: &mut TcpStream, reply: Reply) -> io::Result<()> {
    let answer = [VERSION, reply as u8, 0, ADDRESS_V4, 0, 0, 0, 0, 0, 0];
    stream.write_all(&answer).await
}

async fn read<const COUNT: usize>(stream: &mut TcpStream) -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}
