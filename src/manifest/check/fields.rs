//! Checks for unknown fields, and the version of the format.

use crate::manifest::finding::{FindingCollector, SourceSpan};
use crate::manifest::layout::ManifestSection;
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M005, M006};
use crate::manifest::text::child;

/// The major version of the format that these rules cover.
const KNOWN_MAJOR: u64 = 1;

pub(super) fn check(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    check_unknown(manifest, ManifestSection::Registry, findings);
    if let Some(repository) = manifest.get("repository") {
        check_unknown(&repository, ManifestSection::Repository, findings);
    }
    manifest.skills().for_each(|skill| check_unknown(&skill, ManifestSection::Skill, findings));
    manifest.apis().for_each(|api| check_unknown(&api, ManifestSection::Api, findings));
    check_schema_version(manifest, findings);
}

fn check_unknown(object: &LocatedNode<'_>, part: ManifestSection, findings: &mut FindingCollector) {
    for member in object.node().members() {
        let key = member.key.as_str();
        let is_extension =
            key.starts_with("x-") || key.starts_with("x_") || (key == "$schema" && part == ManifestSection::Registry);
        if is_extension || part.fields().contains(&key) {
            continue;
        }
        let span = SourceSpan::new(object.file(), member.key_span.clone());
        let message = format!("`{}` is not a field of the manifest format", key.escape_debug());
        let finding = findings.report_in_file(&M005, span, &child(object.pointer(), key), message);
        finding.with_help(match nearest(key, part.fields().iter().copied()) {
            Some(field) => format!("did you mean `{field}`?"),
            None => "begin names of your own with `x-`".to_owned(),
        });
    }
}

/// Returns the most similar known word, if it differs from `word` in at most two letters, or one if `word` is short.
/// Case, `-`, `_` and spaces are ignored.
pub(in crate::manifest) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let normalize = |word: &str| word.replace(['-', '_', ' '], "").to_lowercase();
    let word = normalize(word);
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &normalize(known));
    // Two wrong letters are too many for a short word.
    let tolerated = if word.len() < 6 { 1 } else { 2 };
    known.map(|known| (distance(known), known)).filter(|(far, _)| *far <= tolerated).min().map(|(_, known)| known)
}

fn check_schema_version(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let Some((text, location)) = manifest.text_of("schema_version") else { return };
    let parts: Vec<Option<u64>> = text.split('.').map(parse_whole).collect();
    let major = match parts[..] {
        [Some(major)] | [Some(major), Some(_)] | [Some(major), Some(_), Some(_)] => major,
        _ => {
            let message = format!("`{}` is not a version of the manifest format", text.escape_debug());
            findings.report_at(&M006, &location, message).with_help("write `1.0`");
            return;
        }
    };
    if major != KNOWN_MAJOR {
        let message = format!("this program knows version {KNOWN_MAJOR} of the manifest format, not {major}");
        findings.report_at(&M006, &location, message).with_help("fields may have another meaning in that version");
    }
}

fn parse_whole(digits: &str) -> Option<u64> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    is_plain.then(|| digits.parse().ok()).flatten()
}
