//! The memory of processes, for machines without a control group that limits it.

use std::fs;

const PAGE_BYTES: u64 = 4_096;

/// The memory that these processes use, without shared pages; bytes.
pub(super) fn used_bytes(pids: impl Iterator<Item = i32>) -> u64 {
    let pages = |pid| {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let mut fields = statm.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
        Some(fields.next()?.saturating_sub(fields.next()?))
    };
    pids.filter_map(pages).sum::<u64>() * PAGE_BYTES
}
