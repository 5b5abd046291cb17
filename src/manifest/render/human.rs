//! Formats a report for people: each finding with the line that it concerns, in the style of compilers.

use std::fmt::Write as _;
use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::manifest::finding::{CheckReport, FileId, Finding, FindingLevel, SourceSpan};
use crate::manifest::rules::M023;
use crate::manifest::text::SourceFile;

/// The maximum number of bytes that several locations of one snippet may span, and the maximum number of bytes that are
/// searched for a line end before and after them (our choice).
const MAX_SNIPPET_BYTES: usize = 64 << 10;

/// Returns the report as text, with escape sequences for the colours of a terminal if `styled` is true.
#[must_use]
pub fn human(report: &CheckReport, styled: bool) -> String {
    let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
    let hidden = CredentialSpans::from_report(report);
    let mut text = String::new();
    for finding in report.findings() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}\n\n", renderer.render(&[finding_group(report, finding, &hidden)]));
    }
    text.push_str(&summary(report));
    text.push('\n');
    text
}

/// Returns one line with the name of the manifest, and the number of its findings: of each level, and allowed ones.
#[must_use]
pub fn summary(report: &CheckReport) -> String {
    let name = report.sources().first().map_or("", SourceFile::name);
    let mut parts: Vec<String> = [FindingLevel::Error, FindingLevel::Warning, FindingLevel::Note]
        .into_iter()
        .map(|level| (report.count(level), level.as_str()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
        .collect();
    if report.count_allowed() > 0 {
        parts.push(format!("{} allowed", report.count_allowed()));
    }
    if parts.is_empty() {
        parts.push("nothing to report".to_owned());
    }
    format!("{name}: {}", parts.join(", "))
}

fn finding_group<'a>(report: &'a CheckReport, finding: &'a Finding, hidden: &CredentialSpans) -> Group<'a> {
    let level = match finding.level() {
        FindingLevel::Error => Level::ERROR,
        FindingLevel::Warning => Level::WARNING,
        FindingLevel::Note | FindingLevel::Off => Level::NOTE,
    };
    let level = if finding.allowed().is_some() { level.with_name(Some("allowed")) } else { level };
    let mut group = Group::with_title(level.primary_title(finding.message()).id(finding.rule().id));
    for (file, spans) in by_file(finding) {
        let Some(source) = report.source(file) else { continue };
        group = add_snippet(group, source, &spans, hidden, file);
    }
    if finding.span().is_none()
        && let Some(source) = report.sources().first()
    {
        group = group.element(Origin::path(source.name()));
    }
    if let Some(reason) = finding.allowed() {
        group = group.element(Level::NOTE.message(format!("allowed: {reason}")));
    }
    match finding.help() {
        Some(help) => group.element(Level::HELP.message(help)),
        None => group,
    }
}

/// A location with its label. The location of the finding itself has none, because the title describes it.
type LabeledSpan<'a> = (&'a SourceSpan, Option<&'a str>);

fn by_file(finding: &Finding) -> Vec<(FileId, Vec<LabeledSpan<'_>>)> {
    let first = finding.span().map(|span| (span, None));
    let related = finding.related().iter().map(|related| (&related.span, Some(related.message.as_str())));
    let mut files: Vec<(FileId, Vec<LabeledSpan<'_>>)> = Vec::new();
    for labeled_span in first.into_iter().chain(related) {
        match files.iter_mut().find(|(file, _)| *file == labeled_span.0.file) {
            Some((_, labeled_spans)) => labeled_spans.push(labeled_span),
            None => files.push((labeled_span.0.file, vec![labeled_span])),
        }
    }
    files
}

/// Shows the locations in one file: together if they are close to each other, else one after another. If the lines are
/// too long to show, only the position of the first location is shown.
fn add_snippet<'a>(
    group: Group<'a>,
    source: &'a SourceFile,
    labeled_spans: &[LabeledSpan<'a>],
    hidden: &CredentialSpans,
    file: FileId,
) -> Group<'a> {
    let start = labeled_spans.iter().map(|(span, _)| span.start).min().unwrap_or(0);
    let end = labeled_spans.iter().map(|(span, _)| span.end).max().unwrap_or(0);
    if labeled_spans.len() > 1 && end - start > MAX_SNIPPET_BYTES {
        return labeled_spans
            .iter()
            .fold(group, |group, labeled_span| add_snippet(group, source, &[*labeled_span], hidden, file));
    }
    let Some(lines) = touched_lines(source, start..end) else {
        let at = source.position(start);
        return group.element(Origin::path(source.name()).line(at.line).char_column(at.column));
    };
    let line = source.position(lines.start).line;
    let bytes = hidden.mask(source, lines.clone(), file);
    let annotate = |(span, label): &LabeledSpan<'a>| {
        let kind = if label.is_none() { AnnotationKind::Primary } else { AnnotationKind::Context };
        let (start, end) = (span.start.saturating_sub(lines.start), span.end.saturating_sub(lines.start));
        kind.span(clipped_range(&bytes, start..end)).label(*label)
    };
    let annotations: Vec<Annotation<'a>> = labeled_spans.iter().map(annotate).collect();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    group.element(Snippet::source(text).line_start(line).path(source.name()).annotations(annotations))
}

/// Returns the byte range of the lines that a range touches, unless they are too long to show.
fn touched_lines(source: &SourceFile, range: Range<usize>) -> Option<Range<usize>> {
    let bytes = source.bytes();
    let (from, to) = (range.start.min(bytes.len()), range.end.min(bytes.len()));
    // The search for line ends is bounded, because a manifest may be one line of many megabytes.
    let (first, last) = (from.saturating_sub(MAX_SNIPPET_BYTES), (to + MAX_SNIPPET_BYTES).min(bytes.len()));
    let before = bytes[first..from].iter().rposition(|byte| *byte == b'\n').map(|at| first + at + 1);
    let after = bytes[to..last].iter().position(|byte| *byte == b'\n').map(|at| to + at);
    let start = before.or_else(|| (first == 0).then_some(0))?;
    let end = after.or_else(|| (last == bytes.len()).then_some(last))?;
    (end - start <= 4 * MAX_SNIPPET_BYTES).then_some(start..end)
}

/// Converts a range of these bytes into a range of the text that is shown for them, extended to whole characters. A
/// range over several lines is cut at the end of its first line.
fn clipped_range(bytes: &[u8], span: Range<usize>) -> Range<usize> {
    let from = span.start.min(bytes.len());
    let to = span.end.clamp(from, bytes.len());
    let first = bytes[from..to].iter().position(|byte| *byte == b'\n').map_or(to, |at| from + at);
    displayed_offset(bytes, from, false)..displayed_offset(bytes, first, true)
}

/// Converts an offset in these bytes to an offset in the text that `String::from_utf8_lossy` makes of them. Each
/// invalid sequence becomes one replacement character, so later offsets differ. An offset inside a character moves to
/// its end if `is_end` is true, else to its start.
fn displayed_offset(bytes: &[u8], offset: usize, is_end: bool) -> usize {
    let (mut before, mut shown) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        let (good, bad) = (chunk.valid(), chunk.invalid());
        if let Some(inside) = offset.checked_sub(before).filter(|inside| *inside <= good.len()) {
            let is_boundary = |at: &usize| good.is_char_boundary(*at);
            let moved = if is_end { (inside..=good.len()).find(is_boundary) } else { (0..=inside).rfind(is_boundary) };
            return shown + moved.unwrap_or(inside);
        }
        if offset < before + good.len() + bad.len() {
            return shown + good.len() + if is_end { char::REPLACEMENT_CHARACTER.len_utf8() } else { 0 };
        }
        before += good.len() + bad.len();
        shown += good.len() + if bad.is_empty() { 0 } else { char::REPLACEMENT_CHARACTER.len_utf8() };
    }
    shown
}

/// The spans of credentials that were found, which are shown as stars, because reports end up in logs. Credentials of
/// addresses are also masked in lines without such a finding: rule M023 is not checked in the previous manifest, in a
/// `SKILL.md`, and if only packages are verified.
struct CredentialSpans(Vec<SourceSpan>);

// === impl CredentialSpans ===

impl CredentialSpans {
    fn from_report(report: &CheckReport) -> Self {
        let credentials = report.findings().iter().filter(|finding| *finding.rule() == M023);
        Self(credentials.filter_map(|finding| finding.span().cloned()).collect())
    }

    fn mask(&self, source: &SourceFile, lines: Range<usize>, file: FileId) -> Vec<u8> {
        let mut bytes = source.bytes()[lines.clone()].to_vec();
        for span in self.0.iter().filter(|span| span.file == file) {
            let from = span.start.clamp(lines.start, lines.end) - lines.start;
            let to = span.end.clamp(lines.start, lines.end) - lines.start;
            bytes[from..to].fill(b'*');
        }
        for range in credentials_of_addresses(&bytes) {
            bytes[range].fill(b'*');
        }
        // The carriage return of a Windows line end is not part of the line; a space keeps the offsets.
        let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\r' && is_line_end(&bytes, *at)).collect();
        for at in ends {
            bytes[at] = b' ';
        }
        bytes
    }
}

/// Returns the user names and passwords of addresses in a text: `user:password` of `https://user:password@host`.
fn credentials_of_addresses(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < text.len() {
        // An escaped quotation mark does not end a string of JSON.
        let is_end = |at: usize| text[at].is_ascii_whitespace() || (text[at] == b'"' && !text[..at].ends_with(b"\\"));
        let end = (start..text.len()).find(|at| is_end(*at)).unwrap_or(text.len());
        let in_word = credentials_of_word(&text[start..end]).into_iter();
        found.extend(in_word.map(|range| start + range.start..start + range.end));
        start = end + 1;
    }
    found
}

/// Returns the credentials of the addresses in a word. If a host seems to be followed by something other than a port,
/// its address begins with a password that contains a `/`, `?` or `#`, and the credentials end at the last `@`.
fn credentials_of_word(word: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(colon) = word[from..].windows(2).position(|pair| pair == b":/" || pair == b":\\") {
        let after_colon = from + colon + 1;
        let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
        let start =
            word[after_colon..].iter().position(|byte| !is_slash(byte)).map_or(word.len(), |at| after_colon + at);
        let ends_host = |byte: &u8| is_slash(byte) || matches!(byte, b'?' | b'#');
        let end = word[start..].iter().position(ends_host).map_or(word.len(), |at| start + at);
        let host = &word[start..end];
        if let Some(at) = host.iter().rposition(|byte| *byte == b'@') {
            found.push(start..start + at);
        } else if !has_port_or_none(host) {
            found.extend(word.iter().rposition(|byte| *byte == b'@').filter(|at| *at > end).map(|at| start..at));
            break;
        }
        from = end;
    }
    found
}

/// Returns false if the text after the last colon is not the number of a port, and so a part of a password.
fn has_port_or_none(host: &[u8]) -> bool {
    let port = host.iter().rposition(|byte| *byte == b':').map_or(&[][..], |colon| &host[colon + 1..]);
    port.ends_with(b"]") || port.iter().all(u8::is_ascii_digit)
}

fn is_line_end(bytes: &[u8], carriage_return: usize) -> bool {
    bytes.get(carriage_return + 1).is_none_or(|next| *next == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{CheckOptions, check, verify};

    #[test]
    fn only_the_credentials_of_addresses_are_masked() {
        for (text, shown) in [
            (
                r#""git_url": "https://user:secret@h.example/a@b","#,
                r#""git_url": "https://***********@h.example/a@b","#,
            ),
            (r#""https:\/\/secret@h\/a","https://h/c@d""#, r#""https:\/\/******@h\/a","https://h/c@d""#),
            (r#""https://u:p\"w@h/", "https:///u:p@h/""#, r#""https://******@h/", "https:///***@h/""#),
            ("ssh://git@h:22/a,https://t@h/b", "ssh://***@h:22/a,https://*@h/b"),
            ("https://u:pa/ss?w#d@h/a", "https://***********@h/a"),
            ("https://h:8443/a@b https://[::1]/c@d", "https://h:8443/a@b https://[::1]/c@d"),
            ("write to someone@h.example, see http://h.example", "write to someone@h.example, see http://h.example"),
        ] {
            let mut bytes = text.as_bytes().to_vec();
            for range in credentials_of_addresses(&bytes) {
                bytes[range].fill(b'*');
            }
            assert_eq!(String::from_utf8_lossy(&bytes), shown);
        }
    }

    /// No rule about addresses is checked in a previous manifest, and none by `verify`.
    #[test]
    fn no_report_shows_the_credentials_of_any_manifest() {
        let manifest = |host: &str, more: &str| {
            let text = format!(
                "{{\n  \"repository\": {{\n    \"git_url\": \"https://user:secret@{host}/a\"{more}\n  }}\n}}\n"
            );
            SourceFile::new("skills.json", text)
        };
        let previous = manifest("old.example", "");
        let options = CheckOptions { previous: Some(&previous), ..CheckOptions::default() };
        let moved = human(&check(manifest("new.example", ""), &options), false);
        assert!(moved.contains("M116") && moved.contains("@old.example/a") && !moved.contains("secret"), "{moved}");
        let repeated = manifest("h.example", ",\n    \"git_url\": \"https://secret@h.example/b\"");
        let repeated = human(&verify(repeated, &CheckOptions::default()), false);
        assert!(repeated.contains("M003") && repeated.contains("@h.example/b"), "{repeated}");
        assert!(!repeated.contains("secret"), "{repeated}");
    }

    #[test]
    fn a_clipped_range_begins_and_ends_at_character_boundaries() {
        for bytes in [&b"a\xc3\xbc\xe2\x82\xac\xf0\x9f\x8e\xa8\nb"[..], b"a\xe2\x82b\xc3\xbc\xff\xff\xc3"] {
            let shown = String::from_utf8_lossy(bytes);
            for (start, end) in (0..=bytes.len()).flat_map(|start| (start..=bytes.len()).map(move |end| (start, end))) {
                let range = clipped_range(bytes, start..end);
                assert!(shown.get(range.clone()).is_some(), "{start}..{end} of {bytes:?}: {range:?}");
            }
        }
        // The offset of a whole character gives that character, also after invalid bytes.
        let bytes = b"a\xe2\x82b\xc3\xbc";
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!((&shown[clipped_range(bytes, 3..4)], &shown[clipped_range(bytes, 4..5)]), ("b", "\u{fc}"));
        assert_eq!((&shown[clipped_range(bytes, 5..6)], &shown[clipped_range(bytes, 1..2)]), ("\u{fc}", "\u{fffd}"));
    }
}
