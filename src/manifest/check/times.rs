//! Checks the form and the order of times.

use chrono::{DateTime, FixedOffset, TimeDelta, Utc};

use crate::manifest::finding::FindingCollector;
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M010, M011, M012, M013, M014, Rule};

/// The tolerated difference between the clocks of two machines.
const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

pub(super) fn check(manifest: &LocatedNode<'_>, now: Option<DateTime<Utc>>, findings: &mut FindingCollector) {
    let generated = check_time(manifest, "generated_at", &M010, now, findings);
    for skill in manifest.skills() {
        let Some((updated, location)) = check_time(&skill, "updated_at", &M011, now, findings) else { continue };
        let Some((generated, generated_location)) = &generated else { continue };
        if updated > *generated {
            findings
                .report_at(&M013, &location, "the skill was updated after the manifest was generated")
                .with_related(generated_location.span(), "the manifest was generated then");
        }
    }
}

/// Reads a time, and reports its flaw if it has one.
fn check_time<'a>(
    object: &LocatedNode<'a>,
    key: &str,
    rule: &'static Rule,
    now: Option<DateTime<Utc>>,
    findings: &mut FindingCollector,
) -> Option<(DateTime<FixedOffset>, LocatedNode<'a>)> {
    let (text, location) = object.text_of(key)?;
    let time = match DateTime::parse_from_rfc3339(text) {
        Ok(time) => time,
        Err(_) => {
            let message = format!("`{}` is not an RFC 3339 time", text.escape_debug());
            findings.report_at(rule, &location, message).with_help("write it as `2026-11-21T03:00:00Z`");
            return None;
        }
    };
    if now.is_some_and(|now| time > now + MAX_CLOCK_SKEW) {
        findings.report_at(&M012, &location, "this time is in the future");
    }
    if !(text.ends_with('Z') && text.as_bytes().get(10) == Some(&b'T')) {
        let form = time.with_timezone(&Utc).format("%Y-%m-%dT%H:%M:%S%.fZ");
        findings.report_at(&M014, &location, "this time is not in the usual form").with_help(format!("write `{form}`"));
    }
    Some((time, location))
}
