//! `apus metrics`: [`exposition`] writes the counters as text, including those of [`moderation`], [`steering`] and
//! [`guests`].
//! [`server`] answers HTTP requests with this text.

mod exposition;
mod guests;
mod moderation;
mod server;
mod steering;

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::Metrics;
use crate::{Failure, Status, terminal};

/// The folders in which running instances publish their state.
struct Folders {
    telemetry: PathBuf,
    moderation: PathBuf,
    steering: PathBuf,
    guests: PathBuf,
}

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

pub(super) fn run(typed: &Metrics) -> anyhow::Result<Status> {
    let folders = Folders {
        telemetry: typed.telemetry.root.clone(),
        moderation: typed.moderation.folder.clone(),
        steering: typed.steering.folder.clone(),
        guests: typed.serve.clone(),
    };
    for note in exposition::unread(&folders) {
        let _ = writeln!(terminal::err(), "warning: {note}");
    }
    serve(typed.listen, || Ok(()), move || exposition::read(&folders))
}

/// Serves the text that `body` returns at this address until a signal arrives. Calls `ready` when the port is open,
/// before it answers the first request.
pub(super) fn serve(
    address: SocketAddr,
    ready: impl FnOnce() -> anyhow::Result<()>,
    body: impl Fn() -> Result<String, live::Error>,
) -> anyhow::Result<Status> {
    // A signal writes a byte to this socket pair. The server waits for the byte and for connections at the same time.
    let (ended, signalled) = UnixStream::pair().context("cannot handle signals")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let signalled = signalled.try_clone().context("cannot handle signals")?;
        signal_hook::low_level::pipe::register(signal, signalled).context("cannot handle signals")?;
    }
    let listener = TcpListener::bind(address).map_err(|e| cannot_listen(address, &e))?;
    let address = listener.local_addr().context("cannot read the listening address")?;
    let mut out = terminal::out();
    writeln!(out, "serving http://{address}/metrics until Ctrl-C").and_then(|()| out.flush())?;
    if !address.ip().is_loopback() {
        let _ = writeln!(terminal::err(), "warning: anyone who can connect to {address} can read the counters");
    }
    ready()?;
    server::serve(&listener, &ended, body)?;
    Ok(Status::Good)
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    let fix = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "use another port, such as --listen {}:0 for a free one, or find its user: ss -ltnp 'sport = :{}'",
            shown_ip(address),
            address.port()
        ),
        io::ErrorKind::AddrNotAvailable => "use an address of this host: ip -brief address".to_owned(),
        io::ErrorKind::PermissionDenied => "use a port from 1024 to 65535".to_owned(),
        _ => "choose another address with --listen".to_owned(),
    };
    Failure::lacking(format!("cannot serve metrics on {address}"), error, fix)
}

fn shown_ip(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    }
}
