//! `drop`: receives frames and discards them, to measure reception alone.

use super::{App, Verdict};
use crate::telemetry::DropReason;

/// Drops every frame.
#[derive(Clone, Copy, Default, Debug)]
pub struct Drop;

impl App for Drop {
    #[inline]
    fn handle(&mut self, _port: usize, _frame: &mut [u8]) -> Verdict {
        Verdict::Drop(DropReason::Discard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_goes() {
        assert_eq!(Drop.handle(0, &mut []), Verdict::Drop(DropReason::Discard));
        assert_eq!(Drop.handle(3, &mut [0; 64]), Verdict::Drop(DropReason::Discard));
    }
}
