//! libapus as its users have it: the shared library, the header, and C programs.

mod built;
mod calls;
mod examples;
mod header;
mod process;
mod programs;
mod telemetry;

use std::path::PathBuf;
use std::process::Command;

use built::*;
