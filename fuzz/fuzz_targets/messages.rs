//! Arbitrary payloads through the message decoders of both sides: what the guest accepts from the
//! host, what the host accepts from the guest, and the handshake of each.
#![no_main]

use glovebox_proto::{Fault, Hello, Reply, Request, Role, decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = decode::<Request>(bytes, "request") {
        let _ = request.validate();
        let again = encode(&request).ok().map(|bytes| decode::<Request>(&bytes, "request"));
        assert_eq!(again, Some(Ok(request)));
    }
    if let Ok(reply) = decode::<Result<Reply, Fault>>(bytes, "reply") {
        let again =
            encode(&reply).ok().map(|bytes| decode::<Result<Reply, Fault>>(&bytes, "reply"));
        assert_eq!(again, Some(Ok(reply)));
    }
    let _ = Hello::accept(bytes, Role::Guest);
    let _ = Hello::accept(bytes, Role::Host);
});
