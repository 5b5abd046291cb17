//! The fallback order: the smaller images that are made if a large image fails, and the failures after which that is
//! allowed. Pure.
//!
//! Implements the fallback order of the specification: 3840x2160 in high quality, then the same size in medium quality,
//! then 1536x1024 in medium quality, which the caller enlarges by other means. Upright images have the same order with
//! width and height exchanged. A caller gets a smaller image only if the caller or the group allows it, because the
//! answer is not the requested image.

use super::attempt_history::AttemptHistory;
use super::caller_error::StopReason;
use crate::gateway::config::FallbackPolicy;
use crate::gateway::ledger::AttemptClass;
use crate::gateway::rules::Job;
use crate::gateway::upstream::{AttemptFailure, FailureCause};
use crate::image::Size;

/// The size that can fall back, and the size that follows it.
const WIDE_SIZES: (Size, Size) = (allowed_size(3840, 2160), allowed_size(1536, 1024));
const UPRIGHT_SIZES: (Size, Size) = (allowed_size(2160, 3840), allowed_size(1024, 1536));

/// Returns the next job of the fallback order, if there is one and the model allows it.
pub(super) fn next_fallback(job: &Job) -> Option<Job> {
    let requested = job.size().exact()?;
    let (_, lower) = [WIDE_SIZES, UPRIGHT_SIZES].into_iter().find(|(large, _)| *large == requested)?;
    match job.quality() {
        Some("high") => job.with_size_and_quality(requested, "medium"),
        Some("medium") => job.with_size_and_quality(lower, "medium"),
        _ => None,
    }
}

/// True if a smaller image may be made after these failures, according to the fallback policy.
pub(super) fn may_fall_back(fallback: FallbackPolicy, history: &AttemptHistory) -> bool {
    let allows: fn(&AttemptFailure) -> bool = match fallback {
        FallbackPolicy::Never => return false,
        FallbackPolicy::Unpaid => was_not_made,
        FallbackPolicy::Always => allows_fallback,
    };
    history.failures.iter().all(allows)
        && history.stop_reason != StopReason::RequestAtFault
        && !history.failures.is_empty()
}

/// True if a smaller image may follow this failure, for callers that accept that both images may be paid for.
pub(super) fn allows_fallback(failure: &AttemptFailure) -> bool {
    was_not_made(failure) || may_be_lost(failure)
}

/// True if no image can have been made.
fn was_not_made(failure: &AttemptFailure) -> bool {
    matches!(failure.class(), AttemptClass::NothingDone | AttemptClass::ReportedFailed)
}

/// True if an image may have been made and was not received. False if the gateway stops or cannot store the image,
/// because then it cannot make a smaller image either.
fn may_be_lost(failure: &AttemptFailure) -> bool {
    failure.class() == AttemptClass::MaybePaid
        && !matches!(failure.cause, FailureCause::Cutoff | FailureCause::SpoolFailed)
}

/// Returns the size and quality of a job, in the words of the answer and the record.
pub(super) fn size_and_quality(job: &Job) -> String {
    format!("{} {}", job.size(), job.quality().unwrap_or("auto"))
}

#[expect(clippy::panic, reason = "evaluated at compile time only")]
const fn allowed_size(width: u32, height: u32) -> Size {
    match Size::new(width, height) {
        Ok(size) => size,
        Err(_) => panic!("the fallback order contains only allowed sizes"),
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use serde_json::json;

    use super::*;
    use crate::gateway::rules;

    fn job(size: &str, quality: &str) -> Job {
        let body = json!({"model": "gpt-image-2", "prompt": "red", "size": size, "quality": quality, "n": 2});
        rules::check_generation(body.to_string().as_bytes(), Utc::now()).expect("the request is valid")
    }

    #[track_caller]
    fn check(size: &str, quality: &str, expected: &[&str]) {
        let first = next_fallback(&job(size, quality));
        let fallbacks: Vec<_> = std::iter::successors(first, next_fallback).map(|job| size_and_quality(&job)).collect();
        assert_eq!(fallbacks, expected, "{size} {quality}");
    }

    #[test]
    fn the_fallback_order_is_that_of_the_specification() {
        check("3840x2160", "high", &["3840x2160 medium", "1536x1024 medium"]);
        check("2160x3840", "high", &["2160x3840 medium", "1024x1536 medium"]);
        check("3840x2160", "medium", &["1536x1024 medium"]);
    }

    #[test]
    fn only_4k_in_a_stated_quality_has_a_fallback() {
        for (size, quality) in [("1024x1024", "high"), ("3840x2160", "low"), ("3840x2160", "auto"), ("auto", "high")] {
            check(size, quality, &[]);
        }
    }

    /// Returns for each policy whether a fallback may follow these failures.
    fn may_fall_back_by_policy(failures: &[(AttemptClass, FailureCause)]) -> [bool; 3] {
        let failures = failures.iter().map(|(class, cause)| {
            let failure = AttemptFailure::new(cause.clone());
            assert_eq!(failure.class(), *class);
            failure
        });
        let failures = failures.collect();
        let history = AttemptHistory { failures, ..AttemptHistory::default() };
        [FallbackPolicy::Never, FallbackPolicy::Unpaid, FallbackPolicy::Always]
            .map(|fallback| may_fall_back(fallback, &history))
    }

    #[test]
    fn the_policy_decides_after_which_failures_a_fallback_follows() {
        let (n, f) = (
            (AttemptClass::NothingDone, FailureCause::NoConnection),
            (AttemptClass::ReportedFailed, FailureCause::Failed),
        );
        let lost = |cause| (AttemptClass::MaybePaid, cause);
        for unpaid in [&[n][..], &[f.clone(), f.clone()], &[f.clone(), f.clone(), f.clone()]] {
            assert_eq!(may_fall_back_by_policy(unpaid), [false, true, true], "{unpaid:?}");
        }
        for cause in [FailureCause::Timeout, FailureCause::Broken, FailureCause::NoImage] {
            assert_eq!(may_fall_back_by_policy(&[lost(cause.clone())]), [false, false, true], "{cause:?}");
            assert_eq!(may_fall_back_by_policy(&[f.clone(), lost(cause.clone())]), [false, false, true], "{cause:?}");
        }
        let refused = || (AttemptClass::Refused, FailureCause::ContentRefused);
        for never in [&[][..], &[refused()], &[lost(FailureCause::Timeout), refused()], &[lost(FailureCause::Cutoff)]] {
            assert_eq!(may_fall_back_by_policy(never), [false; 3], "{never:?}");
        }
        assert_eq!(may_fall_back_by_policy(&[lost(FailureCause::SpoolFailed)]), [false; 3]);
    }

    #[test]
    fn a_request_at_fault_has_no_fallback() {
        let failures = vec![AttemptFailure::new(FailureCause::ForbiddenToAccount); 2];
        let history = AttemptHistory { failures, stop_reason: StopReason::RequestAtFault, ..AttemptHistory::default() };
        assert!(!may_fall_back(FallbackPolicy::Always, &history));
    }

    #[test]
    fn a_fallback_changes_only_size_and_quality() {
        let fields = next_fallback(&job("3840x2160", "medium")).expect("there is a fallback").upstream_fields().clone();
        let expected =
            json!({"model": "gpt-image-2", "prompt": "red", "size": "1536x1024", "quality": "medium", "n": 2});
        assert_eq!(serde_json::Value::Object(fields), expected);
    }
}
