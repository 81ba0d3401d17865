//! Records the calls of DIM in the format that `apus dim replay` reads.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;
use steer::moderation::Call;
use units::Monotonic;

use super::interface::DIM_BEGINS;

/// The file of one queue.
#[derive(Debug)]
pub(super) struct Recorder {
    out: BufWriter<File>,
    path: String,
    /// Whether a write failed. The failure is reported only once.
    failed: bool,
}

impl Recorder {
    /// Starts a new instance of DIM in the file `INTERFACE-QUEUE.csv` in `folder`. Creates the folder if it does not
    /// exist, and appends to an existing file.
    pub(super) fn new(folder: &Path, interface: &str, queue: u32) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
        let path = folder.join(format!("{interface}-{queue}.csv"));
        let shown = path.display().to_string();
        let failed = || format!("cannot write {shown}");
        let file = File::options().create(true).append(true).open(&path).with_context(failed)?;
        let is_new = file.metadata().with_context(failed)?.len() == 0;
        let mut out = BufWriter::new(file);
        let header = "apply,time_ns,events,packets,bytes,state,tune_state,profile_ix,steps_right,steps_left,tired";
        let headed = if is_new { writeln!(out, "{header}") } else { Ok(()) };
        headed.and_then(|()| writeln!(out, "reset,0,0,0,0,0,0,{DIM_BEGINS},0,0,0")).with_context(failed)?;
        Ok(Self { out, path: shown, failed: false })
    }

    /// Adds a call. If this fails for the first time, returns the reason.
    pub(super) fn add(&mut self, call: &Call<Monotonic>) -> Option<String> {
        let Call { applied, sample, after } = call;
        let written = writeln!(
            self.out,
            "{},{},{},{},{},{},{},{},{},{},{}",
            u8::from(*applied),
            sample.now.as_nanos(),
            sample.events,
            sample.packets,
            sample.bytes,
            after.state as u8,
            after.tune_state as u8,
            after.profile_ix,
            after.steps_right,
            after.steps_left,
            after.tired,
        );
        let error = written.err()?;
        (!std::mem::replace(&mut self.failed, true)).then(|| format!("cannot write {}: {error}", self.path))
    }
}
