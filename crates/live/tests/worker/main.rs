//! The loop in a world of its own: virtual time, scripted arrivals, no sleep.

/// Received = sent + drops, whatever happens.
mod accounting;
/// The loop calls the allocator not once.
mod allocations;
/// Frames that stay in the packet buffers of their driver.
mod in_place;
/// Virtual time, and what happens when.
mod scripted;
/// Counts calls of the allocator.
mod sys;
/// Waits: what the policy is told, the second poll, gaps, the stop.
mod waits;
