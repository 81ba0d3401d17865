//! A minimal HTTP/1.1 server (RFC 9112) for scrapers: one GET per connection. The size of the request, the time to send
//! it, the time to receive the answer, and the number of connections are all limited.
//!
//! ```text
//!             whole head, or too long, or too slow            all sent            closed, or late
//!   Reading ─────────────────────────────────────► Sending ─────────────► Ending ─────────────────► gone
//! ```
//! One thread serves all connections without blocking on any of them. If the maximum number of connections is reached,
//! a new connection replaces the oldest one. A scrape takes about a millisecond, so the oldest connection is an idle
//! one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::terminal;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// OpenMetrics text 1.0, which prometheus-client writes.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const LONGEST_HEAD: usize = 8 << 10;
const MOST_CONNECTIONS: usize = 16;
const REQUEST_TIME: Duration = Duration::from_secs(2);
const RESPONSE_TIME: Duration = Duration::from_secs(5);
/// How long to keep reading after the answer was sent. Unread data would make close() reset the connection, and the
/// client would lose the answer.
const ENDING_TIME: Duration = Duration::from_millis(100);
/// How long to wait before the next attempt after a connection could not be accepted. It still waits, so without a pause
/// the attempts would follow one another without end.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Answers requests until `ended` becomes readable.
pub fn serve(
    listener: &TcpListener,
    ended: &UnixStream,
    body: impl Fn() -> Result<String, live::Error>,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true).context("cannot serve")?;
    let mut connections: Vec<Connection> = Vec::new();
    // The time of the next attempt to accept, if the last one failed.
    let mut retry: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let accepts = if retry.is_some_and(|at| at > now) { PollFlags::empty() } else { PollFlags::IN };
        let mut fds = vec![PollFd::new(listener, accepts), PollFd::new(ended, PollFlags::IN)];
        fds.extend(connections.iter().map(|one| PollFd::new(&one.stream, one.waits_for())));
        let deadlines = connections.iter().map(|one| one.deadline).chain(retry.filter(|at| *at > now));
        let next = deadlines.map(|at| at.saturating_duration_since(now)).min();
        // Rounds up: if the wait ended before the deadline, another wait of no length would follow.
        let wait = next
            .map(|span| Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) + 1_000 });
        let wait = wait.map(|wait| Timespec { tv_nsec: wait.tv_nsec.min(999_999_999), ..wait });
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e).context("cannot wait for connections"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[1] {
            return Ok(());
        }
        let now = Instant::now();
        let mut ready_connections = ready[2..].iter();
        connections.retain_mut(|one| {
            let ready = ready_connections.next().copied().unwrap_or(false);
            one.step(now, ready, &body)
        });
        if ready[0] {
            let failed = accept(listener, &mut connections, now);
            if let (Err(e), None) = (&failed, retry) {
                let _ = writeln!(terminal::err(), "warning: cannot accept a connection: {e}");
            }
            retry = failed.is_err().then(|| now + ACCEPT_PAUSE);
        }
    }
}

/// Accepts new connections; closes the oldest if there are too many, and all after an error. Fails if that does not help.
fn accept(listener: &TcpListener, connections: &mut Vec<Connection>, now: Instant) -> io::Result<()> {
    // Accepts at most as many connections as there are places, so that each is read at least once before another one
    // replaces it.
    for _ in 0..MOST_CONNECTIONS {
        match listener.accept() {
            Ok((stream, _)) => {
                if connections.len() >= MOST_CONNECTIONS {
                    connections.remove(0);
                }
                if stream.set_nonblocking(true).is_ok() {
                    let state = State::Reading { head: Vec::new() };
                    connections.push(Connection { stream, deadline: now + REQUEST_TIME, state });
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock) => return Ok(()),
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            // For example, no file descriptor is free. Closing our connections frees some.
            Err(_) if !connections.is_empty() => connections.clear(),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A connected client.
struct Connection {
    stream: TcpStream,
    /// When the current state times out.
    deadline: Instant,
    state: State,
}

enum State {
    /// Receiving the request.
    Reading { head: Vec<u8> },
    /// Sending the answer.
    Sending { answer: Vec<u8>, sent: usize },
    /// The answer is sent; reads what the client still sends.
    Ending,
}

impl Connection {
    fn waits_for(&self) -> PollFlags {
        match self.state {
            State::Reading { .. } | State::Ending => PollFlags::IN,
            State::Sending { .. } => PollFlags::OUT,
        }
    }

    /// Continues as far as possible without blocking. Returns `false` when the connection is done.
    fn step(&mut self, now: Instant, ready: bool, body: &impl Fn() -> Result<String, live::Error>) -> bool {
        let is_late = now >= self.deadline;
        if !ready && !is_late {
            return true;
        }
        if let State::Reading { head } = &mut self.state {
            let response = match read_head(&mut self.stream, head) {
                Ok(Head::Whole) => respond(head, body),
                Ok(Head::TooLong) => {
                    Response::new(431, "Request Header Fields Too Large", "the request header is larger than 8 KiB\n")
                }
                Ok(Head::Partial) if is_late => {
                    Response::new(408, "Request Timeout", "the request took longer than 2 s\n")
                }
                Ok(Head::Partial) => return true,
                Ok(Head::Closed) | Err(_) => return false,
            };
            self.state = State::Sending { answer: response.bytes(), sent: 0 };
            self.deadline = now + RESPONSE_TIME;
        }
        if let State::Sending { answer, sent } = &mut self.state {
            while *sent < answer.len() {
                match self.stream.write(&answer[*sent..]) {
                    Ok(n) => *sent += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return e.kind() == io::ErrorKind::WouldBlock && now < self.deadline,
                }
            }
            if self.stream.shutdown(Shutdown::Write).is_err() {
                return false;
            }
            self.state = State::Ending;
            self.deadline = now + ENDING_TIME;
        }
        let mut rest = [0; 4096];
        for _ in 0..16 {
            match self.stream.read(&mut rest) {
                Ok(1..) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return now < self.deadline,
                Ok(0) | Err(_) => return false,
            }
        }
        false
    }
}

enum Head {
    Whole,
    Partial,
    TooLong,
    /// The client closed the connection before its request head was complete.
    Closed,
}

/// Reads the available part of the request head.
fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<Head> {
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(Head::Closed),
            Ok(n) => head.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Head::Partial),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n") {
            return Ok(Head::Whole);
        }
        if head.len() > LONGEST_HEAD {
            return Ok(Head::TooLong);
        }
    }
}

#[derive(PartialEq, Debug)]
struct Response {
    status: u16,
    reason: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    fn new(status: u16, reason: &'static str, body: impl Into<String>) -> Self {
        Self { status, reason, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    fn bytes(&self) -> Vec<u8> {
        let allow = if self.status == 405 { "Allow: GET\r\n" } else { "" };
        format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n{}",
            self.status,
            self.reason,
            self.content_type,
            self.body.len(),
            self.body
        )
        .into_bytes()
    }
}

fn respond(head: &[u8], body: &impl Fn() -> Result<String, live::Error>) -> Response {
    let line = head.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default().trim_end_matches('\r');
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Response::new(400, "Bad Request", "expected: GET /metrics HTTP/1.1\n");
    };
    if method != "GET" {
        return Response::new(405, "Method Not Allowed", "only GET is allowed\n");
    }
    match target.split('?').next() {
        Some("/metrics") => match body() {
            Ok(body) => Response { content_type: CONTENT_TYPE, ..Response::new(200, "OK", body) },
            Err(e) => Response::new(500, "Internal Server Error", format!("{e}\n")),
        },
        Some("/") => Response::new(200, "OK", "Apus metrics: see /metrics\n"),
        _ => Response::new(404, "Not Found", "see /metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    fn status(head: &str) -> u16 {
        respond(head.as_bytes(), &|| Ok("x 1\n".to_owned())).status
    }

    #[test]
    fn only_what_a_scraper_asks_for() {
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
        assert_eq!(status("GET /metrics?x=1 HTTP/1.0\n\n"), 200);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 200);
        assert_eq!(status("GET /etc/passwd HTTP/1.1\r\n\r\n"), 404);
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), 405);
        for bad in ["", "GET", "GET /metrics", "GET /metrics HTTP/2.0\r\n\r\n", "GET  /metrics HTTP/1.1\r\n\r\n"] {
            assert_eq!(status(bad), 400, "{bad:?}");
        }
    }

    #[test]
    fn an_unreadable_root_is_told_to_the_scraper() {
        let failing = || Err(live::Error::Invalid { what: "a".into(), why: "b".into() });
        assert_eq!(respond(b"GET /metrics HTTP/1.1\r\n\r\n", &failing).status, 500);
    }

    /// Starts a server with the body `x 1`. It ends when the returned stream is closed.
    fn server() -> (SocketAddr, UnixStream, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (ended, ends) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || serve(&listener, &ended, || Ok("x 1\n".to_owned())).unwrap());
        (address, ends, thread)
    }

    fn scrape(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Regression test: sixteen slow clients made every scrape fail for two seconds, again and again. The result does
    /// not depend on time: a new client replaces an old one.
    #[test]
    fn forty_slow_clients_keep_no_scrape_waiting() {
        let (address, ends, thread) = server();
        let mut slow: Vec<TcpStream> = Vec::new();
        for round in 0..3 {
            for _ in 0..40 {
                let mut stream = TcpStream::connect(address).unwrap();
                // Some clients send nothing, others a part of a request.
                if round != 1 {
                    let _ = stream.write_all(b"GET /met");
                }
                slow.push(stream);
            }
            for _ in 0..5 {
                let answer = scrape(address);
                assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\nx 1\n"), "{answer}");
            }
        }
        assert_eq!(slow.len(), 120, "and all are still open on their side");
        drop(ends);
        thread.join().unwrap();
    }

    #[test]
    fn times_are_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let start = Instant::now();
        let state = State::Reading { head: Vec::new() };
        let mut connection = Connection { stream, deadline: start + REQUEST_TIME, state };
        let body = || Ok(String::new());
        assert!(connection.step(start, false, &body));
        assert!(connection.step(start + REQUEST_TIME, false, &body), "it gets its answer");
        assert!(matches!(connection.state, State::Ending) && connection.deadline == start + REQUEST_TIME + ENDING_TIME);
        assert!(!connection.step(connection.deadline, false, &body));
        drop(connection);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }

    proptest! {
        #[test]
        fn no_request_panics(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = respond(&head, &|| Ok(String::new()));
        }
    }
}
