//! Arbitrary rules and hosts, and questions for names. A text that is a host has one spelling; what a rule closes no
//! other opens; any packet is a question or none, and its answer is about what it asked.
#![no_main]

use glovebox_egress::{Host, Policy};
use glovebox_proto::dns::{AnswerCode, Question};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    allowed: &'a str,
    denied: &'a str,
    host: &'a str,
    port: u16,
    packet: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    if let Ok(host) = Host::parse(input.host) {
        let spelled = host.to_string();
        assert_eq!(Host::parse(&spelled).as_ref(), Ok(&host), "{spelled}");
        if let Ok(closed) = Policy::new(&[input.denied], &[input.denied]) {
            assert!(closed.decide(&host, input.port).is_err(), "{closed:?}");
        }
        let both = Policy::new(&[input.allowed, input.denied], &[input.denied]);
        let alone = Policy::new(&[input.allowed], &[input.denied]);
        if let (Ok(both), Ok(alone)) = (both, alone) {
            let is_open = |policy: &Policy| policy.decide(&host, input.port).is_ok();
            assert_eq!(is_open(&both), is_open(&alone), "{both:?}");
        }
    }
    if let Some(question) = Question::parse(input.packet) {
        let answer = question.answer(AnswerCode::NoSuchName, None, 0);
        assert!(answer.len() <= input.packet.len());
        assert!(answer.starts_with(&input.packet[..2]));
    }
});
