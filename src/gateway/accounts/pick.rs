//! The choice, pure: eligible, then in good health, then with a free place, then paid before free, then tokens before
//! keys among the paid, then the operator's priority, then who speaks the protocol of the request before who needs it
//! translated, then the one that a conversation has been with, then the least loaded for its size. A seed spreads what
//! is left.
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
    /// Whether the request goes there as it is: translated it costs a text model's tokens too.
    pub(super) native: bool,
    /// How much a conversation prefers it to others, so that it comes back to where its beginning is cached; the same
    /// for all where there is no conversation.
    pub(super) affinity: u64,
    /// Places taken, in thousandths of all places.
    pub(super) load: u32,
}

/// What two candidates are compared by; the smaller goes first.
pub(super) type Rank = (
    Reverse<bool>,
    bool,
    Reverse<bool>,
    Reverse<bool>,
    Reverse<bool>,
    Reverse<i32>,
    Reverse<bool>,
    Reverse<u64>,
    u32,
    u64,
);

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

/// How much a conversation prefers an account, by rendezvous: every node and every life of a process finds the same
/// without a memory, and where an account comes or goes only its own conversations move.
pub(super) fn affinity(session: &[u8], account: &str) -> u64 {
    // FNV-1a over both, with a byte between them that stands in no name; scattered, because its high bits mix too little.
    let bytes = session.iter().copied().chain([0]).chain(account.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    scatter(hash, 0)
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
            Reverse(self.native),
            Reverse(self.affinity),
            self.load,
            scatter(seed, u64::try_from(index).unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Candidate = Candidate {
        eligible: true,
        ejected: false,
        free: true,
        paid: true,
        kind: Kind::ApiKey,
        priority: 0,
        native: true,
        affinity: 0,
        load: 0,
    };

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
        let beloved = Candidate { affinity: u64::MAX, ..worst };
        first_wins(worst, Candidate { eligible: false, ..BASE });
        first_wins(Candidate { ejected: false, ..worst }, Candidate { ejected: true, ..BASE });
        first_wins(
            Candidate { free: true, ejected: false, ..worst },
            Candidate { free: false, kind: Kind::Oauth, priority: 9, ..BASE },
        );
        first_wins(Candidate { priority: -9, load: 999, ..BASE }, Candidate { paid: false, priority: 9, ..BASE });
        first_wins(Candidate { kind: Kind::Oauth, priority: -9, load: 999, ..BASE }, Candidate { priority: 9, ..BASE });
        first_wins(Candidate { priority: 1, native: false, load: 999, ..BASE }, BASE);
        first_wins(Candidate { load: 999, ..BASE }, Candidate { native: false, ..BASE });
        first_wins(Candidate { priority: 1, load: 999, ..BASE }, BASE);
        first_wins(BASE, beloved);
        first_wins(Candidate { priority: 1, ..BASE }, Candidate { affinity: 9, ..BASE });
        first_wins(Candidate { affinity: 9, load: 999, ..BASE }, Candidate { affinity: 8, ..BASE });
        first_wins(Candidate { load: 250, ..BASE }, Candidate { load: 500, ..BASE });
    }

    #[test]
    fn a_token_goes_before_a_key_only_among_the_paid() {
        let free = Candidate { paid: false, ..BASE };
        first_wins(Candidate { priority: 1, ..free }, Candidate { kind: Kind::Oauth, ..free });
    }

    /// The index of the account that a conversation is with.
    fn home(session: &str, accounts: &[&str], seed: u64) -> usize {
        let candidate = |account: &&str| Candidate { affinity: affinity(session.as_bytes(), account), ..BASE };
        pick(&accounts.iter().map(candidate).collect::<Vec<_>>(), seed).unwrap()
    }

    #[test]
    fn a_conversation_stays_where_it_is_whatever_the_seed_and_the_order() {
        for number in 0..200_u64 {
            let session = format!("0199-{number}");
            let first = home(&session, &["a", "b", "c"], number);
            assert_eq!(home(&session, &["a", "b", "c"], number * 7 + 1), first);
            assert_eq!(["c", "b", "a"][home(&session, &["c", "b", "a"], 3)], ["a", "b", "c"][first]);
        }
    }

    #[test]
    fn conversations_spread_and_only_those_of_a_lost_account_move() {
        let (all, left) = (["a", "b", "c", "d"], ["a", "b", "d"]);
        let mut homes = [0_u32; 4];
        for number in 0..4_000 {
            let session = format!("{number}");
            let before = home(&session, &all, 0);
            homes[before] += 1;
            let after = left[home(&session, &left, 0)];
            assert!(all[before] == "c" || after == all[before], "{session} moved from {} to {after}", all[before]);
        }
        // 1000 expected, standard deviation 27.
        assert!(homes.iter().all(|count| (860..1140).contains(count)), "{homes:?}");
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
