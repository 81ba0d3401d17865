//! The guest's end of a channel: sends requests, and finds the answers to them among everything that arrives.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::mem::{Discriminant, discriminant};

use super::protocol::{Answer, Ask, Id, LONGEST_ANSWER, MAGIC, Request};

/// Maximum number of reads in a row.
const READS: usize = 64;

/// Size of the queue for requests that the host has not read yet, in bytes. Further requests are dropped.
const UNSENT: usize = 4096;
/// Maximum number of received answers that [`Client::answer`] has not fetched yet. Usually a client has at most one
/// unanswered request per vCPU.
const UNCLAIMED: usize = 256;

/// The guest's end of a channel to the host. All vCPUs of the guest share it.
///
/// The port must be non-blocking: reads and writes that cannot be done at once must fail with
/// [`io::ErrorKind::WouldBlock`].
#[derive(Debug)]
pub struct Client<P> {
    port: P,
    /// Number in this client's IDs that distinguishes them from the IDs of programs that used the port before.
    session: u32,
    next: u32,
    unsent: VecDeque<Queued>,
    /// Number of bytes of the first queued request that are sent already.
    sent: usize,
    unread: Vec<u8>,
    answers: VecDeque<Answer>,
    reopen: Option<Reopen<P>>,
    /// Whether the channel failed and must be opened again.
    is_broken: bool,
}

/// A request that the host has not read yet.
#[derive(Debug)]
struct Queued {
    vcpu: u16,
    kind: Discriminant<Ask>,
    line: Vec<u8>,
}

/// Opens the channel again after it failed.
struct Reopen<P>(Box<dyn FnMut() -> io::Result<P> + Send>);

impl<P> fmt::Debug for Reopen<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reopen")
    }
}

impl<P: Read + Write> Client<P> {
    /// Creates a client. `session` should be a random number: if an earlier program used the same number, its answers
    /// would be mistaken for this client's.
    pub fn new(port: P, session: u32) -> Self {
        let (unsent, unread, answers) = (VecDeque::new(), Vec::new(), VecDeque::new());
        Self { port, session, next: 0, unsent, sent: 0, unread, answers, reopen: None, is_broken: false }
    }

    /// Opens the channel again with `reopen` after it failed: at each query of a state ([`Ask::State`]) until it is
    /// open. A socket needs this when the host's service restarts; the device of a virtio-serial port stays open.
    pub fn with_reopen(self, reopen: impl FnMut() -> io::Result<P> + Send + 'static) -> Self {
        Self { reopen: Some(Reopen(Box::new(reopen))), ..self }
    }

    /// Sends a request, or queues it until the host reads the port. Returns the ID that the answer will have. A queued
    /// request of the same kind for the same vCPU is replaced: it is out of date. If too many requests are queued, this
    /// request is dropped. Requests that are replaced or dropped get no answer.
    pub fn ask(&mut self, ask: Ask, vcpu: u16) -> io::Result<Id> {
        if self.is_broken {
            match &mut self.reopen {
                Some(Reopen(reopen)) if ask == Ask::State => self.port = reopen()?,
                _ => return Err(io::Error::new(io::ErrorKind::NotConnected, "the channel is closed")),
            }
            self.is_broken = false;
        }
        let id: Id = format!("{:08x}{:08x}", self.session, self.next).parse().map_err(io::Error::other)?;
        self.next = self.next.wrapping_add(1);
        let line = Request { id, ask, vcpu }.to_string().into_bytes();
        let kind = discriminant(&ask);
        let mut begun = self.sent > 0;
        // The rest of a request that is partly sent must follow.
        self.unsent.retain(|one| std::mem::take(&mut begun) || (one.vcpu, one.kind) != (vcpu, kind));
        if self.unsent.iter().map(|one| one.line.len()).sum::<usize>() + line.len() <= UNSENT {
            self.unsent.push_back(Queued { vcpu, kind, line });
        }
        self.send()?;
        Ok(id)
    }

    /// Whether a request is still queued because the host has not read the port.
    pub fn is_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends and receives as much as the port allows now. Returns the answer to the request `id`, or `None` if the
    /// answer has not arrived yet.
    pub fn answer(&mut self, id: Id) -> io::Result<Option<Answer>> {
        let moved = self.send().and_then(|()| self.receive());
        // Return it even if it arrived before the channel was closed.
        let at = self.answers.iter().position(|answer| answer.id == id);
        match at.and_then(|at| self.answers.remove(at)) {
            Some(answer) => Ok(Some(answer)),
            None => moved.map(|()| None),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while let Some(first) = self.unsent.front() {
            match self.port.write(&first.line[self.sent..]) {
                // Not an error: a port may accept nothing now.
                Ok(0) => break,
                Ok(written) => self.sent += written,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(self.fail(e)),
            }
            if self.sent >= first.line.len() {
                self.unsent.pop_front();
                self.sent = 0;
            }
        }
        Ok(())
    }

    /// Handles a failure of the channel. The host has then dropped the guest's requests, so the queued ones are out of
    /// date.
    fn fail(&mut self, error: io::Error) -> io::Error {
        // Ends a request that is partly sent, so that the next one begins a line.
        let is_cut = std::mem::take(&mut self.sent) > 0 && self.reopen.is_none();
        self.unsent.clear();
        if is_cut {
            self.unsent.push_back(Queued { vcpu: 0, kind: discriminant(&Ask::State), line: b"\n".to_vec() });
        }
        self.unread.clear();
        self.is_broken = self.reopen.is_some();
        error
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; LONGEST_ANSWER];
        // Not for ever, because the caller has a deadline: a port may be as endless as /dev/zero.
        for _ in 0..READS {
            match self.port.read(&mut buffer) {
                Ok(0) => {
                    let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the host closed the channel");
                    return Err(self.fail(error));
                }
                Ok(length) => self.heard(&buffer[..length]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(self.fail(e)),
            }
        }
        Ok(())
    }

    /// Stores the answers to this client. Answers to other programs, including DPDK's binary ones, are skipped.
    fn heard(&mut self, bytes: &[u8]) {
        let mine = format!("{:08x}", self.session);
        for byte in bytes {
            if *byte != b'\n' {
                self.unread.push(*byte);
                // A line that is longer than any answer, and whose beginning is lost, is not an answer.
                let excess = self.unread.len().saturating_sub(LONGEST_ANSWER);
                self.unread.drain(..excess);
                continue;
            }
            let begin = self.unread.windows(MAGIC.len()).rposition(|window| window == MAGIC);
            let line = begin.map(|begin| String::from_utf8_lossy(&self.unread[begin..]).into_owned());
            self.unread.clear();
            let answer = line.and_then(|line| line.parse::<Answer>().ok());
            self.answers.extend(answer.filter(|answer| answer.id.as_str().starts_with(&mine)));
            if self.answers.len() > UNCLAIMED {
                self.answers.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Verdict;
    use super::*;

    /// A port whose host's end the test controls.
    #[derive(Default)]
    struct Port {
        written: Vec<u8>,
        to_read: VecDeque<u8>,
        is_full: bool,
        is_closed: bool,
        /// Number of bytes that the port still takes. `None` for no limit.
        room: Option<usize>,
    }

    impl Read for Port {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.to_read.is_empty() && !self.is_closed {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.to_read.read(buffer)
        }
    }

    impl Write for Port {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.is_full {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // In pieces, as a port that is nearly full does.
            let length = bytes.len().min(7).min(self.room.unwrap_or(7));
            if length == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if let Some(room) = &mut self.room {
                *room -= length;
            }
            self.written.extend_from_slice(&bytes[..length]);
            Ok(length)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(id: &str, verdict: &str) -> Vec<u8> {
        format!("apus/1 {id} {verdict} vcpu=1 khz=800000 idle_us=- range_khz=800000-3000000 because as asked\n").into()
    }

    #[test]
    fn an_answer_is_found_among_those_to_others() {
        let mut client = Client::new(Port::default(), 0xa1);
        let id = client.ask(Ask::State, 1).unwrap();
        assert_eq!(client.port.written, format!("apus/1 {id} state vcpu=1\n").into_bytes());
        // A DPDK answer without a line end, an answer to somebody else, and nonsense.
        let others = [&[1_u8, 0, 0, 0, 0xff][..], &line("7", "granted"), b"apus/1 000000a1 what\n", &[0xfe; 1_000]];
        client.port.to_read.extend(others.concat());
        client.port.to_read.extend(line(id.as_str(), "held"));
        let answer = client.answer(id).unwrap().unwrap();
        assert_eq!((answer.verdict, answer.range_khz), (Verdict::Held, Some((800_000, 3_000_000))));
        assert_eq!(client.answer(id).unwrap(), None, "it is handed out once");
        let id = client.ask(Ask::State, 1).unwrap();
        client.port.to_read.extend(line(id.as_str(), "granted"));
        client.port.is_closed = true;
        assert_eq!(client.answer(id).unwrap().unwrap().verdict, Verdict::Granted, "it came before the end");
        assert_eq!(client.answer(id).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_request_that_is_out_of_date_is_replaced_and_one_that_is_begun_is_finished() {
        let mut client = Client::new(Port { room: Some(10), ..Port::default() }, 1);
        let first = client.ask(Ask::State, 3).unwrap();
        client.ask(Ask::State, 3).unwrap();
        let other = client.ask(Ask::State, 4).unwrap();
        let last = client.ask(Ask::State, 3).unwrap();
        client.port.room = None;
        client.answer(last).unwrap();
        let sent = format!("apus/1 {first} state vcpu=3\napus/1 {other} state vcpu=4\napus/1 {last} state vcpu=3\n");
        assert_eq!(String::from_utf8_lossy(&client.port.written), sent);
    }

    #[test]
    fn a_broken_channel_is_opened_again() {
        let mut client = Client::new(Port { is_full: true, ..Port::default() }, 1).with_reopen(|| Ok(Port::default()));
        client.ask(Ask::Release, 3).unwrap();
        client.port.is_closed = true;
        let id = client.ask(Ask::State, 3).unwrap();
        assert_eq!(client.answer(id).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(client.ask(Ask::Release, 3).unwrap_err().kind(), io::ErrorKind::NotConnected);
        let id = client.ask(Ask::State, 3).unwrap();
        // What was queued for the old connection is not sent.
        assert_eq!(client.port.written, format!("apus/1 {id} state vcpu=3\n").into_bytes());
    }

    #[test]
    fn what_nobody_reads_is_bounded() {
        let mut client = Client::new(Port { is_full: true, ..Port::default() }, 1);
        for _ in 0..10_000 {
            let id = client.ask(Ask::Release, 3).unwrap();
            client.port.to_read.extend(line(id.as_str(), "granted"));
            let other = client.ask(Ask::State, 3).unwrap();
            assert_eq!(client.answer(other).unwrap(), None);
        }
        assert!(client.unsent.len() == 2 && client.answers.len() <= UNCLAIMED, "one request of each kind is queued");
        client.port.to_read.extend(vec![b'x'; 100_000]);
        let id = client.ask(Ask::State, 3).unwrap();
        assert_eq!(client.answer(id).unwrap(), None);
        assert!(client.unread.len() <= LONGEST_ANSWER);
    }

    /// `apus power request --port /dev/zero --timeout 500ms` once never ended.
    #[test]
    fn a_port_that_never_ends_is_left_after_a_while() {
        struct Endless;
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(0);
                Ok(buffer.len())
            }
        }
        impl Write for Endless {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut client = Client::new(Endless, 1);
        let id = client.ask(Ask::State, 0).unwrap();
        assert_eq!(client.answer(id).unwrap(), None);
    }
}
