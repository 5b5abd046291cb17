//! One row of the table: the behaviour of the upstream (the stimulus) and the results that the test expects.

use std::ops::RangeInclusive;

use super::first_endpoint::EndpointKind;
use super::operation::Operation;
use super::scene::CaseRun;

/// The answer that the caller must get.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExpectedAnswer {
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
pub(super) enum AccountsAfter {
    /// Every account can be used at once.
    AllUsable,
    /// Like [`AccountsAfter::AllUsable`], and the next request goes to the first account again: the failure does not
    /// count against it.
    FirstNotPenalized,
    /// At least one account can be used: an account that failed several times in a row may be in a cooldown.
    OneUsable,
    /// The first account is in a cooldown, the others can be used.
    FirstInCooldown,
    /// A request succeeds within this many seconds: no cooldown lasts longer.
    UsableWithin(u64),
    /// No account can be used again during the test; the text is the reason.
    Unusable(&'static str),
}

/// A function that runs a row in place of the default steps.
type CustomSteps = fn(&mut CaseRun<'_>);

/// One case of the failure catalogue, with one or more stimuli.
#[derive(Clone)]
pub(super) struct Row {
    /// The number in the failure catalogue, such as `U07`.
    pub(super) case: &'static str,
    pub(super) name: &'static str,
    pub(super) accounts: usize,
    /// The number of slots of each account.
    pub(super) slots_per_account: usize,
    /// The deadline of the group, in milliseconds.
    pub(super) deadline: Option<u64>,
    /// The endpoint of the first account.
    pub(super) endpoint: EndpointKind,
    /// The script of the other accounts; `=` stands for the script of the first account.
    pub(super) other_accounts: &'static str,
    pub(super) expect: ExpectedAnswer,
    /// The number of attempts in the ledger for each stimulus.
    pub(super) calls: RangeInclusive<usize>,
    /// The states that the record may have.
    pub(super) states: &'static [&'static str],
    pub(super) after: AccountsAfter,
    /// The record must hold the usage of the ledger although there is no image.
    pub(super) charged: bool,
    /// The upstream reports invalid usage, so the record need not agree with it.
    pub(super) invalid_usage: bool,
    /// The upstream closes connections at the moment of their reuse, and does not read the bytes that were written to
    /// them.
    pub(super) closes_on_reuse: bool,
    /// The row takes about a minute, because it waits for a limit of one minute.
    pub(super) slow: bool,
    /// The steps of a row that does more than send its stimuli one after the other.
    pub(super) custom_steps: Option<CustomSteps>,
    plain: Result<&'static [&'static str], &'static str>,
    streamed: Result<&'static [&'static str], &'static str>,
}

/// A row with two accounts, of which the second works.
pub(super) fn row(case: &'static str, name: &'static str) -> Row {
    Row {
        case,
        name,
        accounts: 2,
        slots_per_account: 1,
        deadline: None,
        endpoint: EndpointKind::Upstream,
        other_accounts: "",
        expect: ExpectedAnswer::Good,
        calls: 1..=1,
        states: &["succeeded"],
        after: AccountsAfter::AllUsable,
        charged: false,
        invalid_usage: false,
        closes_on_reuse: false,
        slow: false,
        custom_steps: None,
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

    pub(super) fn with_scripts(self, scripts: &'static [&'static str]) -> Self {
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

    pub(super) fn slots_per_account(self, places: usize) -> Self {
        Self { slots_per_account: places, ..self }
    }

    pub(super) fn deadline(self, milliseconds: u64) -> Self {
        Self { deadline: Some(milliseconds), ..self }
    }

    pub(super) fn endpoint(self, endpoint: EndpointKind) -> Self {
        Self { endpoint, ..self }
    }

    pub(super) fn other_accounts(self, others: &'static str) -> Self {
        Self { other_accounts: others, ..self }
    }

    pub(super) fn calls(self, calls: RangeInclusive<usize>) -> Self {
        Self { calls, ..self }
    }

    pub(super) fn after(self, after: AccountsAfter) -> Self {
        Self { after, ..self }
    }

    pub(super) fn charged(self) -> Self {
        Self { charged: true, ..self }
    }

    pub(super) fn invalid_usage(self) -> Self {
        Self { invalid_usage: true, ..self }
    }

    pub(super) fn closes_on_reuse(self) -> Self {
        Self { closes_on_reuse: true, ..self }
    }

    pub(super) fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    pub(super) fn custom_steps(self, play: CustomSteps) -> Self {
        Self { custom_steps: Some(play), ..self }
    }

    /// The caller gets the 502 of the specification.
    pub(super) fn fails_with_502(self, states: &'static [&'static str]) -> Self {
        self.fails_with(&[502], "upstream_error", states)
    }

    pub(super) fn fails_with(
        self,
        status: &'static [u16],
        code: &'static str,
        states: &'static [&'static str],
    ) -> Self {
        Self { expect: ExpectedAnswer::Error { status, code, reasons: &[], retry: None }, states, ..self }
    }

    /// The error gives one of these reasons.
    pub(super) fn with_reasons(mut self, allowed: &'static [&'static str]) -> Self {
        if let ExpectedAnswer::Error { reasons, .. } = &mut self.expect {
            *reasons = allowed;
        }
        self
    }

    /// The error gives this advice about a retry (`true` or `false`).
    pub(super) fn with_retry_advice(mut self, advice: &'static str) -> Self {
        if let ExpectedAnswer::Error { retry, .. } = &mut self.expect {
            *retry = Some(advice);
        }
        self
    }

    /// Attempt class X: neither the gateway nor the caller may try again.
    pub(super) fn ambiguous(self, reasons: &'static [&'static str]) -> Self {
        self.fails_with_502(&["interrupted"]).with_reasons(reasons).with_retry_advice("false")
    }

    /// Attempt class R: the upstream refused the request.
    pub(super) fn refused(self) -> Self {
        self.fails_with_502(&["refused"])
            .with_reasons(&["content_refused"])
            .with_retry_advice("false")
            .after(AccountsAfter::FirstNotPenalized)
    }

    pub(super) fn breaks(self) -> Self {
        Self { expect: ExpectedAnswer::Broken, states: &["interrupted", "failed"], ..self }
    }

    pub(super) fn good_or_broken(self) -> Self {
        Self { expect: ExpectedAnswer::GoodOrBroken, states: &["succeeded", "interrupted", "failed"], ..self }
    }
}
