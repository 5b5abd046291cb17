//! What is wrong: where, by which rule, how bad, and what to do about it.

use std::ops::Range;

use super::located::Located;
use super::rules::Rule;
use super::text::{Position, Source};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not looked for unless asked for.
    Off,
    /// Good to know.
    Note,
    /// A matter of taste or care: the manifest works.
    Warning,
    /// The manifest is broken: somebody who trusts it gets something else, or nothing.
    Error,
}

/// A file of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(usize);

/// A stretch of bytes in a file of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// The first byte.
    pub start: usize,
    /// The byte behind the last.
    pub end: usize,
}

/// Another place that belongs to a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Where.
    pub span: Span,
    /// What is there.
    pub message: String,
}

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    rule: &'static Rule,
    level: Level,
    span: Option<Span>,
    pointer: String,
    message: String,
    help: Option<String>,
    related: Vec<Related>,
    allowed: Option<String>,
}

/// What the checks write into.
#[derive(Debug, Default)]
pub struct Findings {
    /// The id of the first file.
    first: usize,
    sources: Vec<Source>,
    found: Vec<Finding>,
}

/// What came of a check: the files that were looked at, and what is wrong with them in the order of the files.
#[derive(Debug)]
pub struct Report {
    sources: Vec<Source>,
    findings: Vec<Finding>,
    asked: Vec<(&'static Rule, Level)>,
}

// === impl Level ===

impl Level {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

// === impl Span ===

impl Span {
    /// A stretch of a file.
    #[must_use]
    pub fn new(file: FileId, range: Range<usize>) -> Self {
        Self { file, start: range.start, end: range.end }
    }
}

// === impl Finding ===

impl Finding {
    /// The rule that is broken.
    #[must_use]
    pub fn rule(&self) -> &'static Rule {
        self.rule
    }

    /// How bad it is, after what the options say.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Where it is, if it is at one place of a file.
    #[must_use]
    pub fn span(&self) -> Option<&Span> {
        self.span.as_ref()
    }

    /// The value of the manifest that it is about, as a JSON pointer; the whole of it is the empty pointer.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Other places that belong to it.
    #[must_use]
    pub fn related(&self) -> &[Related] {
        &self.related
    }

    /// Why it is allowed here. What is allowed is still reported, and never fails a check.
    #[must_use]
    pub fn allowed(&self) -> Option<&str> {
        self.allowed.as_deref()
    }

    /// Whether it fails the check.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.level == Level::Error && self.allowed.is_none()
    }

    pub(crate) fn with_help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn with_related(&mut self, span: Span, message: impl Into<String>) -> &mut Self {
        self.related.push(Related { span, message: message.into() });
        self
    }

    pub(super) fn settle(&mut self, level: Level, allowed: Option<String>) {
        self.level = level;
        self.allowed = allowed;
    }
}

// === impl Findings ===

impl Findings {
    /// Takes a file into the report, so that findings can point into it.
    pub(crate) fn add(&mut self, source: Source) -> FileId {
        let id = self.next();
        self.sources.push(source);
        id
    }

    /// The id that the next file will get.
    pub(crate) fn next(&self) -> FileId {
        FileId(self.first + self.sources.len())
    }

    /// For a part of the check that somebody else does: it knows the files that are here by their ids.
    pub(super) fn part(&self) -> Self {
        Self { first: self.next().0, ..Self::default() }
    }

    /// Takes in what came of a part. Its own files come behind those that have come since.
    pub(super) fn append(&mut self, part: Self) {
        let by = self.next().0 - part.first;
        let moved = |span: &mut Span| {
            if span.file.0 >= part.first {
                span.file.0 += by;
            }
        };
        self.found.extend(part.found.into_iter().map(|mut finding| {
            finding.span.iter_mut().for_each(moved);
            finding.related.iter_mut().for_each(|related| moved(&mut related.span));
            finding
        }));
        self.sources.extend(part.sources);
    }

    /// Something is wrong with a value of a manifest.
    pub(crate) fn at(&mut self, rule: &'static Rule, place: &Located<'_>, message: impl Into<String>) -> &mut Finding {
        self.push(rule, Some(place.span()), place.pointer().to_owned(), message.into())
    }

    /// Something is wrong with a stretch of a file, which belongs to the value that `pointer` names.
    pub(crate) fn in_file(
        &mut self,
        rule: &'static Rule,
        span: Span,
        pointer: &str,
        message: impl Into<String>,
    ) -> &mut Finding {
        self.push(rule, Some(span), pointer.to_owned(), message.into())
    }

    /// Something is wrong that is at no place of a file.
    pub(crate) fn nowhere(&mut self, rule: &'static Rule, message: impl Into<String>) -> &mut Finding {
        self.push(rule, None, String::new(), message.into())
    }

    fn push(&mut self, rule: &'static Rule, span: Option<Span>, pointer: String, message: String) -> &mut Finding {
        let (help, related, allowed) = (None, Vec::new(), None);
        let finding = Finding { rule, level: rule.level, span, pointer, message, help, related, allowed };
        let at = self.found.len();
        self.found.push(finding);
        &mut self.found[at]
    }

    /// What was reported first.
    pub(super) fn first_message(&self) -> Option<&str> {
        self.found.first().map(|finding| finding.message.as_str())
    }

    /// Ends the check: every finding gets its level, those that are off are dropped, the rest is sorted by place.
    pub(crate) fn finish(self, asked: Vec<(&'static Rule, Level)>, settle: impl Fn(&mut Finding)) -> Report {
        let Self { sources, found: mut findings, .. } = self;
        findings.iter_mut().for_each(settle);
        findings.retain(|finding| finding.level != Level::Off);
        let place = |finding: &Finding| finding.span.as_ref().map(|span| (span.file, span.start));
        findings.sort_by(|a, b| (place(a), a.rule.id, &a.pointer).cmp(&(place(b), b.rule.id, &b.pointer)));
        Report { sources, findings, asked }
    }
}

// === impl Report ===

impl Report {
    /// What is wrong.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// A file that findings point into.
    #[must_use]
    pub fn source(&self, file: FileId) -> Option<&Source> {
        self.sources.get(file.0)
    }

    /// The files that were looked at; the first is the manifest.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The rules that were asked, and how bad it would have been to break each.
    #[must_use]
    pub fn asked(&self) -> &[(&'static Rule, Level)] {
        &self.asked
    }

    /// Where a span begins and ends, as editors count.
    #[must_use]
    pub fn positions(&self, span: &Span) -> Option<(Position, Position)> {
        let source = self.source(span.file)?;
        Some((source.position(span.start), source.position(span.end)))
    }

    /// How many findings have this level and are not allowed.
    #[must_use]
    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level && finding.allowed.is_none()).count()
    }

    /// How many findings are allowed.
    #[must_use]
    pub fn count_allowed(&self) -> usize {
        self.findings.iter().filter(|finding| finding.allowed.is_some()).count()
    }

    /// Whether the check failed.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(Finding::is_error)
    }
}
