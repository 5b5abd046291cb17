//! The choice, pure: eligible, then with a free place, then paid before free, then the operator's priority, then the least loaded.

use std::cmp::Reverse;

/// What the choice knows of an account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Whether it may serve this request at all.
    pub(super) eligible: bool,
    /// Whether a place is free: nobody waits for one account while another is idle.
    pub(super) free: bool,
    /// Whether it is paid for: the specification prefers such accounts for images.
    pub(super) paid: bool,
    /// The operator's own order; higher goes first.
    pub(super) priority: i32,
    /// Places taken and waited for, in thousandths of all places.
    pub(super) load: u32,
}

/// The index of the best candidate; of equals the first.
pub(super) fn pick(candidates: &[Candidate]) -> Option<usize> {
    let eligible = candidates.iter().enumerate().filter(|(_, candidate)| candidate.eligible);
    eligible
        .min_by_key(|(_, candidate)| {
            (Reverse(candidate.free), Reverse(candidate.paid), Reverse(candidate.priority), candidate.load)
        })
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Candidate = Candidate { eligible: true, free: true, paid: true, priority: 0, load: 0 };

    #[track_caller]
    fn check(candidates: &[Candidate], expected: Option<usize>) {
        assert_eq!(pick(candidates), expected, "{candidates:?}");
    }

    #[test]
    fn the_order_is_eligible_paid_priority_load() {
        check(&[], None);
        check(&[Candidate { eligible: false, ..BASE }], None);
        check(&[Candidate { eligible: false, ..BASE }, Candidate { paid: false, load: 999, ..BASE }], Some(1));
        check(&[Candidate { paid: false, priority: 9, ..BASE }, Candidate { load: 999, ..BASE }], Some(1));
        check(&[Candidate { priority: -1, ..BASE }, Candidate { load: 999, ..BASE }], Some(1));
        check(&[Candidate { load: 500, ..BASE }, Candidate { load: 250, ..BASE }], Some(1));
        check(
            &[Candidate { free: false, ..BASE }, Candidate { paid: false, priority: -9, load: 999, ..BASE }],
            Some(1),
        );
        check(&[BASE, BASE], Some(0));
    }
}
