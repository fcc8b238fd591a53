//! An address for every pod, out of the edge's own part of the loopback network.

use std::{collections::BTreeSet, net::Ipv4Addr};

use serde::{Deserialize, Serialize};

/// As in `127.83.0.0/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub base: Ipv4Addr,
    pub bits: u8,
}

impl Range {
    fn size(self) -> u32 {
        1_u32.checked_shl(32 - u32::from(self.bits.min(32))).unwrap_or(u32::MAX)
    }

    fn place_of(self, address: Ipv4Addr) -> Option<u32> {
        let place = u32::from(address).checked_sub(u32::from(self.base))?;
        (place < self.size()).then_some(place)
    }

    /// The next free address after the one that was given out last: one that was just let go of may still be in somebody's cache.
    /// The first two and the last are nobody's.
    pub fn next(self, taken: &BTreeSet<Ipv4Addr>, last: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        let places = self.size().checked_sub(3)?;
        let after = last.and_then(|last| self.place_of(last)).map_or(0, |place| place.saturating_sub(1));
        // One more than is taken is enough to find a free one.
        (0..places.min(taken.len() as u32 + 1))
            .map(|step| Ipv4Addr::from(u32::from(self.base) + 2 + (after + step) % places))
            .find(|address| !taken.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(bits: u8) -> Range {
        Range { base: Ipv4Addr::new(127, 83, 0, 0), bits }
    }

    #[test]
    fn goes_round_and_finds_what_is_free() {
        let address = |last| Ipv4Addr::new(127, 83, 0, last);
        // A /29 has eight: 2 to 6 are given out.
        for (taken, last, next) in [
            (&[][..], None, Some(2)),
            (&[2], Some(2), Some(3)),
            (&[], Some(2), Some(3)),
            (&[3, 4], Some(3), Some(5)),
            (&[], Some(6), Some(2)),
            (&[6, 2], Some(6), Some(3)),
            (&[2, 3, 4, 5, 6], Some(4), None),
            (&[], Some(200), Some(2)),
        ] {
            let set = taken.iter().map(|last| address(*last)).collect();
            assert_eq!(range(29).next(&set, last.map(address)), next.map(address), "{taken:?} {last:?}");
        }
        assert_eq!(range(31).next(&BTreeSet::new(), None), None);
        assert_eq!(range(32).next(&BTreeSet::new(), None), None);
    }

    #[test]
    fn all_of_a_range_and_no_more() {
        let mut taken = BTreeSet::new();
        let mut last = None;
        while let Some(address) = range(24).next(&taken, last) {
            assert!(taken.insert(address));
            last = Some(address);
        }
        assert_eq!(taken.len(), 253);
    }
}
