//! Chooses an account, without I/O. Only eligible accounts are chosen. Among them, these criteria decide, in this
//! order: not ejected, a free slot, paid, OAuth (only among paid accounts), the operator's priority, no translation
//! between protocols, the preference of the conversation, and the lowest load for the size. A seed decides between
//! equal accounts. The account that has served a conversation goes before all of this (`Accounts::lease`).
//!
//! The specification demands the preference for paid accounts, and among them for OAuth over API keys.

use std::cmp::Reverse;

use crate::wire::admin::types::AccountKind;

/// The properties of an account that decide the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccountCandidate {
    /// True if the account may serve this request.
    pub(super) is_eligible: bool,
    /// True if the account has failed so often lately that it is used only if no other is left.
    pub(super) is_ejected: bool,
    /// True if a slot is free. This goes before the price, so that no request waits while another account is idle.
    pub(super) has_free_slot: bool,
    /// True if the account is paid for.
    pub(super) is_paid: bool,
    /// The kind of its credentials.
    pub(super) auth_kind: AccountKind,
    /// The priority that the operator has set; the higher one goes first.
    pub(super) priority: i32,
    /// True if the request is sent without translation. A translated request also costs tokens of a text model.
    pub(super) needs_no_translation: bool,
    /// The preference of a conversation for this account, so that the conversation returns to the account that
    /// has cached its beginning. The value is the same for all accounts if there is no conversation.
    pub(super) affinity: u64,
    /// The share of taken slots in thousandths; for a large request, of the slots for large requests.
    pub(super) load: u32,
}

/// The key by which two candidates are compared; the smaller one goes first.
pub(super) type CandidateRank = (
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

/// Returns the index of the best candidate; the seed decides between equal ones.
pub(super) fn pick(candidates: &[AccountCandidate], seed: u64) -> Option<usize> {
    let eligible = candidates.iter().enumerate().filter(|(_, candidate)| candidate.is_eligible);
    eligible.min_by_key(|(index, candidate)| candidate.rank(*index, seed)).map(|(index, _)| index)
}

/// Returns a pseudorandom number that depends only on the seed and the index (`SplitMix64`).
pub(super) const fn pseudo_random(seed: u64, index: u64) -> u64 {
    let mut mixed = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns a pseudorandom number below 1000 that depends only on the seed.
pub(super) const fn random_permille(seed: u64) -> u32 {
    (pseudo_random(seed, 0) % 1000) as u32
}

/// Returns the preference of a conversation for an account, by rendezvous hashing. Every node and every process
/// computes the same value without stored state. If an account is added or removed, only the conversations that prefer
/// it move.
pub(super) fn affinity(session: &[u8], account: &str) -> u64 {
    // FNV-1a over the session and the name, with a separator byte that no name contains. The result is mixed once more,
    // because FNV-1a mixes its high bits too little.
    let bytes = session.iter().copied().chain([0]).chain(account.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    pseudo_random(hash, 0)
}

// === impl AccountCandidate ===

impl AccountCandidate {
    /// Returns the criteria of the choice as one value that can be compared.
    pub(super) fn rank(&self, index: usize, seed: u64) -> CandidateRank {
        (
            Reverse(self.is_eligible),
            self.is_ejected,
            Reverse(self.has_free_slot),
            Reverse(self.is_paid),
            Reverse(self.is_paid && self.auth_kind == AccountKind::Oauth),
            Reverse(self.priority),
            Reverse(self.needs_no_translation),
            Reverse(self.affinity),
            self.load,
            pseudo_random(seed, index as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: AccountCandidate = AccountCandidate {
        is_eligible: true,
        is_ejected: false,
        has_free_slot: true,
        is_paid: true,
        auth_kind: AccountKind::ApiKey,
        priority: 0,
        needs_no_translation: true,
        affinity: 0,
        load: 0,
    };

    /// Checks that every seed gives the same choice.
    #[track_caller]
    fn check(candidates: &[AccountCandidate], expected: Option<usize>) {
        for seed in 0..100 {
            assert_eq!(pick(candidates, seed), expected, "{candidates:?}, seed {seed}");
        }
    }

    #[track_caller]
    fn first_wins(first: AccountCandidate, second: AccountCandidate) {
        check(&[first, second], Some(0));
        check(&[second, first], Some(1));
    }

    #[test]
    fn no_account_is_chosen_if_none_is_eligible() {
        check(&[], None);
        check(&[AccountCandidate { is_eligible: false, ..BASE }; 3], None);
    }

    #[test]
    fn each_criterion_precedes_all_that_follow() {
        let worst = AccountCandidate {
            is_ejected: true,
            has_free_slot: false,
            is_paid: false,
            auth_kind: AccountKind::ApiKey,
            priority: -9,
            load: 999,
            ..BASE
        };
        let preferred = AccountCandidate { affinity: u64::MAX, ..worst };
        first_wins(worst, AccountCandidate { is_eligible: false, ..BASE });
        first_wins(AccountCandidate { is_ejected: false, ..worst }, AccountCandidate { is_ejected: true, ..BASE });
        first_wins(
            AccountCandidate { has_free_slot: true, is_ejected: false, ..worst },
            AccountCandidate { has_free_slot: false, auth_kind: AccountKind::Oauth, priority: 9, ..BASE },
        );
        first_wins(
            AccountCandidate { priority: -9, load: 999, ..BASE },
            AccountCandidate { is_paid: false, priority: 9, ..BASE },
        );
        first_wins(
            AccountCandidate { auth_kind: AccountKind::Oauth, priority: -9, load: 999, ..BASE },
            AccountCandidate { priority: 9, ..BASE },
        );
        first_wins(AccountCandidate { priority: 1, needs_no_translation: false, load: 999, ..BASE }, BASE);
        first_wins(AccountCandidate { load: 999, ..BASE }, AccountCandidate { needs_no_translation: false, ..BASE });
        first_wins(AccountCandidate { priority: 1, load: 999, ..BASE }, BASE);
        first_wins(BASE, preferred);
        first_wins(AccountCandidate { priority: 1, ..BASE }, AccountCandidate { affinity: 9, ..BASE });
        first_wins(AccountCandidate { affinity: 9, load: 999, ..BASE }, AccountCandidate { affinity: 8, ..BASE });
        first_wins(AccountCandidate { load: 250, ..BASE }, AccountCandidate { load: 500, ..BASE });
    }

    #[test]
    fn oauth_precedes_an_api_key_only_for_paid_accounts() {
        let free = AccountCandidate { is_paid: false, ..BASE };
        first_wins(
            AccountCandidate { priority: 1, ..free },
            AccountCandidate { auth_kind: AccountKind::Oauth, ..free },
        );
    }

    /// Returns the index of the account that a conversation prefers.
    fn preferred_account(session: &str, accounts: &[&str], seed: u64) -> usize {
        let candidate = |account: &&str| AccountCandidate { affinity: affinity(session.as_bytes(), account), ..BASE };
        pick(&accounts.iter().map(candidate).collect::<Vec<_>>(), seed).unwrap()
    }

    #[test]
    fn a_conversation_keeps_its_account_for_any_seed_and_order() {
        for number in 0..200_u64 {
            let session = format!("0199-{number}");
            let first = preferred_account(&session, &["a", "b", "c"], number);
            assert_eq!(preferred_account(&session, &["a", "b", "c"], number * 7 + 1), first);
            assert_eq!(["c", "b", "a"][preferred_account(&session, &["c", "b", "a"], 3)], ["a", "b", "c"][first]);
        }
    }

    #[test]
    fn only_conversations_of_a_removed_account_move() {
        let (all, remaining) = (["a", "b", "c", "d"], ["a", "b", "d"]);
        let mut counts = [0_u32; 4];
        for number in 0..4_000 {
            let session = format!("{number}");
            let before = preferred_account(&session, &all, 0);
            counts[before] += 1;
            let after = remaining[preferred_account(&session, &remaining, 0)];
            assert!(all[before] == "c" || after == all[before], "{session} moved from {} to {after}", all[before]);
        }
        // 1000 expected, standard deviation 27.
        assert!(counts.iter().all(|count| (860..1140).contains(count)), "{counts:?}");
    }

    #[test]
    fn equal_accounts_are_chosen_equally_often() {
        let mut chosen = [0_u32; 5];
        for seed in 0..10_000 {
            chosen[pick(&[BASE; 5], seed).unwrap()] += 1;
        }
        // 2000 expected, standard deviation 40: five of them in each direction.
        assert!(chosen.iter().all(|count| (1800..2200).contains(count)), "{chosen:?}");
    }
}
