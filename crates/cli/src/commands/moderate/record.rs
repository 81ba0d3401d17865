//! Records the calls of DIM in the format that `apus dim replay` reads.
//!
//! Lines are buffered, and only whole lines are written. So a file to which a killed process wrote can be continued.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;
use steer::moderation::Call;
use units::Monotonic;

use super::interface::DIM_BEGINS;
use super::note;

/// The file of one queue.
#[derive(Debug)]
pub(super) struct Recorder {
    out: BufWriter<File>,
    path: String,
    /// Whether a write failed. Then the recording has ended: a gap would make a replay fail.
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
        let begun = headed.and_then(|()| writeln!(out, "reset,0,0,0,0,0,0,{DIM_BEGINS},0,0,0"));
        begun.and_then(|()| out.flush()).with_context(failed)?;
        Ok(Self { out, path: shown, failed: false })
    }

    /// Adds a call. If this fails for the first time, returns the reason; from then on, nothing is recorded.
    pub(super) fn add(&mut self, call: &Call<Monotonic>) -> Option<String> {
        if self.failed {
            return None;
        }
        let Call { applied, sample, after } = call;
        // As one piece, which the buffer does not divide.
        let line = format!(
            "{},{},{},{},{},{},{},{},{},{},{}\n",
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
        let written = self.out.write_all(line.as_bytes());
        self.news(written)
    }

    /// The reason of a failure, if it is the first one.
    fn news(&mut self, written: std::io::Result<()>) -> Option<String> {
        let error = written.err()?;
        let why = || format!("cannot write {}, so the recording ends here: {error}", self.path);
        (!std::mem::replace(&mut self.failed, true)).then(why)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let written = self.out.flush();
        self.news(written).into_iter().for_each(|failed| note(&failed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::moderation::{Direction, NetDim, PeriodMode, Sample};
    use units::Instant;

    fn folder(test: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("apus-record-{}-{test}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Regression test: a recording that was killed ended within a line, to which the next one added.
    #[test]
    fn what_a_killed_process_wrote_can_be_continued() {
        let folder = folder("killed");
        let after = NetDim::<Monotonic>::new(Direction::Rx, PeriodMode::Eqe, DIM_BEGINS).unwrap().snapshot();
        for _ in 0..2 {
            let mut recorder = Recorder::new(&folder, "eth0", 3).unwrap();
            for n in 0..500u64 {
                let (events, packets, bytes) = (n * 97, n * 977, n * 97_777);
                let sample = Sample {
                    now: Instant::from_nanos(n * 5_000_017),
                    events,
                    packets,
                    bytes,
                    completions: 0,
                    delays: None,
                };
                assert_eq!(recorder.add(&Call { applied: false, sample, after }), None);
            }
            // As after a kill: what is buffered is lost.
            std::mem::forget(recorder);
        }
        let text = std::fs::read_to_string(folder.join("eth0-3.csv")).unwrap();
        assert!(text.ends_with('\n') && text.lines().all(|line| line.split(',').count() == 11), "{text}");
        assert!(text.lines().count() > 500, "{text}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Regression test: on a full disk, a short recording was empty, and nothing was said.
    #[test]
    fn a_full_disk_is_said_at_the_beginning() {
        let folder = folder("full");
        std::os::unix::fs::symlink("/dev/full", folder.join("eth0-3.csv")).unwrap();
        let error = format!("{:#}", Recorder::new(&folder, "eth0", 3).unwrap_err());
        assert!(error.contains("eth0-3.csv") && error.contains("No space left"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
