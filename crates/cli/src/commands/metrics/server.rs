//! Just enough HTTP/1.1 (RFC 9112) for a scraper: one GET a connection. Everything is bounded: the
//! request's size, the time for it, the time to take the answer, the connections at a time.

use crate::terminal;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// prometheus-client writes OpenMetrics text 1.0, which Prometheus reads as such.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const LONGEST_HEAD: usize = 8 << 10;
const MOST_CONNECTIONS: usize = 16;
const REQUEST_TIME: Duration = Duration::from_secs(2);
const RESPONSE_TIME: Duration = Duration::from_secs(5);

/// Answers until `ended` becomes readable.
pub fn serve(
    listener: &TcpListener,
    ended: &UnixStream,
    body: impl Fn() -> Result<String, live::Error> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true).context("serve")?;
    let body = Arc::new(body);
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e).context("wait for connections"),
        }
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
        match listener.accept() {
            Ok((stream, _)) => start(stream, &connections, &body),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {}
            Err(e) => {
                // Out of descriptors, say: it passes, but not at once.
                let _ = writeln!(terminal::err(), "warning: a connection was not accepted: {e}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Answers on a thread of its own, so that a slow client keeps nobody waiting.
fn start<B>(mut stream: TcpStream, connections: &Arc<AtomicUsize>, body: &Arc<B>)
where
    B: Fn() -> Result<String, live::Error> + Send + Sync + 'static,
{
    let slot = Slot(Arc::clone(connections));
    if slot.0.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
        let busy = Response::new(503, "Service Unavailable", "too many connections at a time\n");
        let _ = stream.set_write_timeout(Some(Duration::from_millis(10)));
        let _ = stream.write(&busy.bytes());
        return;
    }
    let body = Arc::clone(body);
    let answering = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        let _slot = slot;
        // A client that is gone or too slow has nobody to be told to.
        let _ = answer(&mut stream, &*body);
    });
    if let Err(e) = answering {
        let _ = writeln!(terminal::err(), "warning: a connection was not answered: {e}");
    }
}

/// Counts a connection until dropped.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(stream: &mut TcpStream, body: &impl Fn() -> Result<String, live::Error>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let response = match read_head(stream, Instant::now() + REQUEST_TIME)? {
        Head::Whole(head) => respond(&head, body),
        Head::TooLong => Response::new(431, "Request Header Fields Too Large", "at most 8 KiB\n"),
        Head::TooSlow => Response::new(408, "Request Timeout", "the request took longer than 2 s\n"),
        Head::Closed => return Ok(()),
    };
    send(stream, &response.bytes(), Instant::now() + RESPONSE_TIME)?;
    // What was not read yet would make close() reset the connection and take the answer with it.
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut rest = [0; 4096];
    for _ in 0..16 {
        if !matches!(stream.read(&mut rest), Ok(1..)) {
            break;
        }
    }
    Ok(())
}

enum Head {
    Whole(Vec<u8>),
    TooLong,
    TooSlow,
    /// Before a whole head had come.
    Closed,
}

fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Head> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let Some(left) = time_left(deadline) else { return Ok(Head::TooSlow) };
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(Head::Closed),
            Ok(n) => head.extend_from_slice(&buffer[..n]),
            Err(e) if timed_out(&e) => return Ok(Head::TooSlow),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n") {
            return Ok(Head::Whole(head));
        }
        if head.len() > LONGEST_HEAD {
            return Ok(Head::TooLong);
        }
    }
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = time_left(deadline).ok_or(io::ErrorKind::TimedOut)?;
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Not `Some(0)`: a timeout of 0 would mean none.
fn time_left(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
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
        return Response::new(405, "Method Not Allowed", "only GET\n");
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

    proptest! {
        #[test]
        fn no_request_panics(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = respond(&head, &|| Ok(String::new()));
        }
    }
}
