//! The guest's end of a channel: sends requests, and finds the answers to them among everything that arrives.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use super::protocol::{Answer, Ask, Id, LONGEST_ANSWER, MAGIC, Request};

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
    unsent: Vec<u8>,
    unread: Vec<u8>,
    answers: VecDeque<Answer>,
}

impl<P: Read + Write> Client<P> {
    /// Creates a client. `session` should be a random number: if an earlier program used the same number, its answers
    /// would be mistaken for this client's.
    pub fn new(port: P, session: u32) -> Self {
        Self { port, session, next: 0, unsent: Vec::new(), unread: Vec::new(), answers: VecDeque::new() }
    }

    /// Sends a request, or queues it until the host reads the port. Returns the ID that the answer will have. If too
    /// many requests are queued, the new one is dropped and gets no answer.
    pub fn ask(&mut self, ask: Ask, vcpu: u16) -> io::Result<Id> {
        let id: Id = format!("{:08x}{:08x}", self.session, self.next).parse().map_err(io::Error::other)?;
        self.next = self.next.wrapping_add(1);
        let line = Request { id, ask, vcpu }.to_string();
        if self.unsent.len() + line.len() <= UNSENT {
            self.unsent.extend_from_slice(line.as_bytes());
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
        while !self.unsent.is_empty() {
            match self.port.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; LONGEST_ANSWER];
        loop {
            match self.port.read(&mut buffer) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the host closed the channel")),
                Ok(length) => self.heard(&buffer[..length]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
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
            let length = bytes.len().min(7);
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
    fn what_nobody_reads_is_bounded() {
        let mut client = Client::new(Port { is_full: true, ..Port::default() }, 1);
        for _ in 0..10_000 {
            let id = client.ask(Ask::Release, 3).unwrap();
            client.port.to_read.extend(line(id.as_str(), "granted"));
            let other = client.ask(Ask::State, 3).unwrap();
            assert_eq!(client.answer(other).unwrap(), None);
        }
        assert!(client.unsent.len() <= UNSENT && client.answers.len() <= UNCLAIMED);
        client.port.to_read.extend(vec![b'x'; 100_000]);
        let id = client.ask(Ask::State, 3).unwrap();
        assert_eq!(client.answer(id).unwrap(), None);
        assert!(client.unread.len() <= LONGEST_ANSWER);
    }
}
