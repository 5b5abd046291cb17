//! The fallback ladder: the smaller images that are made if a large one fails, and the failures after which that is
//! allowed. Pure.
//!
//! It carries the fallback order of the specification: 3840x2160 in high quality, then the same in medium, then
//! 1536x1024 in medium, which the caller enlarges by other means. An upright image follows the same order upright. A
//! caller gets a smaller image only if it asks for it, because the answer is not the requested image.

use super::attempt_history::AttemptHistory;
use crate::gateway::config::FallbackPolicy;
use crate::gateway::rules::Job;
use crate::gateway::upstream::{AttemptFailure, FailureCause, FailureClass};
use crate::image::Size;

const WIDE_SIZES: (Size, Size) = (legal_size(3840, 2160), legal_size(1536, 1024));
const UPRIGHT_SIZES: (Size, Size) = (legal_size(2160, 3840), legal_size(1024, 1536));

/// Returns the next smaller job, if the ladder has one and the model allows it.
pub(super) fn next_fallback(job: &Job) -> Option<Job> {
    let asked = job.size().exact()?;
    let (_, lower) = [WIDE_SIZES, UPRIGHT_SIZES].into_iter().find(|(large, _)| *large == asked)?;
    match job.quality() {
        Some("high") => job.with_size_and_quality(asked, "medium"),
        Some("medium") => job.with_size_and_quality(lower, "medium"),
        _ => None,
    }
}

/// True if a smaller image may be made after these failures, according to the fallback policy.
pub(super) fn may_fall_back(fallback: FallbackPolicy, history: &AttemptHistory) -> bool {
    let helps: fn(&AttemptFailure) -> bool = match fallback {
        FallbackPolicy::Never => return false,
        FallbackPolicy::Unpaid => was_not_made,
        FallbackPolicy::Always => allows_fallback,
    };
    history.failures.iter().all(helps) && !history.stop_reason.blames_request && !history.failures.is_empty()
}

/// True if a smaller image may follow this failure, for callers that accept that both may be paid for.
pub(super) const fn allows_fallback(failure: &AttemptFailure) -> bool {
    was_not_made(failure) || was_lost(failure)
}

/// True if no image can exist.
const fn was_not_made(failure: &AttemptFailure) -> bool {
    matches!(failure.class, FailureClass::N | FailureClass::F)
}

/// True if an image may exist and is lost. A gateway that stops, or has no disk, cannot make a smaller one either.
const fn was_lost(failure: &AttemptFailure) -> bool {
    matches!(failure.class, FailureClass::X)
        && !matches!(failure.cause, FailureCause::Cutoff | FailureCause::SpoolFailed)
}

/// Returns the size and quality of a job, in the words of the answer and the record.
pub(super) fn size_and_quality(job: &Job) -> String {
    format!("{} {}", job.size(), job.quality().unwrap_or("auto"))
}

#[expect(clippy::panic, reason = "only ever evaluated by the compiler")]
const fn legal_size(width: u32, height: u32) -> Size {
    match Size::new(width, height) {
        Ok(size) => size,
        Err(_) => panic!("the ladder has only legal sizes"),
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use serde_json::json;

    use super::*;
    use crate::gateway::flow::outcome::StopReason;
    use crate::gateway::rules;

    fn job(size: &str, quality: &str) -> Job {
        let body = json!({"model": "gpt-image-2", "prompt": "red", "size": size, "quality": quality, "n": 2});
        rules::check_generation(body.to_string().as_bytes(), Utc::now()).expect("a legal request")
    }

    #[track_caller]
    fn check(size: &str, quality: &str, steps: &[&str]) {
        let first = next_fallback(&job(size, quality));
        let found: Vec<_> = std::iter::successors(first, next_fallback).map(|job| size_and_quality(&job)).collect();
        assert_eq!(found, steps, "{size} {quality}");
    }

    #[test]
    fn the_steps_are_those_of_the_specification() {
        check("3840x2160", "high", &["3840x2160 medium", "1536x1024 medium"]);
        check("2160x3840", "high", &["2160x3840 medium", "1024x1536 medium"]);
        check("3840x2160", "medium", &["1536x1024 medium"]);
    }

    #[test]
    fn what_is_not_4k_in_a_stated_quality_has_no_step_below() {
        for (size, quality) in [("1024x1024", "high"), ("3840x2160", "low"), ("3840x2160", "auto"), ("auto", "high")] {
            check(size, quality, &[]);
        }
    }

    fn step_downs(failures: &[(FailureClass, FailureCause)]) -> [bool; 3] {
        let failures = failures.iter().map(|(class, cause)| AttemptFailure::new(*class, cause.clone())).collect();
        let history = AttemptHistory { failures, ..AttemptHistory::default() };
        [FallbackPolicy::Never, FallbackPolicy::Unpaid, FallbackPolicy::Always]
            .map(|fallback| may_fall_back(fallback, &history))
    }

    #[test]
    fn a_step_is_taken_after_the_failures_that_the_choice_allows() {
        let (n, f) = ((FailureClass::N, FailureCause::Unreachable), (FailureClass::F, FailureCause::Failed));
        let lost = |cause| (FailureClass::X, cause);
        for unpaid in [&[n][..], &[f.clone(), f.clone()], &[f.clone(), f.clone(), f.clone()]] {
            assert_eq!(step_downs(unpaid), [false, true, true], "{unpaid:?}");
        }
        for cause in [FailureCause::Timeout, FailureCause::Broken, FailureCause::NoImage] {
            assert_eq!(step_downs(&[lost(cause.clone())]), [false, false, true], "{cause:?}");
            assert_eq!(step_downs(&[f.clone(), lost(cause.clone())]), [false, false, true], "{cause:?}");
        }
        let refused = || (FailureClass::R, FailureCause::Refused);
        for never in [&[][..], &[refused()], &[lost(FailureCause::Timeout), refused()], &[lost(FailureCause::Cutoff)]] {
            assert_eq!(step_downs(never), [false; 3], "{never:?}");
        }
        assert_eq!(step_downs(&[lost(FailureCause::SpoolFailed)]), [false; 3]);
    }

    #[test]
    fn an_image_whose_request_is_at_fault_is_not_made_smaller() {
        let failures = vec![AttemptFailure::new(FailureClass::N, FailureCause::Forbidden); 2];
        let stop = StopReason { blames_request: true, ..StopReason::default() };
        let history = AttemptHistory { failures, stop_reason: stop, ..AttemptHistory::default() };
        assert!(!may_fall_back(FallbackPolicy::Always, &history));
    }

    #[test]
    fn a_step_changes_the_request_for_the_upstream_and_nothing_else_in_it() {
        let fields = next_fallback(&job("3840x2160", "medium")).expect("a step").upstream_fields().clone();
        let expected =
            json!({"model": "gpt-image-2", "prompt": "red", "size": "1536x1024", "quality": "medium", "n": 2});
        assert_eq!(serde_json::Value::Object(fields), expected);
    }
}
