//! Checks checksums and sizes as they are written, and whether entries agree about a shared package.

use std::collections::HashMap;

use crate::manifest::finding::FindingCollector;
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M040, M041, M042, M043, M044, M045};
use crate::manifest::text::JsonValue;

/// The checksum of an empty file.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// The maximum size of a package, in bytes.
pub(in crate::manifest) const LARGEST_PACKAGE: u64 = 10 << 20;

pub(super) fn check(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let mut packages: HashMap<&str, LocatedNode<'_>> = HashMap::new();
    let mut digests: HashMap<String, LocatedNode<'_>> = HashMap::new();
    for skill in manifest.skills() {
        if let Some((text, location)) = skill.text_of("sha256") {
            check_checksum(text, &location, findings);
        }
        if let Some(location) = skill.get("size_bytes")
            && let JsonValue::Number(text) = &location.node().value
        {
            check_size(text, &location, findings);
        }
        let Some((package, location)) = skill.text_of("package") else { continue };
        if let Some(first) = packages.get(package) {
            report_shared_checksum(first, &skill, &location, findings);
            continue;
        }
        packages.insert(package, skill.clone());
        let Some((digest, location)) = skill.text_of("sha256").filter(|(digest, _)| is_digest(digest)) else {
            continue;
        };
        match digests.get(&digest.to_ascii_lowercase()) {
            Some(first) => {
                findings
                    .report_at(&M044, &location, "another package has the same checksum")
                    .with_related(first.span(), "the other package");
            }
            None => {
                digests.insert(digest.to_ascii_lowercase(), location);
            }
        }
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_checksum(text: &str, location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let digits = text.trim();
    let digits = digits.strip_prefix("sha256:").or_else(|| digits.strip_prefix("sha256-")).unwrap_or(digits);
    let lower = digits.to_ascii_lowercase();
    if !is_digest(digits) {
        let count = text.chars().count();
        let message = match text.chars().find(|character| !character.is_ascii_hexdigit()) {
            Some(character) => format!("a checksum does not contain `{}`", character.escape_debug()),
            None => format!("the checksum has {count} digits, and SHA-256 has 64"),
        };
        findings.report_at(&M040, location, message).with_help("`sha256sum FILE` prints it in the right form");
    } else if lower != text {
        findings
            .report_at(&M040, location, "the checksum must be 64 hexadecimal digits in lower case")
            .with_help(format!("write `{lower}`"));
    }
    if lower == EMPTY_SHA256 {
        findings.report_at(&M041, location, "this is the checksum of an empty file");
    } else if is_digest(&lower) && lower.bytes().all(|byte| byte == b'0') {
        findings.report_at(&M041, location, "a checksum of zeros is a placeholder");
    }
}

fn check_size(text: &str, location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let message = match text.parse::<u64>() {
        Ok(0) => "no package has 0 bytes".to_owned(),
        Ok(size) if size > LARGEST_PACKAGE => format!("a package has at most {LARGEST_PACKAGE} bytes"),
        Ok(_) => return,
        Err(_) if text.starts_with('-') => "a size is not negative".to_owned(),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("a package has at most {LARGEST_PACKAGE} bytes")
        }
        Err(_) => format!("`{text}` is not written as a whole number"),
    };
    findings.report_at(&M042, location, message);
}

/// Reports that two entries name the same package, and contradictions between the two.
fn report_shared_checksum(
    first: &LocatedNode<'_>,
    skill: &LocatedNode<'_>,
    location: &LocatedNode<'_>,
    findings: &mut FindingCollector,
) {
    let named = first.get("package").map_or_else(|| first.span(), |package| package.span());
    findings.report_at(&M043, location, "another skill has this package").with_related(named, "it is named here first");
    let digest = |skill: &LocatedNode<'_>| skill.text_of("sha256").map(|(text, _)| text.to_ascii_lowercase());
    report_contradiction(first, skill, "sha256", digest, findings);
    let size = |skill: &LocatedNode<'_>| match &skill.get("size_bytes")?.node().value {
        JsonValue::Number(text) => text.parse::<f64>().ok().map(|size| size.to_string()),
        _ => None,
    };
    report_contradiction(first, skill, "size_bytes", size, findings);
}

fn report_contradiction(
    first: &LocatedNode<'_>,
    skill: &LocatedNode<'_>,
    key: &str,
    value: impl Fn(&LocatedNode<'_>) -> Option<String>,
    findings: &mut FindingCollector,
) {
    let (Some(first_value), Some(second_value)) = (value(first), value(skill)) else { return };
    let (Some(before), Some(location)) = (first.get(key), skill.get(key)) else { return };
    if first_value != second_value {
        findings
            .report_at(&M045, &location, format!("another entry gives this package a different `{key}`"))
            .with_related(before.span(), "the other one");
    }
}
