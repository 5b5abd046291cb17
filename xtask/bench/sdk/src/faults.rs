//! Which attempts fail and how, and what was paid for.

use std::collections::BTreeSet;

use crate::picture::SeededRandom;

/// The number of images that a program makes. Each is an action of its user, however many attempts it takes.
pub const ACTIONS: usize = 100;
/// After this number of faults, an attempt succeeds.
const FAULTS_MAX: usize = 3;

/// The reaction of the server to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptTreatment {
    Answered,
    AnsweredSlowly,
    /// The connection is closed without an answer.
    PaidThenClosed,
    /// 500 with an error of the API.
    PaidThenServerError,
    /// 502 with the HTML page of a proxy.
    PaidThenProxyPage,
    /// The connection is closed in the middle of the body.
    PaidThenCut,
    /// 503 with `x-should-retry: true`.
    UnpaidRetryAllowed,
    /// 429 with `retry-after: 0`, or with `retry-after-ms`.
    UnpaidRateLimit,
}

const TREATMENTS: [AttemptTreatment; 8] = [
    AttemptTreatment::Answered,
    AttemptTreatment::AnsweredSlowly,
    AttemptTreatment::PaidThenClosed,
    AttemptTreatment::PaidThenServerError,
    AttemptTreatment::PaidThenProxyPage,
    AttemptTreatment::PaidThenCut,
    AttemptTreatment::UnpaidRetryAllowed,
    AttemptTreatment::UnpaidRateLimit,
];

/// The attempts that one program made, and the images that were completed for it.
pub struct PaymentLedger {
    seed: u64,
    honors_keys: bool,
    attempts: Vec<usize>,
    completions: Vec<usize>,
    completed_keys: BTreeSet<String>,
}

/// The sums of a ledger.
pub struct LedgerSummary {
    pub attempts: usize,
    pub completions: usize,
    pub actions_paid_repeatedly: usize,
}

// === impl AttemptTreatment ===

impl AttemptTreatment {
    fn is_paid(self) -> bool {
        !matches!(self, Self::UnpaidRetryAllowed | Self::UnpaidRateLimit)
    }

    /// The first attempt gets each treatment with the same probability; a later attempt succeeds in half of the cases.
    fn choose(seed: u64, action: usize, attempt: usize) -> Self {
        let mut random = SeededRandom::new(seed.wrapping_mul(1_000_003).wrapping_add((action * 16 + attempt) as u64));
        if attempt >= FAULTS_MAX || (attempt > 0 && random.next().is_multiple_of(2)) {
            return Self::Answered;
        }
        TREATMENTS[(random.next() % TREATMENTS.len() as u64) as usize]
    }
}

// === impl PaymentLedger ===

impl PaymentLedger {
    pub fn new(seed: u64, honors_keys: bool) -> Self {
        let zeros = vec![0; ACTIONS];
        Self { seed, honors_keys, attempts: zeros.clone(), completions: zeros, completed_keys: BTreeSet::new() }
    }

    /// Records an attempt, and returns its treatment. If this ledger honors keys, a key that was completed gets the stored
    /// answer, as from the gateway, and an answer to a key says whether it is a stored one.
    pub fn record_attempt(&mut self, action: usize, key: Option<&str>) -> (AttemptTreatment, Option<bool>) {
        let attempt = self.attempts[action];
        self.attempts[action] += 1;
        let key = key.filter(|_| self.honors_keys);
        let is_stored = key.map(|key| self.completed_keys.contains(key));
        if is_stored == Some(true) {
            return (AttemptTreatment::Answered, is_stored);
        }
        let treatment = AttemptTreatment::choose(self.seed, action, attempt);
        if treatment.is_paid() {
            self.completions[action] += 1;
            self.completed_keys.extend(key.map(str::to_owned));
        }
        (treatment, is_stored)
    }

    pub fn summary(&self) -> LedgerSummary {
        LedgerSummary {
            attempts: self.attempts.iter().sum(),
            completions: self.completions.iter().sum(),
            actions_paid_repeatedly: self.completions.iter().filter(|count| **count > 1).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completed_key_is_paid_once() {
        for honors_keys in [true, false] {
            let mut ledger = PaymentLedger::new(1, honors_keys);
            let action = (0..ACTIONS)
                .find(|action| (0..2).all(|attempt| AttemptTreatment::choose(1, *action, attempt).is_paid()))
                .expect("an action whose first attempts are paid");
            ledger.record_attempt(action, Some("key"));
            ledger.record_attempt(action, Some("key"));
            assert_eq!(ledger.summary().completions, if honors_keys { 1 } else { 2 });
            assert_eq!(ledger.summary().attempts, 2);
        }
    }

    #[test]
    fn every_treatment_occurs_and_none_is_endless() {
        for treatment in TREATMENTS {
            assert!((0..ACTIONS).any(|action| AttemptTreatment::choose(1, action, 0) == treatment), "{treatment:?}");
        }
        assert!(
            (0..ACTIONS).all(|action| AttemptTreatment::choose(1, action, FAULTS_MAX) == AttemptTreatment::Answered)
        );
    }
}
