//! Times.

use chrono::{DateTime, FixedOffset, TimeDelta, Utc};

use crate::manifest::finding::Findings;
use crate::manifest::located::Located;
use crate::manifest::rules::{M010, M011, M012, M013, M014, Rule};

/// How far the clocks of two machines may be apart.
const SKEW: TimeDelta = TimeDelta::minutes(5);

pub(super) fn check(manifest: &Located<'_>, now: Option<DateTime<Utc>>, findings: &mut Findings) {
    let generated = time(manifest, "generated_at", &M010, now, findings);
    for skill in manifest.skills() {
        let Some((updated, place)) = time(&skill, "updated_at", &M011, now, findings) else { continue };
        let Some((generated, since)) = &generated else { continue };
        if updated > *generated {
            findings
                .at(&M013, &place, "the skill was updated after the manifest was generated")
                .with_related(since.span(), "the manifest was generated then");
        }
    }
}

/// Reads a time, and says what is wrong with it.
fn time<'a>(
    object: &Located<'a>,
    key: &str,
    rule: &'static Rule,
    now: Option<DateTime<Utc>>,
    findings: &mut Findings,
) -> Option<(DateTime<FixedOffset>, Located<'a>)> {
    let (text, place) = object.text_of(key)?;
    let time = match DateTime::parse_from_rfc3339(text) {
        Ok(time) => time,
        Err(_) => {
            let message = format!("`{}` is not a time of RFC 3339", text.escape_debug());
            findings.at(rule, &place, message).with_help("write it as `2026-11-21T03:00:00Z`");
            return None;
        }
    };
    if now.is_some_and(|now| time > now + SKEW) {
        findings.at(&M012, &place, "this time lies in the future");
    }
    if !(text.ends_with('Z') && text.as_bytes().get(10) == Some(&b'T')) {
        let form = time.with_timezone(&Utc).format("%Y-%m-%dT%H:%M:%S%.fZ");
        findings.at(&M014, &place, "this time is not in the usual form").with_help(format!("write `{form}`"));
    }
    Some((time, place))
}
