//! Virtual machines that request frequencies and idle-state limits through a channel to the host.
//!
//! The host's end is a [`Server`]; the messages are those of [`dpdk`] and of Apus's own [`protocol`]. [`Settings`]
//! applies the server's decisions through the crate `host`. The server does no I/O on the channels: the caller reads
//! and writes them. The guest's end is a [`client`].

mod bucket;
mod call;
pub mod client;
pub mod dpdk;
mod guest;
mod machine;
mod parser;
pub mod protocol;
mod record;
mod server;
mod settings;

pub use guest::OUTBOX;
pub use machine::{Domain, Manifest, Place};
pub use parser::{Message, Parser};
pub use record::{Applied, Counts, Event, Outside, Protocol, Record};
pub use server::{Server, Standing};
pub use settings::Settings;
