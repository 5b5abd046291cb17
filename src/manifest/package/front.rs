//! Reads the front matter of a `SKILL.md` and of other documents: its end, its fields, and the span of each value.
//!
//! The module decides what can be read. It must not know the required values ([`skill`](super::skill) does). It accepts
//! only YAML that all readers of skills interpret alike: one mapping, without anchors, aliases or repeated keys, within
//! fixed sizes.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

/// The maximum size of front matter, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// A text and its location in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpannedText {
    /// The text, with quotes and escapes resolved.
    pub text: String,
    /// The bytes of the text in the file.
    pub span: Range<usize>,
}

/// The front matter of a `SKILL.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillFrontMatter {
    /// The name that agents use.
    pub name: Option<SpannedText>,
    /// The purpose of the skill and when to use it.
    pub description: Option<SpannedText>,
    /// The licence.
    pub license: Option<SpannedText>,
    /// The requirements of the skill.
    pub compatibility: Option<SpannedText>,
    /// The tools that the skill may use without asking.
    pub allowed_tools: Option<SpannedText>,
    /// Additional fields of the author.
    pub metadata: BTreeMap<String, SpannedText>,
    /// Keys that Agent Skills does not define.
    pub unknown: Vec<SpannedText>,
}

/// The parts of a `SKILL.md`.
#[derive(Clone, Debug)]
pub struct SkillFile<'a> {
    /// The front matter.
    pub front: SkillFrontMatter,
    /// The bytes of the front matter, between its delimiter lines.
    pub front_span: Range<usize>,
    /// The text after the front matter.
    pub body: &'a str,
}

/// The reason why front matter cannot be read, or why one of its fields is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FrontMatterError {
    /// The problem, without a full stop. It may lack a subject, and then follows the name of the file.
    pub message: String,
    /// The location of the problem.
    pub span: Range<usize>,
}

impl FrontMatterError {
    fn new(message: impl Into<String>, span: Range<usize>) -> Self {
        Self { message: message.into(), span }
    }
}

/// Splits a `SKILL.md` into its parts.
///
/// # Errors
///
/// Returns an error if the file is not UTF-8, or if its front matter is missing or cannot be read.
pub fn read(bytes: &[u8]) -> Result<SkillFile<'_>, FrontMatterError> {
    let FrontMatterDocument { raw, source, body } = read_front_matter_parts::<RawSkillFrontMatter>(bytes)?;
    let front = SkillFrontMatter {
        name: raw.name.map(|name| source.spanned_text(name)),
        description: raw.description.map(|text| source.spanned_text(text)),
        license: raw.license.map(|text| source.spanned_text(text)),
        compatibility: raw.compatibility.map(|text| source.spanned_text(text)),
        allowed_tools: raw.allowed_tools.map(|text| source.spanned_text(text)),
        metadata: raw.metadata.into_iter().map(|(key, value)| (key, source.spanned_text(value))).collect(),
        unknown: raw.unknown.into_iter().map(|key| source.spanned_text(key)).collect(),
    };
    Ok(SkillFile { front, front_span: source.full_range(), body })
}

/// The fields of a kind of front matter, which are read key by key, so that each key keeps its span.
pub(in crate::manifest) trait FieldReader: Default {
    /// The expected shape, for error messages.
    const EXPECTED: &'static str;

    /// Reads the value of a key.
    fn read_value<'de, A: MapAccess<'de>>(&mut self, key: Spanned<String>, map: &mut A) -> Result<(), A::Error>;
}

/// The parts of a document with front matter.
pub(in crate::manifest) struct FrontMatterDocument<'a, T> {
    /// The front matter.
    pub(in crate::manifest) raw: T,
    /// The text of the front matter and its offset.
    pub(in crate::manifest) source: FrontMatterSource<'a>,
    /// The text after the front matter.
    pub(in crate::manifest) body: &'a str,
}

/// The text of front matter, and its offset in the file.
#[derive(Clone, Copy)]
pub(in crate::manifest) struct FrontMatterSource<'a> {
    yaml: &'a str,
    offset: usize,
}

// === impl FrontMatterSource ===

impl FrontMatterSource<'_> {
    /// Returns the span of the whole front matter.
    pub(in crate::manifest) fn full_range(self) -> Range<usize> {
        self.offset..self.offset + self.yaml.len()
    }

    /// Returns a text with its span in the file.
    pub(in crate::manifest) fn spanned_text(self, spanned: Spanned<String>) -> SpannedText {
        SpannedText { text: spanned.value, span: self.bytes(spanned.referenced) }
    }

    fn bytes(self, location: Location) -> Range<usize> {
        let at = span(location, self.yaml);
        at.start + self.offset..at.end + self.offset
    }
}

/// Splits a document whose front matter is a `T` into its parts.
///
/// # Errors
///
/// Returns the same errors as [`read`].
pub(in crate::manifest) fn read_front_matter_parts<T: FieldReader>(
    bytes: &[u8],
) -> Result<FrontMatterDocument<'_, T>, FrontMatterError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| FrontMatterError::new("is not UTF-8", error.valid_up_to()..error.valid_up_to() + 1))?;
    let (front_span, body) = split_front_matter(text)?;
    let source = FrontMatterSource { yaml: text.get(front_span.clone()).unwrap_or_default(), offset: front_span.start };
    let FieldMap(raw) = serde_saphyr::from_str_with_options(source.yaml, options()).map_err(|error| {
        let at = error.location().map_or(source.offset..source.offset, |location| source.bytes(location));
        let message = error.without_snippet().to_string();
        let message = message.lines().next().unwrap_or_default();
        // The line number is removed: it counts from the start of the front matter, and the span gives the line in the
        // file.
        let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message).trim();
        FrontMatterError::new(format!("has front matter that cannot be read: {message}"), at)
    })?;
    Ok(FrontMatterDocument { raw, source, body })
}

/// Returns the text of the first heading of level 1, or `None` if there is no such heading or it is empty.
pub(in crate::manifest) fn heading(body: &str) -> Option<String> {
    let title = body.lines().find_map(|line| line.strip_prefix("# "))?.trim();
    (!title.is_empty()).then(|| title.to_owned())
}

/// Finds the two delimiter lines of three hyphens.
fn split_front_matter(text: &str) -> Result<(Range<usize>, &str), FrontMatterError> {
    if text.starts_with('\u{feff}') {
        return Err(FrontMatterError::new("begins with a byte order mark instead of `---`", 0..3));
    }
    let mut at = 0;
    let mut start = None;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_end() == "---";
        match start {
            None if is_fence => start = Some(at + line.len()),
            None => break,
            Some(start) if at - start > MAX_BYTES => {
                return Err(FrontMatterError::new("has front matter of more than 64 KiB", start..at));
            }
            Some(start) if is_fence => return Ok((start..at, text.get(at + line.len()..).unwrap_or_default())),
            Some(_) => {}
        }
        at += line.len();
    }
    match start {
        None => Err(FrontMatterError::new(
            "does not begin with front matter: a line `---`",
            0..text.chars().next().map_or(0, char::len_utf8),
        )),
        Some(start) => Err(FrontMatterError::new("has front matter without an end: a second line `---`", 0..start)),
    }
}

/// Returns the limits that refuse input before any value is built from it.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_events: 4_000,
            max_nodes: 2_000,
            max_depth: 8,
            max_aliases: 0,
            max_anchors: 0,
            max_merge_keys: 0,
            max_total_scalar_bytes: MAX_BYTES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 0,
            max_replay_stack_depth: 0,
            max_alias_expansions_per_anchor: 0,
        },
    }
}

/// Returns the span of a location, or that of its line if the parser does not know the bytes.
fn span(location: Location, yaml: &str) -> Range<usize> {
    let at = location.span();
    let known =
        at.byte_offset().and_then(|start| Some((usize::try_from(start).ok()?, usize::try_from(at.byte_len()?).ok()?)));
    if let Some((start, length)) = known {
        let start = start.min(yaml.len());
        return start..(start + length).min(yaml.len());
    }
    let line = usize::try_from(location.line()).unwrap_or(1).saturating_sub(1);
    let start: usize = yaml.split_inclusive('\n').take(line).map(str::len).sum();
    let length = yaml.get(start..).and_then(|rest| rest.lines().next()).map_or(0, str::len);
    start..start + length
}

/// The front matter as it is written in the YAML.
#[derive(Default)]
struct RawSkillFrontMatter {
    name: Option<Spanned<String>>,
    description: Option<Spanned<String>>,
    license: Option<Spanned<String>>,
    compatibility: Option<Spanned<String>>,
    allowed_tools: Option<Spanned<String>>,
    metadata: BTreeMap<String, Spanned<String>>,
    unknown: Vec<Spanned<String>>,
}

impl FieldReader for RawSkillFrontMatter {
    const EXPECTED: &'static str = "a mapping of names to texts";

    fn read_value<'de, A: MapAccess<'de>>(&mut self, key: Spanned<String>, map: &mut A) -> Result<(), A::Error> {
        match key.value.as_str() {
            "name" => self.name = Some(map.next_value()?),
            "description" => self.description = Some(map.next_value()?),
            "license" => self.license = Some(map.next_value()?),
            "compatibility" => self.compatibility = Some(map.next_value()?),
            "allowed-tools" => self.allowed_tools = Some(map.next_value()?),
            "metadata" => self.metadata = map.next_value()?,
            _ => {
                map.next_value::<IgnoredAny>()?;
                self.unknown.push(key);
            }
        }
        Ok(())
    }
}

/// Front matter that deserializes into a `T`.
struct FieldMap<T>(T);

struct FieldMapVisitor<T>(PhantomData<T>);

impl<'de, T: FieldReader> Deserialize<'de> for FieldMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldMapVisitor(PhantomData))
    }
}

impl<'de, T: FieldReader> Visitor<'de> for FieldMapVisitor<T> {
    type Value = FieldMap<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldMap<T>, A::Error> {
        let mut fields = T::default();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            fields.read_value(key, &mut map)?;
        }
        Ok(FieldMap(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        read(text.as_bytes()).map(|_| String::new()).unwrap_or_else(|error| {
            assert!(error.span.end <= text.len() && error.span.start <= error.span.end, "{:?} in {text:?}", error.span);
            error.message
        })
    }

    #[test]
    fn every_value_has_its_span() {
        let text = "---\nname: demo\ndescription: \"Zeigt: ä\"\nlicense: MIT\nmetadata:\n  version: 1.10\n  build: true\nextra: [1, 2]\nallowed-tools: Read Grep\n---\n# Demo\n";
        let file = read(text.as_bytes()).expect("front matter");
        let front = &file.front;
        assert_eq!(front.description.as_ref().unwrap().text, "Zeigt: ä");
        assert_eq!((front.metadata["version"].text.as_str(), front.metadata["build"].text.as_str()), ("1.10", "true"));
        assert_eq!(&text[front.name.as_ref().unwrap().span.clone()], "demo");
        assert_eq!(&text[front.metadata["version"].span.clone()], "1.10");
        assert_eq!(&text[front.allowed_tools.as_ref().unwrap().span.clone()], "Read Grep");
        assert_eq!(&text[front.unknown[0].span.clone()], "extra");
        assert_eq!(file.body, "# Demo\n");
        assert!(text[file.front_span].starts_with("name:"));
    }

    #[test]
    fn windows_line_ends_and_an_empty_body_are_read() {
        let file = read(b"---\r\nname: a\r\ndescription: >-\r\n  two\r\n  lines\r\n---").expect("front matter");
        assert_eq!((file.front.description.unwrap().text.as_str(), file.body), ("two lines", ""));
        assert!(read(b"---\n---\n").is_ok_and(|file| file.front == SkillFrontMatter::default()));
    }

    #[test]
    fn invalid_front_matter_is_reported() {
        assert!(message("# Demo\n").contains("does not begin"));
        assert!(message("").contains("does not begin"));
        assert!(message("\u{feff}---\nname: a\n---\n").contains("byte order mark"));
        assert!(message("---\nname: a\n").contains("without an end"));
        assert!(message("---\nname: [\n---\n").contains("cannot be read"));
        assert!(message("---\n- a\n---\n").contains("cannot be read"));
        assert!(message("---\nname: a\nname: b\n---\n").contains("cannot be read"));
        assert!(message("---\nname:\n---\n").contains("cannot be read"));
        assert!(message("---\nname: {a: b}\n---\n").contains("cannot be read"));
        assert!(message("---\nmetadata: text\n---\n").contains("cannot be read"));
        assert!(message("---\nname: a\n... \n---\n").is_empty());
        assert!(read(b"---\nname: \xff\n---\n").is_err());
    }

    /// Each of these limits alone refuses aliases, so each is tested without the others.
    #[test]
    fn every_limit_on_aliases_is_effective_alone() {
        let yaml = "name: &a demo\ndescription: *a\n";
        let wide_limits = || {
            serde_saphyr::options! {
                budget: serde_saphyr::budget! { max_aliases: 9, max_anchors: 9 },
                alias_limits: serde_saphyr::alias_limits! {
                    max_total_replayed_events: 9,
                    max_replay_stack_depth: 9,
                    max_alias_expansions_per_anchor: 9,
                },
            }
        };
        let reads =
            |options| serde_saphyr::from_str_with_options::<FieldMap<RawSkillFrontMatter>>(yaml, options).is_ok();
        assert!(reads(wide_limits()));
        let actual_limits = || options().budget.expect("a budget");
        let tighten: [fn(&mut serde_saphyr::Budget, &serde_saphyr::Budget); 2] = [
            |wide_limits, actual_limits| wide_limits.max_aliases = actual_limits.max_aliases,
            |wide_limits, actual_limits| wide_limits.max_anchors = actual_limits.max_anchors,
        ];
        for tighten in tighten {
            let mut options = wide_limits();
            tighten(options.budget.as_mut().expect("a budget"), &actual_limits());
            assert!(!reads(options));
        }
        let limits = options().alias_limits;
        let mut only = [wide_limits().alias_limits; 3];
        only[0].max_total_replayed_events = limits.max_total_replayed_events;
        only[1].max_replay_stack_depth = limits.max_replay_stack_depth;
        only[2].max_alias_expansions_per_anchor = limits.max_alias_expansions_per_anchor;
        for alias_limits in only {
            let mut options = wide_limits();
            options.alias_limits = alias_limits;
            assert!(!reads(options), "{alias_limits:?}");
        }
    }

    #[test]
    fn front_matter_that_expands_or_is_too_large_is_refused() {
        let alias_bomb = "---\na: &a [x,x,x]\nb: &b [*a,*a,*a]\nname: *b\n---\n";
        assert!(message(alias_bomb).contains("cannot be read"));
        assert!(message("---\nname: &a b\ndescription: *a\n---\n").contains("cannot be read"));
        assert!(message(&format!("---\nx: {}{}\n---\n", "[".repeat(200), "]".repeat(200))).contains("cannot be read"));
        assert!(message(&format!("---\nx: \"{}\"\n---\n", "y\n".repeat(70_000))).contains("64 KiB"));
        assert!(message(&format!("---\nx: {}\n---\n", "y".repeat(70_000))).contains("64 KiB"));
        assert!(message(&format!("---\n{}---\n", "k: v\n".repeat(10_000))).contains("cannot be read"));
    }
}
