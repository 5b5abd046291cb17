//! One row of the table: the behaviour of the upstream (the stimulus) and the results that the test expects.

use std::ops::RangeInclusive;

use super::door::Kind;
use super::operation::Operation;
use super::scene::Scene;

/// The answer that the caller must get.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expect {
    /// A whole answer with the bytes that the upstream sent.
    Good,
    /// An error with one of these statuses and this code. If `reasons` is not empty, the error has one of them. If
    /// `retry` is set, it is the value of `x-should-retry`.
    Error { status: &'static [u16], code: &'static str, reasons: &'static [&'static str], retry: Option<&'static str> },
    /// A 502, or an answer that is visibly broken.
    Broken,
    /// A whole answer or a visibly broken one: both are correct.
    GoodOrBroken,
}

/// The state that the accounts must have afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Every account can be used at once.
    AllFree,
    /// Like [`After::AllFree`], and the next request goes to the first account again: the failure does not count
    /// against it.
    Blameless,
    /// At least one account can be used: an account that failed several times in a row may be in a cooldown.
    OneFree,
    /// The first account is in a cooldown, the others can be used.
    FirstRests,
    /// A request succeeds within this many seconds: no cooldown lasts longer.
    Within(u64),
    /// No account can be used again during the test; the text is the reason.
    Never(&'static str),
}

/// A function that runs a row in place of the default steps.
type CustomSteps = fn(&mut Scene<'_>);

/// One case of the failure catalogue, with one or more stimuli.
#[derive(Clone)]
pub(super) struct Row {
    /// The number in the failure catalogue, such as `U07`.
    pub(super) case: &'static str,
    pub(super) name: &'static str,
    pub(super) accounts: usize,
    /// The number of slots of each account.
    pub(super) places: usize,
    /// The deadline of the group, in milliseconds.
    pub(super) deadline: Option<u64>,
    /// The endpoint of the first account.
    pub(super) door: Kind,
    /// The script of the other accounts; `=` stands for the script of the first account.
    pub(super) others: &'static str,
    pub(super) expect: Expect,
    /// The number of attempts in the ledger for each stimulus.
    pub(super) calls: RangeInclusive<usize>,
    /// The states that the record may have.
    pub(super) states: &'static [&'static str],
    pub(super) after: After,
    /// The record must hold the usage of the ledger although there is no image.
    pub(super) charged: bool,
    /// The upstream reports invalid usage, so the record need not agree with it.
    pub(super) odd_usage: bool,
    /// The upstream closes connections at the moment of their reuse, and does not read the bytes that were written to
    /// them.
    pub(super) closes_on_reuse: bool,
    /// The row takes about a minute, because it waits for a limit of one minute.
    pub(super) slow: bool,
    /// The steps of a row that does more than send its stimuli one after the other.
    pub(super) play: Option<CustomSteps>,
    plain: Result<&'static [&'static str], &'static str>,
    streamed: Result<&'static [&'static str], &'static str>,
}

/// A row with two accounts, of which the second works.
pub(super) fn row(case: &'static str, name: &'static str) -> Row {
    Row {
        case,
        name,
        accounts: 2,
        places: 1,
        deadline: None,
        door: Kind::Open,
        others: "",
        expect: Expect::Good,
        calls: 1..=1,
        states: &["succeeded"],
        after: After::AllFree,
        charged: false,
        odd_usage: false,
        closes_on_reuse: false,
        slow: false,
        play: None,
        plain: Ok(&[""]),
        streamed: Ok(&[""]),
    }
}

// === impl Row ===

impl Row {
    /// The stimuli, or the reason why there are none.
    pub(super) fn scripts(&self, operation: Operation) -> Result<&'static [&'static str], &'static str> {
        if operation.streams() { self.streamed } else { self.plain }
    }

    pub(super) fn both(self, scripts: &'static [&'static str]) -> Self {
        Self { plain: Ok(scripts), streamed: Ok(scripts), ..self }
    }

    pub(super) fn plain(self, scripts: &'static [&'static str]) -> Self {
        Self { plain: Ok(scripts), ..self }
    }

    pub(super) fn streamed(self, scripts: &'static [&'static str]) -> Self {
        Self { streamed: Ok(scripts), ..self }
    }

    pub(super) fn not_plain(self, reason: &'static str) -> Self {
        Self { plain: Err(reason), ..self }
    }

    pub(super) fn not_streamed(self, reason: &'static str) -> Self {
        Self { streamed: Err(reason), ..self }
    }

    pub(super) fn accounts(self, accounts: usize) -> Self {
        Self { accounts, ..self }
    }

    pub(super) fn places(self, places: usize) -> Self {
        Self { places, ..self }
    }

    pub(super) fn deadline(self, milliseconds: u64) -> Self {
        Self { deadline: Some(milliseconds), ..self }
    }

    pub(super) fn door(self, door: Kind) -> Self {
        Self { door, ..self }
    }

    pub(super) fn others(self, others: &'static str) -> Self {
        Self { others, ..self }
    }

    pub(super) fn calls(self, calls: RangeInclusive<usize>) -> Self {
        Self { calls, ..self }
    }

    pub(super) fn after(self, after: After) -> Self {
        Self { after, ..self }
    }

    pub(super) fn charged(self) -> Self {
        Self { charged: true, ..self }
    }

    pub(super) fn odd_usage(self) -> Self {
        Self { odd_usage: true, ..self }
    }

    pub(super) fn closes_on_reuse(self) -> Self {
        Self { closes_on_reuse: true, ..self }
    }

    pub(super) fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    pub(super) fn play(self, play: CustomSteps) -> Self {
        Self { play: Some(play), ..self }
    }

    /// The caller gets the 502 of the specification.
    pub(super) fn fails(self, states: &'static [&'static str]) -> Self {
        self.errs(&[502], "upstream_error", states)
    }

    pub(super) fn errs(self, status: &'static [u16], code: &'static str, states: &'static [&'static str]) -> Self {
        Self { expect: Expect::Error { status, code, reasons: &[], retry: None }, states, ..self }
    }

    /// The error gives one of these reasons.
    pub(super) fn because(mut self, allowed: &'static [&'static str]) -> Self {
        if let Expect::Error { reasons, .. } = &mut self.expect {
            *reasons = allowed;
        }
        self
    }

    /// The error gives this advice about a retry (`true` or `false`).
    pub(super) fn advises(mut self, advice: &'static str) -> Self {
        if let Expect::Error { retry, .. } = &mut self.expect {
            *retry = Some(advice);
        }
        self
    }

    /// Attempt class X: neither the gateway nor the caller may try again.
    pub(super) fn ambiguous(self, reasons: &'static [&'static str]) -> Self {
        self.fails(&["interrupted"]).because(reasons).advises("false")
    }

    /// Attempt class R: the upstream refused the request.
    pub(super) fn refused(self) -> Self {
        self.fails(&["refused"]).because(&["content_refused"]).advises("false").after(After::Blameless)
    }

    pub(super) fn breaks(self) -> Self {
        Self { expect: Expect::Broken, states: &["interrupted", "failed"], ..self }
    }

    pub(super) fn good_or_broken(self) -> Self {
        Self { expect: Expect::GoodOrBroken, states: &["succeeded", "interrupted", "failed"], ..self }
    }
}
