//! The profile tables of DIM.

use crate::moderation::{Direction, PeriodMode, Profile};

/// Number of profiles in each network table: `NET_DIM_PARAMS_NUM_PROFILES` in `include/linux/dim.h`.
pub const NET_PROFILES: usize = 5;
/// Number of profiles in the RDMA table: `RDMA_DIM_PARAMS_NUM_PROFILES` in `include/linux/dim.h`.
pub const RDMA_PROFILES: usize = 9;

/// Profiles as pairs of microseconds and packets.
type Table<const N: usize> = [(u32, u32); N];

/// `NET_DIM_RX_EQE_PROFILES` in `lib/dim/net_dim.c`.
const RX_EQE: Table<NET_PROFILES> = [(1, 256), (8, 256), (64, 256), (128, 256), (256, 256)];
/// `NET_DIM_RX_CQE_PROFILES`, same file.
const RX_CQE: Table<NET_PROFILES> = [(2, 256), (8, 128), (16, 64), (32, 64), (64, 64)];
/// `NET_DIM_TX_EQE_PROFILES`, same file.
const TX_EQE: Table<NET_PROFILES> = [(1, 128), (8, 128), (32, 128), (64, 128), (128, 128)];
/// `NET_DIM_TX_CQE_PROFILES`, same file.
const TX_CQE: Table<NET_PROFILES> = [(5, 128), (8, 64), (16, 32), (32, 32), (64, 32)];
/// `rdma_dim_prof` in `include/linux/dim.h`: microseconds and completions.
const RDMA: Table<RDMA_PROFILES> = [(1, 1), (1, 4), (2, 4), (2, 8), (4, 8), (16, 8), (16, 16), (32, 16), (32, 32)];

/// Ports `net_dim_get_rx_moderation` and `net_dim_get_tx_moderation`. `None` if the table has no such `index`.
pub fn net_profile(direction: Direction, mode: PeriodMode, index: u8) -> Option<Profile> {
    let table = match (direction, mode) {
        (Direction::Rx, PeriodMode::Eqe) => &RX_EQE,
        (Direction::Rx, PeriodMode::Cqe) => &RX_CQE,
        (Direction::Tx, PeriodMode::Eqe) => &TX_EQE,
        (Direction::Tx, PeriodMode::Cqe) => &TX_CQE,
    };
    table.get(usize::from(index)).map(|&(usecs, frames)| Profile { usecs, frames, mode })
}

/// A profile of the RDMA table; its `frames` are completions. `None` if the table has no such `index`.
pub fn rdma_profile(index: u8) -> Option<Profile> {
    RDMA.get(usize::from(index)).map(|&(usecs, frames)| Profile::eqe(usecs, frames))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_to_the_right_is_never_less_moderation_in_time() {
        for table in [RX_EQE, RX_CQE, TX_EQE, TX_CQE] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        assert!(RDMA.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
    }

    #[test]
    fn ends_where_the_table_ends() {
        for mode in [PeriodMode::Eqe, PeriodMode::Cqe] {
            for direction in [Direction::Rx, Direction::Tx] {
                assert_eq!(net_profile(direction, mode, 4).unwrap().mode, mode);
                assert_eq!(net_profile(direction, mode, 5), None);
            }
        }
        assert_eq!(rdma_profile(8), Some(Profile::eqe(32, 32)));
        assert_eq!(rdma_profile(9), None);
    }
}
