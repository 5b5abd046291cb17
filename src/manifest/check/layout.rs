//! Checks the rules about the layout of the manifest file.

use crate::manifest::finding::{FindingCollector, SourceSpan};
use crate::manifest::layout;
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M120, M121, M122};
use crate::manifest::text::write;

pub(super) fn check(manifest: &LocatedNode<'_>, text: &str, findings: &mut FindingCollector) {
    let canonical_text = write(&layout::canonical(manifest.node()));
    if canonical_text != text {
        let at = text.bytes().zip(canonical_text.bytes()).take_while(|(actual, canonical)| actual == canonical).count();
        let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let end = text[at..].chars().next().map_or(at, |character| at + character.len_utf8());
        findings
            .report_in_file(&M120, SourceSpan::new(manifest.file(), at..end), "", "the layout differs from here on")
            .with_help("`imagate skills fmt` rewrites the file");
    }
    for key in ["skills", "apis"] {
        let elements: Vec<LocatedNode<'_>> = manifest.elements_of(key).collect();
        for pair in elements.windows(2) {
            let [first, second] = pair else { continue };
            if layout::sort_key(first.node()) > layout::sort_key(second.node()) {
                findings.report_at(&M121, &identifying_value(second), "this entry must come before the previous one");
            }
        }
    }
    if manifest.text_of("x-generator").is_none() {
        let start = manifest.span().start;
        let span = SourceSpan { end: start + 1, ..manifest.span() };
        findings.report_in_file(&M122, span, "", "the manifest does not name its generator");
    }
}

/// Returns the value of an entry that a finding marks, its name or id: the whole entry would fill a screen.
fn identifying_value<'a>(entry: &LocatedNode<'a>) -> LocatedNode<'a> {
    entry.get("name").or_else(|| entry.get("id")).unwrap_or_else(|| entry.clone())
}
