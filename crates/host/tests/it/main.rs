//! Tests of what the crate offers to others, one binary: recorded hosts, damaged input, the live host, a
//! large host, reports of other tools.
//!
//! | module | is about |
//! | --- | --- |
//! | `recorded` | real machines, recorded by others |
//! | `damaged` | archives and folders that are broken, or meant to do harm |
//! | `live` | this machine, as root and as nobody |
//! | `large` | 512 CPUs and 4,000 interrupts |
//! | `reports` | reports of sos and must-gathers |
//! | `secrets` | planted secrets, none of which a snapshot holds |
//! | `snapshot` | snapshots by the program and by the script |

mod damaged;
mod large;
mod live;
mod recorded;
mod reports;
mod secrets;
mod snapshot;
mod support;
