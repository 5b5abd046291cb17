//! The choice, pure: eligible, then in good health, then with a free place, then paid before free, then tokens before
//! keys among the paid, then the operator's priority, then the least loaded for its size. A seed spreads what is left.
//!
//! It carries the specification's preference for paid accounts, and for logins before keys among them.

use std::cmp::Reverse;

use super::account::Kind;

/// What the choice knows of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Whether it may serve this request at all.
    pub(super) eligible: bool,
    /// Whether it has failed so often lately that it is used only where nothing else is left.
    pub(super) ejected: bool,
    /// Whether a place is free: nobody waits for one account while another is idle.
    pub(super) free: bool,
    /// Whether it is paid for.
    pub(super) paid: bool,
    /// How it is let in.
    pub(super) kind: Kind,
    /// The operator's own order; higher goes first.
    pub(super) priority: i32,
    /// Places taken, in thousandths of all places.
    pub(super) load: u32,
}

/// What two candidates are compared by; the smaller goes first.
pub(super) type Rank = (Reverse<bool>, bool, Reverse<bool>, Reverse<bool>, Reverse<bool>, Reverse<i32>, u32, u64);

/// The index of the best candidate; of equals, the seed says which.
pub(super) fn pick(candidates: &[Candidate], seed: u64) -> Option<usize> {
    let eligible = candidates.iter().enumerate().filter(|(_, candidate)| candidate.eligible);
    eligible.min_by_key(|(index, candidate)| candidate.rank(*index, seed)).map(|(index, _)| index)
}

/// A number that looks like chance and depends on nothing but the seed and the place (`SplitMix64`).
pub(super) const fn scatter(seed: u64, place: u64) -> u64 {
    let mut mixed = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

// === impl Candidate ===

impl Candidate {
    /// The order of the choice, as one value.
    pub(super) fn rank(&self, index: usize, seed: u64) -> Rank {
        (
            Reverse(self.eligible),
            self.ejected,
            Reverse(self.free),
            Reverse(self.paid),
            Reverse(self.paid && self.kind == Kind::Oauth),
            Reverse(self.priority),
            self.load,
            scatter(seed, u64::try_from(index).unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Candidate =
        Candidate { eligible: true, ejected: false, free: true, paid: true, kind: Kind::ApiKey, priority: 0, load: 0 };

    /// The same for every seed.
    #[track_caller]
    fn check(candidates: &[Candidate], expected: Option<usize>) {
        for seed in 0..100 {
            assert_eq!(pick(candidates, seed), expected, "{candidates:?}, seed {seed}");
        }
    }

    #[track_caller]
    fn first_wins(first: Candidate, second: Candidate) {
        check(&[first, second], Some(0));
        check(&[second, first], Some(1));
    }

    #[test]
    fn nothing_is_chosen_of_nothing() {
        check(&[], None);
        check(&[Candidate { eligible: false, ..BASE }; 3], None);
    }

    #[test]
    fn each_rule_goes_before_all_that_follow() {
        let worst =
            Candidate { ejected: true, free: false, paid: false, kind: Kind::ApiKey, priority: -9, load: 999, ..BASE };
        first_wins(worst, Candidate { eligible: false, ..BASE });
        first_wins(Candidate { ejected: false, ..worst }, Candidate { ejected: true, ..BASE });
        first_wins(
            Candidate { free: true, ejected: false, ..worst },
            Candidate { free: false, kind: Kind::Oauth, priority: 9, ..BASE },
        );
        first_wins(Candidate { priority: -9, load: 999, ..BASE }, Candidate { paid: false, priority: 9, ..BASE });
        first_wins(Candidate { kind: Kind::Oauth, priority: -9, load: 999, ..BASE }, Candidate { priority: 9, ..BASE });
        first_wins(Candidate { priority: 1, load: 999, ..BASE }, BASE);
        first_wins(Candidate { load: 250, ..BASE }, Candidate { load: 500, ..BASE });
    }

    #[test]
    fn a_token_goes_before_a_key_only_among_the_paid() {
        let free = Candidate { paid: false, ..BASE };
        first_wins(Candidate { priority: 1, ..free }, Candidate { kind: Kind::Oauth, ..free });
    }

    #[test]
    fn equal_accounts_share() {
        let mut chosen = [0_u32; 5];
        for seed in 0..10_000 {
            chosen[pick(&[BASE; 5], seed).unwrap()] += 1;
        }
        // 2000 expected, standard deviation 40: five of them either way.
        assert!(chosen.iter().all(|count| (1800..2200).contains(count)), "{chosen:?}");
    }
}
