//! The findings of a check: location, rule, level, message and help.

use std::ops::Range;

use serde::Serialize;

use super::located::LocatedNode;
use super::rules::Rule;
use super::text::{SourceFile, TextPosition};

/// The level of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLevel {
    /// Not reported unless it is enabled.
    Off,
    /// Information only.
    Note,
    /// A problem of style or safety; the manifest still works.
    Warning,
    /// The manifest is broken: users who trust it get different content, or none.
    Error,
}

/// The id of a file in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(usize);

/// A range of bytes in a file of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpan {
    /// The file.
    pub file: FileId,
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// An additional location of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedLocation {
    /// The location.
    pub span: SourceSpan,
    /// The message for this location.
    pub message: String,
}

/// A single broken rule.
#[derive(Clone, Debug)]
pub struct Finding {
    rule: &'static Rule,
    level: FindingLevel,
    span: Option<SourceSpan>,
    pointer: String,
    message: String,
    help: Option<String>,
    related: Vec<RelatedLocation>,
    allowed: Option<String>,
}

/// A collector of the findings of checks.
#[derive(Debug, Default)]
pub struct FindingCollector {
    /// The id of the first file that this collector adds; not 0 if it belongs to a part of a check.
    first: usize,
    sources: Vec<SourceFile>,
    findings: Vec<Finding>,
    checked: CheckedCounts,
}

/// The numbers of what a check has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckedCounts {
    /// The skills of the manifest.
    pub skills: usize,
    /// The files of the repository that were read, such as packages; none if the check had no repository.
    pub files: usize,
}

/// The result of a check: the files that were checked, and the findings in the order of the files.
#[derive(Debug)]
pub struct CheckReport {
    sources: Vec<SourceFile>,
    findings: Vec<Finding>,
    checked: CheckedCounts,
    checked_rules: Vec<(&'static Rule, FindingLevel)>,
}

// === impl FindingLevel ===

impl FindingLevel {
    /// Returns the name of the level.
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

// === impl SourceSpan ===

impl SourceSpan {
    /// Creates a span of a file.
    #[must_use]
    pub fn new(file: FileId, range: Range<usize>) -> Self {
        Self { file, start: range.start, end: range.end }
    }
}

// === impl Finding ===

impl Finding {
    /// Returns the broken rule.
    #[must_use]
    pub fn rule(&self) -> &'static Rule {
        self.rule
    }

    /// Returns the level, after the options are applied.
    #[must_use]
    pub fn level(&self) -> FindingLevel {
        self.level
    }

    /// Returns the location, if the finding has one in a file.
    #[must_use]
    pub fn span(&self) -> Option<&SourceSpan> {
        self.span.as_ref()
    }

    /// Returns the JSON pointer to the value of the manifest that is affected; an empty pointer means the whole
    /// manifest.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns advice on how to fix the problem.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns the other locations that belong to the finding.
    #[must_use]
    pub fn related(&self) -> &[RelatedLocation] {
        &self.related
    }

    /// Returns the reason why the finding is allowed. An allowed finding is still reported, and never fails a check.
    #[must_use]
    pub fn allowed(&self) -> Option<&str> {
        self.allowed.as_deref()
    }

    /// Returns true if the finding fails the check.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.level == FindingLevel::Error && self.allowed.is_none()
    }

    pub(crate) fn with_help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn with_related(&mut self, span: SourceSpan, message: impl Into<String>) -> &mut Self {
        self.related.push(RelatedLocation { span, message: message.into() });
        self
    }

    pub(super) fn set_level(&mut self, level: FindingLevel, allowed: Option<String>) {
        self.level = level;
        self.allowed = allowed;
    }
}

// === impl FindingCollector ===

impl FindingCollector {
    /// Adds a file to the report, so that findings can point into it.
    pub(crate) fn add(&mut self, source: SourceFile) -> FileId {
        let id = self.next_file_id();
        self.sources.push(source);
        id
    }

    /// Returns the id that the next file will get.
    pub(crate) fn next_file_id(&self) -> FileId {
        FileId(self.first + self.sources.len())
    }

    /// Creates a collector for a part of the check that runs separately. It can refer to the existing files by their
    /// ids.
    pub(super) fn separate_part(&self) -> Self {
        Self { first: self.next_file_id().0, ..Self::default() }
    }

    /// Adds the findings of a part. The files of the part come after those that were added in the meantime.
    pub(super) fn append(&mut self, part: Self) {
        let shift = self.next_file_id().0 - part.first;
        let shift_span = |span: &mut SourceSpan| {
            if span.file.0 >= part.first {
                span.file.0 += shift;
            }
        };
        self.findings.extend(part.findings.into_iter().map(|mut finding| {
            if let Some(span) = &mut finding.span {
                shift_span(span);
            }
            for related in &mut finding.related {
                shift_span(&mut related.span);
            }
            finding
        }));
        self.sources.extend(part.sources);
    }

    /// Reports a finding about a value of a manifest.
    pub(crate) fn report_at(
        &mut self,
        rule: &'static Rule,
        location: &LocatedNode<'_>,
        message: impl Into<String>,
    ) -> &mut Finding {
        self.push(rule, Some(location.span()), location.pointer().to_owned(), message.into())
    }

    /// Reports a finding about a range of a file, which belongs to the value that `pointer` names.
    pub(crate) fn report_in_file(
        &mut self,
        rule: &'static Rule,
        span: SourceSpan,
        pointer: &str,
        message: impl Into<String>,
    ) -> &mut Finding {
        self.push(rule, Some(span), pointer.to_owned(), message.into())
    }

    /// Reports a finding without a location.
    pub(crate) fn report_without_location(&mut self, rule: &'static Rule, message: impl Into<String>) -> &mut Finding {
        self.push(rule, None, String::new(), message.into())
    }

    fn push(
        &mut self,
        rule: &'static Rule,
        span: Option<SourceSpan>,
        pointer: String,
        message: String,
    ) -> &mut Finding {
        let (help, related, allowed) = (None, Vec::new(), None);
        let finding = Finding { rule, level: rule.level, span, pointer, message, help, related, allowed };
        let at = self.findings.len();
        self.findings.push(finding);
        &mut self.findings[at]
    }

    /// Sets the numbers of what was checked.
    pub(super) fn set_checked(&mut self, checked: CheckedCounts) {
        self.checked = checked;
    }

    /// Returns the number of findings of rules whose level is error.
    pub(super) fn count_errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level == FindingLevel::Error).count()
    }

    /// Returns the messages of the findings of rules whose level is error, each with the id of its rule.
    pub(super) fn error_messages(&self) -> impl Iterator<Item = String> {
        let errors = self.findings.iter().filter(|finding| finding.level == FindingLevel::Error);
        errors.map(|finding| format!("{}: {}", finding.rule.id, finding.message))
    }

    /// Returns the message of the first finding that was reported.
    pub(super) fn first_message(&self) -> Option<&str> {
        self.findings.first().map(|finding| finding.message.as_str())
    }

    /// Ends the check: sets the level of each finding, drops those that are off, and sorts the others by location.
    pub(crate) fn finish(
        self,
        checked_rules: Vec<(&'static Rule, FindingLevel)>,
        set_level: impl Fn(&mut Finding),
    ) -> CheckReport {
        let Self { sources, mut findings, checked, .. } = self;
        for finding in &mut findings {
            set_level(finding);
        }
        findings.retain(|finding| finding.level != FindingLevel::Off);
        let position = |finding: &Finding| finding.span.as_ref().map(|span| (span.file, span.start));
        findings.sort_by(|a, b| (position(a), a.rule.id, &a.pointer).cmp(&(position(b), b.rule.id, &b.pointer)));
        CheckReport { sources, findings, checked, checked_rules }
    }
}

// === impl CheckReport ===

impl CheckReport {
    /// Returns the findings.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns a file that findings point into.
    #[must_use]
    pub fn source(&self, file: FileId) -> Option<&SourceFile> {
        self.sources.get(file.0)
    }

    /// Returns the files that were checked; the first is the manifest.
    #[must_use]
    pub fn sources(&self) -> &[SourceFile] {
        &self.sources
    }

    /// Returns the numbers of what was checked.
    #[must_use]
    pub fn checked(&self) -> CheckedCounts {
        self.checked
    }

    /// Returns the rules that were checked, with the level of each.
    #[must_use]
    pub fn checked_rules(&self) -> &[(&'static Rule, FindingLevel)] {
        &self.checked_rules
    }

    /// Returns the start and end of a span as line and column.
    #[must_use]
    pub fn positions(&self, span: &SourceSpan) -> Option<(TextPosition, TextPosition)> {
        let source = self.source(span.file)?;
        Some((source.position(span.start), source.position(span.end)))
    }

    /// Returns the number of findings that have this level and are not allowed.
    #[must_use]
    pub fn count(&self, level: FindingLevel) -> usize {
        self.findings.iter().filter(|finding| finding.level == level && finding.allowed.is_none()).count()
    }

    /// Returns the number of allowed findings.
    #[must_use]
    pub fn count_allowed(&self) -> usize {
        self.findings.iter().filter(|finding| finding.allowed.is_some()).count()
    }

    /// Returns true if the check failed.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(Finding::is_error)
    }
}
