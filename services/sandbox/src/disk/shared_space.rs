//! Space on the disk that all tenants share for what could be brought again: layers, installs and mirrors. It decides what leaves when something new needs room;
//! the disk is elsewhere.

use domain::ids::TenantId;
use std::{cmp::Reverse, collections::HashMap, time::SystemTime};

/// Something that is on the disk.
#[derive(Debug, Clone)]
pub struct Holding<K> {
    pub key: K,
    /// The tenant whose share it takes. `None`: whoever brought it named no tenant.
    pub tenant: Option<TenantId>,
    pub bytes: u64,
    /// When somebody last wanted it.
    pub used_at: SystemTime,
    /// Whether it is in use, so that it stays.
    pub is_used: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Newcomer {
    /// As in [`Holding`].
    pub tenant: Option<TenantId>,
    pub bytes: u64,
}

/// Why something does not fit, whatever leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// What its tenant uses takes the tenant's share.
    Own,
    /// What all tenants use takes all.
    All,
}

/// What one tenant may have of all bytes: three quarters are enough for a tenant alone, and others find room.
pub fn share(bytes_max: u64) -> u64 {
    bytes_max - bytes_max / 4
}

/// Chooses what leaves so that `new` fits: into the share of its tenant, and with all others into `bytes_max`. What leaves belongs to the tenant that has most, so a
/// tenant that brings much pushes out its own, and one that has little finds room. Of one tenant's, that which was unused for longest leaves first.
///
/// # Errors
/// It does not fit. Then nothing should leave.
pub fn make_room<K>(mut holdings: Vec<Holding<K>>, new: Newcomer, bytes_max: u64) -> Result<Vec<K>, NoRoom> {
    let (mut total, mut of_tenants) = (new.bytes, HashMap::from([(new.tenant, new.bytes)]));
    for held in &holdings {
        let of_tenant = of_tenants.entry(held.tenant).or_default();
        *of_tenant = held.bytes.saturating_add(*of_tenant);
        total = total.saturating_add(held.bytes);
    }
    holdings.retain(|held| !held.is_used);
    let own_max = new.tenant.map_or(u64::MAX, |_| share(bytes_max));
    let mut leaving = Vec::new();
    loop {
        let is_beyond_share = of_tenants.get(&new.tenant).is_some_and(|own| *own > own_max);
        if !is_beyond_share && total <= bytes_max {
            return Ok(leaving);
        }
        let may_leave = |held: &Holding<K>| !is_beyond_share || held.tenant == new.tenant;
        let next = holdings.iter().enumerate().filter(|(_, held)| may_leave(held));
        let next =
            next.max_by_key(|(_, held)| (of_tenants.get(&held.tenant).copied(), Reverse(held.used_at)));
        let Some((at, _)) = next else {
            return Err(if is_beyond_share { NoRoom::Own } else { NoRoom::All });
        };
        let Holding { key, tenant, bytes, .. } = holdings.swap_remove(at);
        total = total.saturating_sub(bytes);
        of_tenants.entry(tenant).and_modify(|of_tenant| *of_tenant = of_tenant.saturating_sub(bytes));
        leaving.push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What of `holdings` leaves for `bytes` of tenant `new`, if all may take 100 bytes. A tenant is a letter, and `-` is none. A holding is its tenant, its bytes and
    /// the second of its last use; 0: it is in use.
    fn leaving(holdings: &[(char, u64, u64)], new: char, bytes: u64) -> Result<Vec<usize>, NoRoom> {
        let tenant = |letter: char| (letter != '-').then(|| TenantId(uuid::Uuid::from_u128(letter.into())));
        let holding = |(key, (letter, bytes, second)): (usize, &(char, u64, u64))| Holding {
            key,
            tenant: tenant(*letter),
            bytes: *bytes,
            used_at: SystemTime::UNIX_EPOCH + Duration::from_secs(*second),
            is_used: *second == 0,
        };
        let holdings = holdings.iter().enumerate().map(holding).collect();
        make_room(holdings, Newcomer { tenant: tenant(new), bytes }, 100)
    }

    #[test]
    fn the_tenant_that_has_most_gives_room_and_never_what_is_used() {
        for (holdings, new, bytes, want) in [
            (&[('a', 70, 1)][..], 'a', 5, Ok(vec![])),
            // A tenant stays within its share, although there is space.
            (&[('a', 40, 2), ('a', 30, 1)], 'a', 10, Ok(vec![1])),
            (&[('a', 70, 0)], 'a', 6, Err(NoRoom::Own)),
            (&[], 'a', 76, Err(NoRoom::Own)),
            // One that brings much pushes out its own, not what others have not used for longer.
            (&[('a', 60, 9), ('b', 20, 1), ('c', 20, 2)], 'a', 15, Ok(vec![0])),
            // One that has little finds room.
            (&[('a', 30, 8), ('a', 40, 9), ('b', 30, 1)], 'b', 20, Ok(vec![0])),
            (&[('a', 75, 3), ('b', 25, 1)], 'c', 10, Ok(vec![0])),
            // The one that has most may use it all.
            (&[('a', 70, 0), ('b', 25, 4), ('c', 5, 3)], 'c', 10, Ok(vec![1])),
            (&[('a', 75, 0), ('b', 25, 0)], 'c', 1, Err(NoRoom::All)),
            // What nobody brought has no share, and leaves like that of a tenant.
            (&[('-', 90, 1), ('a', 10, 2)], '-', 5, Ok(vec![0])),
            (&[('-', 50, 1), ('-', 50, 2)], 'a', 10, Ok(vec![0])),
            (&[('a', 10, 1)], 'a', u64::MAX, Err(NoRoom::Own)),
            (&[('a', 10, 0)], '-', u64::MAX, Err(NoRoom::All)),
        ] {
            assert_eq!(leaving(holdings, new, bytes), want, "{holdings:?} {new} {bytes}");
        }
    }

    #[test]
    fn the_crowd_of_one_tenant_leaves_a_quarter_to_others() {
        let mut held = vec![('b', 25, 1)];
        for second in 2..100 {
            for at in leaving(&held, 'a', 10).unwrap_or_default() {
                assert_eq!(held.remove(at).0, 'a', "{held:?}");
            }
            held.push(('a', 10, second));
        }
        assert_eq!(held.len(), 8);
    }
}
