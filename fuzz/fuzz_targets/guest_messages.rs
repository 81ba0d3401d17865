//! Any octets as what a guest sends: in one piece and in pieces they make the same messages, every packet has a meaning
//! and answers of its lengths, and every line is a request that is written as it is read, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steer::guests::dpdk::{self, Packet};
use steer::guests::protocol::{Answer, LONGEST, Request};
use steer::guests::{Message, Parser};
use units::{Instant, Nanos};

fn messages(pieces: &mut dyn Iterator<Item = &[u8]>) -> Vec<Vec<u8>> {
    let (mut parser, mut found) = (Parser::default(), Vec::new());
    let now = Instant::ORIGIN + Nanos::from_secs(5);
    for piece in pieces {
        parser.feed(now, piece, |message| {
            found.push(match message {
                Message::Dpdk(bytes) => bytes.to_vec(),
                Message::Own(line) => line.to_vec(),
                Message::TooLong => b"too long".to_vec(),
                Message::Incomplete(length) => panic!("{length} bytes were discarded"),
            });
        });
    }
    found
}

fuzz_target!(|data: &[u8]| {
    let [cut, data @ ..] = data else { return };
    let whole = messages(&mut std::iter::once(data));
    assert_eq!(messages(&mut data.chunks(usize::from(*cut) + 1)), whole);
    for message in whole {
        if let Ok(packet) = <&[u8; dpdk::LENGTH]>::try_from(&message[..]) {
            let meaning = Packet::read(packet);
            let answer = dpdk::acknowledged(packet, true);
            assert_eq!(answer[..12], packet[..12], "{meaning:?}");
            assert_eq!(dpdk::frequencies(packet, Some(&[1; 9]))[80], 8);
            assert_eq!(dpdk::capabilities(packet, None)[12], 2);
        } else if let Ok(request) = Request::read(&message) {
            let line = request.to_string();
            assert!(line.len() <= LONGEST + 1);
            assert_eq!(Request::read(line.trim_end().as_bytes()), Ok(request));
        }
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(answer) = text.parse::<Answer>()
    {
        let _ = answer.to_string().parse::<Answer>();
    }
});
