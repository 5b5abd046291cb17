//! Tests of the error for the caller and of the table of consequences.

use super::*;
use crate::gateway::accounts::AccountFeedback;
use crate::gateway::upstream::{AccountFinding, BoundContext};

fn failure(class: AttemptClass, cause: FailureCause) -> AttemptFailure {
    let failure = AttemptFailure::new(cause);
    assert_eq!(failure.class(), class);
    failure
}

fn stop(refusal: Option<LeaseRefusal>) -> StopReason {
    refusal.map_or(StopReason::MoneyRules, StopReason::NoLease)
}

fn account_finding(failure: &AttemptFailure) -> AccountFinding {
    failure.consequences().finding
}

fn caller_error_of(failures: &[AttemptFailure]) -> Error {
    caller_error(failures, stop(Some(LeaseRefusal::NoneLeft)), Utc::now())
}

#[test]
fn without_any_account_the_error_is_no_accounts() {
    assert_eq!(caller_error_of(&[]), Error::NoAccounts);
}

#[test]
fn the_error_states_the_earliest_reset_of_all_accounts() {
    let wait = |seconds| {
        failure(AttemptClass::NothingDone, FailureCause::Exhausted { wait: Some(Duration::from_secs(seconds)) })
    };
    let throttled = failure(AttemptClass::NothingDone, FailureCause::Throttled { wait: Some(Duration::from_secs(2)) });
    let now = DateTime::from_timestamp(1_000, 0).expect("the timestamp is valid");
    let error = caller_error(
        &[wait(3600), wait(60), failure(AttemptClass::NothingDone, FailureCause::NoConnection)],
        stop(None),
        now,
    );
    assert_eq!(error, Error::UsageLimit(UsageReset { at: Some(1_060), seconds: Some(60) }));
    assert_eq!(caller_error(&[wait(3600), throttled], stop(None), now), Error::RateLimited { retry_after: 2 });
}

#[test]
fn accounts_in_a_cooldown_determine_the_retry_after() {
    let now = DateTime::from_timestamp(1_000, 0).expect("the timestamp is valid");
    let cooling = |exhausted| LeaseRefusal::InCooldown { exhausted, wait: Some(Duration::from_secs(90)) };
    let limit = Error::UsageLimit(UsageReset { at: Some(1_090), seconds: Some(90) });
    assert_eq!(caller_error(&[], stop(Some(cooling(true))), now), limit);
    assert_eq!(
        caller_error(&[failure(AttemptClass::NothingDone, FailureCause::NoConnection)], stop(Some(cooling(true))), now),
        limit
    );
    assert_eq!(caller_error(&[], stop(Some(cooling(false))), now), Error::RateLimited { retry_after: 60 });
    let second = FailureCause::Throttled { wait: Some(Duration::from_secs(6)) };
    let error = caller_error(&[failure(AttemptClass::NothingDone, second)], stop(Some(cooling(true))), now);
    assert_eq!(error, Error::RateLimited { retry_after: 6 }, "one account is only throttled");
    let hour = FailureCause::Exhausted { wait: Some(Duration::from_secs(3600)) };
    let cooling = |seconds| LeaseRefusal::InCooldown { exhausted: false, wait: Some(Duration::from_secs(seconds)) };
    let error = caller_error(&[failure(AttemptClass::NothingDone, hour.clone())], stop(Some(cooling(9))), now);
    assert_eq!(error, Error::RateLimited { retry_after: 9 }, "an account that was not asked is only throttled");
    assert_eq!(
        caller_error(&[failure(AttemptClass::NothingDone, hour)], stop(Some(LeaseRefusal::Busy)), now),
        Error::RateLimited { retry_after: 2 }
    );
    let cooling = LeaseRefusal::InCooldown { exhausted: true, wait: None };
    let failed = caller_error(&[failure(AttemptClass::ReportedFailed, FailureCause::Failed)], stop(Some(cooling)), now);
    assert_eq!(failed, Error::Upstream(UpstreamFault::Failed), "an attempt decides before an account in a cooldown");
}

#[test]
fn each_failure_gives_the_feedback_for_its_account() {
    let feedback = |class, cause, status| match account_finding(&AttemptFailure { status, ..failure(class, cause) }) {
        AccountFinding::Certain(feedback) => feedback,
        AccountFinding::Suspected(feedback) => panic!("the feedback is only suspected: {feedback:?}"),
    };
    let wait = Some(Duration::from_secs(7));
    assert_eq!(
        feedback(AttemptClass::NothingDone, FailureCause::Exhausted { wait }, Some(429)),
        AccountFeedback::Exhausted { wait }
    );
    assert_eq!(
        feedback(AttemptClass::NothingDone, FailureCause::Throttled { wait }, Some(429)),
        AccountFeedback::Throttled { wait }
    );
    assert_eq!(
        feedback(AttemptClass::NothingDone, FailureCause::CredentialsRefused, Some(401)),
        AccountFeedback::Unauthorized { status: 401 }
    );
    assert_eq!(
        feedback(AttemptClass::NothingDone, FailureCause::AccountUnpaid, Some(429)),
        AccountFeedback::ModelUnavailable { status: 429 }
    );
    assert_eq!(feedback(AttemptClass::NothingDone, FailureCause::AccountFault, Some(400)), AccountFeedback::Neutral);
    assert_eq!(
        feedback(AttemptClass::NothingDone, FailureCause::BlockedByFirewall, Some(403)),
        AccountFeedback::Neutral
    );
    assert_eq!(
        feedback(AttemptClass::NothingDone, FailureCause::RejectedByAccount { message: String::new() }, Some(413)),
        AccountFeedback::Neutral
    );
    assert_eq!(feedback(AttemptClass::NothingDone, FailureCause::NoConnection, None), AccountFeedback::Failed);
    assert_eq!(
        feedback(AttemptClass::NothingDone, FailureCause::CredentialsRefused, Some(403)),
        AccountFeedback::Unauthorized { status: 403 }
    );
    assert_eq!(feedback(AttemptClass::MaybePaid, FailureCause::Timeout, None), AccountFeedback::Doubtful);
    assert_eq!(feedback(AttemptClass::MaybePaid, FailureCause::Broken, Some(502)), AccountFeedback::Failed);
    assert_eq!(feedback(AttemptClass::Refused, FailureCause::ContentRefused, Some(400)), AccountFeedback::Neutral);
    assert_eq!(
        feedback(AttemptClass::MaybePaid, FailureCause::SpoolFailed, Some(200)),
        AccountFeedback::Neutral,
        "the disk of the gateway failed"
    );
}

#[test]
fn a_failure_that_a_caller_can_cause_is_only_suspected() {
    let suspected = |cause, status| account_finding(&AttemptFailure::new(cause).with_status(status));
    for cause in [FailureCause::NotOffered, FailureCause::UnknownModel] {
        assert_eq!(suspected(cause, 404), AccountFinding::Suspected(AccountFeedback::ModelUnavailable { status: 404 }));
    }
    let expected = AccountFinding::Suspected(AccountFeedback::Unauthorized { status: 403 });
    assert_eq!(suspected(FailureCause::ForbiddenToAccount, 403), expected);
    let failed = account_finding(&failure(AttemptClass::ReportedFailed, FailureCause::Failed).with_status(500));
    assert_eq!(failed, AccountFinding::Suspected(AccountFeedback::Failed));
}

#[test]
fn only_the_same_cause_twice_blames_the_request() {
    let failures = |causes: &[FailureCause]| -> Vec<AttemptFailure> {
        causes.iter().map(|cause| failure(AttemptClass::NothingDone, cause.clone())).collect()
    };
    let declined = |message: &str| FailureCause::RejectedByAccount { message: message.to_owned() };
    assert!(is_request_to_blame(&failures(&[
        FailureCause::ForbiddenToAccount,
        FailureCause::BlockedByFirewall,
        FailureCause::ForbiddenToAccount
    ])));
    assert!(is_request_to_blame(&failures(&[declined("one"), declined("other")])), "the messages may differ");
    assert!(!is_request_to_blame(&failures(&[
        FailureCause::ForbiddenToAccount,
        FailureCause::BlockedByFirewall,
        declined("no"),
        FailureCause::UnknownModel
    ])));
    assert!(!is_request_to_blame(&failures(&[FailureCause::NotOffered, FailureCause::NotOffered])));
}

#[test]
fn a_request_that_two_accounts_reject_must_not_be_retried() {
    let stop = StopReason::RequestAtFault;
    let throttled = failure(AttemptClass::NothingDone, FailureCause::Throttled { wait: None });
    let declined = failure(AttemptClass::NothingDone, FailureCause::RejectedByAccount { message: "no".to_owned() });
    for (cause, code) in [
        (declined.cause.clone(), "invalid_request_error"),
        (FailureCause::UnknownModel, "invalid_request_error"),
        (FailureCause::BlockedByFirewall, "upstream_error"),
        (FailureCause::ForbiddenToAccount, "upstream_error"),
    ] {
        let error = caller_error(
            &[throttled.clone(), declined.clone(), failure(AttemptClass::NothingDone, cause)],
            stop,
            Utc::now(),
        );
        assert_eq!((error.code().as_str(), error.should_retry()), (code, false));
    }
}

#[test]
fn unreadable_context_decides_only_if_no_account_fails_otherwise() {
    let message = "could not be verified".to_owned();
    let cause = FailureCause::BoundElsewhere { kind: BoundContext::Ciphertext, param: None, message };
    let unreadable = failure(AttemptClass::NothingDone, cause).with_status(400);
    let error = caller_error_of(&[unreadable.clone(), unreadable.clone()]);
    assert_eq!((error.code().as_str(), error.should_retry()), ("invalid_encrypted_content", false));
    assert!(!is_request_to_blame(&[unreadable.clone(), unreadable.clone()]), "the next account may have made it");
    let throttled = failure(AttemptClass::NothingDone, FailureCause::Throttled { wait: Some(Duration::from_secs(3)) });
    assert_eq!(caller_error_of(&[throttled, unreadable.clone()]), Error::RateLimited { retry_after: 3 });
    let cooling = LeaseRefusal::InCooldown { exhausted: false, wait: Some(Duration::from_secs(9)) };
    let error = caller_error(&[unreadable], stop(Some(cooling)), Utc::now());
    assert_eq!(error, Error::RateLimited { retry_after: 9 }, "the account that made it can read it later");
}

#[test]
fn unpaid_and_refused_accounts_have_their_own_errors() {
    let unpaid = failure(AttemptClass::NothingDone, FailureCause::AccountUnpaid);
    let refused = failure(AttemptClass::NothingDone, FailureCause::CredentialsRefused).with_status(401);
    assert_eq!(caller_error_of(std::slice::from_ref(&unpaid)), Error::Upstream(UpstreamFault::Quota));
    assert_eq!(caller_error_of(&[unpaid.clone(), refused.clone()]), Error::Upstream(UpstreamFault::Credentials));
    let dead = failure(AttemptClass::NothingDone, FailureCause::NoConnection);
    assert_eq!(
        caller_error_of(&[unpaid, dead, refused]),
        Error::Upstream(UpstreamFault::NothingDone),
        "one account may be available again soon"
    );
}

#[test]
fn a_disk_failure_may_be_retried_only_before_the_call() {
    let (before, after) = (
        failure(AttemptClass::NothingDone, FailureCause::SpoolUnavailable),
        failure(AttemptClass::MaybePaid, FailureCause::SpoolFailed),
    );
    assert_eq!(caller_error(&[before], stop(None), Utc::now()), Error::Unavailable);
    assert_eq!(caller_error_of(&[after]), Error::Upstream(UpstreamFault::Broken));
    assert!(!caller_error_of(&[failure(AttemptClass::MaybePaid, FailureCause::SpoolFailed)]).should_retry());
}

#[test]
fn an_ambiguous_failure_takes_precedence_over_earlier_ones() {
    let before = failure(AttemptClass::NothingDone, FailureCause::Exhausted { wait: None });
    assert_eq!(
        caller_error_of(&[before, failure(AttemptClass::MaybePaid, FailureCause::Timeout)]),
        Error::Upstream(UpstreamFault::Timeout)
    );
}

#[test]
fn a_failure_reported_by_the_upstream_may_be_retried() {
    assert!(caller_error_of(&[failure(AttemptClass::ReportedFailed, FailureCause::Failed)]).should_retry());
    for cause in
        [FailureCause::NoImage, FailureCause::AsyncTask, FailureCause::ImageByAddress, FailureCause::UnknownCoding]
    {
        assert!(!caller_error_of(&[failure(AttemptClass::MaybePaid, cause)]).should_retry());
    }
}

#[test]
fn the_first_words_of_a_model_are_told_and_recorded() {
    let text = AttemptFailure {
        model_text: Some("Which style?".to_owned()),
        ..failure(AttemptClass::Refused, FailureCause::TextInsteadOfImage)
    };
    let error = caller_error_of(std::slice::from_ref(&text));
    assert_eq!(error, Error::ModelText(UpstreamFault::TextInsteadOfImage, "Which style?".to_owned()));
    assert_eq!(error.to_string(), "Upstream request failed: the model wrote \"Which style?\"");
    assert!(!error.should_retry() && error.code().as_str() == "upstream_error");
    assert_eq!(record_reason(&error, Some(&text)), RecordReason::TextInsteadOfImage);
    let busy = failure(AttemptClass::NothingDone, FailureCause::DrawingUnavailable).with_status(200);
    let unavailable = AccountFeedback::ModelUnavailable { status: 200 };
    assert_eq!(account_finding(&busy), AccountFinding::Suspected(unavailable));
}

#[test]
fn only_a_failure_of_the_network_is_told_as_one() {
    let not_offered = failure(AttemptClass::NothingDone, FailureCause::NotOffered);
    let dead = failure(AttemptClass::NothingDone, FailureCause::NoConnection);
    for (failures, fault, should_retry) in [
        (&[failure(AttemptClass::ReportedFailed, FailureCause::Failed)][..], UpstreamFault::Failed, true),
        (std::slice::from_ref(&not_offered), UpstreamFault::NotOffered, false),
        (&[dead.clone(), not_offered.clone()], UpstreamFault::NothingDone, true),
        (
            &[failure(AttemptClass::ReportedFailed, FailureCause::Failed), not_offered.clone()],
            UpstreamFault::Failed,
            true,
        ),
        (&[failure(AttemptClass::MaybePaid, FailureCause::AsyncTask)], UpstreamFault::AsyncTask, false),
        (
            &[failure(AttemptClass::NothingDone, FailureCause::DrawingUnavailable)],
            UpstreamFault::TextInsteadOfImage,
            false,
        ),
        (&[failure(AttemptClass::Refused, FailureCause::TextInsteadOfImage)], UpstreamFault::TextInsteadOfImage, false),
        (&[dead], UpstreamFault::NothingDone, true),
    ] {
        let error = caller_error_of(failures);
        assert_eq!(error, Error::Upstream(fault), "{failures:?}");
        assert_eq!(error.should_retry(), should_retry, "{failures:?}");
    }
}

#[test]
fn the_retry_after_of_a_throttled_caller_is_limited() {
    let error = caller_error_of(&[failure(
        AttemptClass::NothingDone,
        FailureCause::Throttled { wait: Some(Duration::from_secs(86_400)) },
    )]);
    assert_eq!(error.retry_after(), Some(60));
}
