//! Builds the entry of one skill, and its package.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;

use super::{
    BuildInput, BuildOutput, BuildProblem, JsonMember, JsonNode, JsonValue, PreviousEntries, folder, format_time,
    limits, set_member, string, text,
};
use crate::manifest::check::nearest;
use crate::manifest::files::MemoryFiles;
use crate::manifest::finding::FindingCollector;
use crate::manifest::located::LocatedNode;
use crate::manifest::package::front::{self, SkillFile};
use crate::manifest::package::skill::{self, FrontMatterFault};
use crate::manifest::package::{
    CheckScope, PackageContents, PackageFile, RepositoryChecker, SKILL_FILE, Sha256Sum, pack,
};
use crate::manifest::text::SourceFile;

type FilesByPath = BTreeMap<String, Vec<u8>>;

/// The field that names the API references of a skill, in `metadata` and in its entry.
const API_DOCS: &str = "api_docs";

/// The skill of an entry, and the places of its files.
pub(super) struct SkillSource<'a> {
    pub(super) name: &'a str,
    /// The folder of the skill.
    pub(super) root: String,
    /// The folder for its packages.
    pub(super) packages: &'a str,
    /// True if the package of a version that is already listed keeps its path.
    pub(super) keeps_package_path: bool,
}

// === impl SkillSource ===

impl SkillSource<'_> {
    /// Returns the path of the package of a version; `listed` is the entry of that version, if there is one.
    fn package_path(&self, version: &str, listed: Option<&JsonNode>) -> String {
        let file_name = format!("{}-{version}.zip", self.name);
        match listed.and_then(|entry| text(entry, "package")).filter(|_| self.keeps_package_path) {
            Some(path) => path.to_owned(),
            None if self.packages.is_empty() => file_name,
            None => format!("{}/{file_name}", self.packages),
        }
    }
}

/// Builds the entry of a skill; `ids` are the ids of the API references.
pub(super) fn skill_entry(
    input: &BuildInput<'_>,
    source: &SkillSource<'_>,
    before: &PreviousEntries<'_>,
    ids: &BTreeSet<String>,
    built: &mut BuildOutput,
) -> Result<JsonNode, Vec<BuildProblem>> {
    let (name, root) = (source.name, source.root.clone());
    let normal_name = skill::normal_name(name);
    if normal_name != name {
        // Installers would compare other bytes than users type.
        let message = format!("is not in Unicode normal form KC; rename the folder to `{normal_name}`");
        return Err(vec![BuildProblem::new(root, message)]);
    }
    let files = folder::skill_files(input, &root, built)?;
    let path = format!("{root}/{SKILL_FILE}");
    let Some(bytes) = files.get(SKILL_FILE) else { return Err(vec![BuildProblem::new(path, "is missing")]) };
    let file = read_skill_file(bytes, name, &path)?;
    let version = version(&file, &path, bytes)?;
    check_api_docs(input, &file, ids).map_err(|faults| problems_at(&path, bytes, faults))?;
    let package = source.package_path(&version, before.version(&version));
    let packed = find_or_build_package(input, &files, &package, before.version(&version), built)
        .map_err(|problem| vec![problem])?;
    let former = before.version(&version).or_else(|| before.newest());
    let mut members: Vec<JsonMember> = former.map(|entry| entry.members().to_vec()).unwrap_or_default();
    let description = file.front.description.as_ref().map(|word| word.text.trim().to_owned()).unwrap_or_default();
    set_member(&mut members, "name", string(name));
    set_member(&mut members, "version", string(version));
    set_member(&mut members, "title", string(title(&file, name)));
    set_member(&mut members, "description", string(description));
    set_member(&mut members, "path", string(root));
    set_member(&mut members, "package", string(package));
    set_member(&mut members, "sha256", string(packed.sum.to_string()));
    set_member(&mut members, "size_bytes", JsonNode::new(JsonValue::Number(packed.bytes.len().to_string())));
    for key in [API_DOCS, "tags", "agents"] {
        if let Some(value) = file.front.metadata.get(key) {
            set_member(
                &mut members,
                key,
                JsonNode::new(JsonValue::Array(split_words(&value.text).map(string).collect())),
            );
        }
    }
    let is_unchanged = former.is_some_and(|entry| are_equal_except_spans(entry.members(), &members));
    if !(is_unchanged && members.iter().any(|member| member.key == "updated_at")) {
        set_member(&mut members, "updated_at", string(format_time(input.now)));
    }
    let entry = JsonNode::new(JsonValue::Object(members));
    verify_package(&entry, packed.bytes, &files)?;
    Ok(entry)
}

/// Checks a package as an installer does, and that it holds these files: otherwise it must not be published.
fn verify_package(entry: &JsonNode, bytes: Vec<u8>, files: &FilesByPath) -> Result<(), Vec<BuildProblem>> {
    let path = text(entry, "package").unwrap_or_default();
    let mut findings = FindingCollector::default();
    let entry = LocatedNode::root(entry, findings.add(SourceFile::new(path, Vec::new())));
    let mut package_file = MemoryFiles::new();
    package_file.insert(path, bytes);
    let checker = RepositoryChecker::new(&package_file, "", CheckScope::Packages);
    match checker.verified_package(&entry, &mut findings) {
        Some(package) if has_exactly_files(package.files(), files) => Ok(()),
        Some(_) => Err(vec![BuildProblem::new(path, "does not contain the files that were packed into it")]),
        None => Err(findings.error_messages().map(|message| BuildProblem::new(path, message)).collect()),
    }
}

pub(super) fn are_equal_except_spans(first: &[JsonMember], second: &[JsonMember]) -> bool {
    let without_spans =
        |members: &[JsonMember]| JsonNode { span: 0..0, value: JsonValue::Object(members.to_vec()) }.to_json();
    without_spans(first) == without_spans(second)
}

/// Splits a text that contains several words.
fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| character == ',' || character.is_whitespace()).filter(|word| !word.is_empty())
}

/// Converts the faults of a document into problems with line and column.
fn problems_at(path: &str, bytes: &[u8], faults: Vec<FrontMatterFault>) -> Vec<BuildProblem> {
    let source = SourceFile::new(path, bytes);
    let problem = |fault: FrontMatterFault| BuildProblem {
        path: path.to_owned(),
        position: Some(source.position(fault.span.start)),
        message: fault.message,
    };
    faults.into_iter().map(problem).collect()
}

fn read_skill_file<'a>(bytes: &'a [u8], name: &str, path: &str) -> Result<SkillFile<'a>, Vec<BuildProblem>> {
    let file = front::read(bytes)
        .map_err(|error| problems_at(path, bytes, vec![FrontMatterFault::new(error.message, error.span)]))?;
    let faults = skill::faults(&file, Some(name));
    if faults.is_empty() { Ok(file) } else { Err(problems_at(path, bytes, faults)) }
}

fn version(file: &SkillFile<'_>, path: &str, bytes: &[u8]) -> Result<String, Vec<BuildProblem>> {
    let fault = |message: String, span| Err(problems_at(path, bytes, vec![FrontMatterFault::new(message, span)]));
    let Some(word) = file.front.metadata.get("version") else {
        let message = "has no version; write `metadata:` and below it `  version: \"1.0.0\"`";
        return fault(message.to_owned(), file.front_span.clone());
    };
    match Version::parse(word.text.trim()) {
        Ok(version) => Ok(version.to_string()),
        Err(error) => fault(format!("`{}` is not a version like 1.0.0: {error}", word.text), word.span.clone()),
    }
}

/// Checks that each item of `api_docs` is the id of an API reference, an address, or a path that the repository has.
fn check_api_docs(
    input: &BuildInput<'_>,
    file: &SkillFile<'_>,
    ids: &BTreeSet<String>,
) -> Result<(), Vec<FrontMatterFault>> {
    let Some(value) = file.front.metadata.get(API_DOCS) else { return Ok(()) };
    let is_file = |path: &str| matches!(input.files.metadata(path), Ok(Some(_)));
    let exists = |word: &&str| ids.contains(*word) || word.contains("://") || is_file(word);
    let fault = |word: &str| {
        let help = nearest(word, ids.iter().map(String::as_str)).map(|id| format!("; did you mean `{id}`?"));
        let message = format!("`{API_DOCS}` names `{}`, and there is no such API reference", word.escape_debug());
        FrontMatterFault::new(message + &help.unwrap_or_default(), value.span.clone())
    };
    let faults: Vec<FrontMatterFault> = split_words(&value.text).filter(|word| !exists(word)).map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Returns the title of the skill: its `title` if it has one, else its first heading, else its name as words.
fn title(file: &SkillFile<'_>, name: &str) -> String {
    let stated = file.front.metadata.get("title").map(|word| word.text.trim().to_owned());
    let name_as_words = || {
        let mut words = name.replace('-', " ");
        if let Some(first) = words.get(..1).map(str::to_uppercase) {
            words.replace_range(..1, &first);
        }
        words
    };
    stated.filter(|title| !title.is_empty()).or_else(|| front::heading(file.body)).unwrap_or_else(name_as_words)
}

struct PackageDescriptor {
    bytes: Vec<u8>,
    sum: Sha256Sum,
}

/// Returns the package at `path` with its checksum. The existing package is kept if it contains exactly these files
/// and has the checksum of the `published` entry, if there is one. Otherwise a new one is built and added to `built`.
///
/// Returns an error if that would replace an existing package or a published checksum, unless `overwrite` is set.
fn find_or_build_package(
    input: &BuildInput<'_>,
    files: &FilesByPath,
    path: &str,
    published: Option<&JsonNode>,
    built: &mut BuildOutput,
) -> Result<PackageDescriptor, BuildProblem> {
    let existing = input.files.read(path, limits().archive_bytes)?;
    let published_sum = published.and_then(|entry| text(entry, "sha256"));
    if let Some(bytes) = existing {
        let sum = Sha256Sum::of(&bytes);
        let matches_published = published_sum.is_none_or(|stated| stated.eq_ignore_ascii_case(&sum.to_string()));
        if matches_published && package_has_files(&bytes, files) {
            built.unchanged += 1;
            return Ok(PackageDescriptor { bytes, sum });
        }
        if !input.overwrite {
            return Err(BuildProblem::new(path, if matches_published { CONTENT_CHANGED } else { PACKAGE_CHANGED }));
        }
    }
    let bytes = pack(files, input.timestamp, &limits()).map_err(|error| BuildProblem::new(path, error.to_string()))?;
    let sum = Sha256Sum::of(&bytes);
    if published_sum.is_some_and(|stated| !stated.eq_ignore_ascii_case(&sum.to_string())) && !input.overwrite {
        return Err(BuildProblem::new(path, CONTENT_CHANGED));
    }
    built.packages.push((path.to_owned(), bytes.clone()));
    Ok(PackageDescriptor { bytes, sum })
}

const CONTENT_CHANGED: &str = "was published with other content under this version; raise `metadata.version` (or pass \
                               --overwrite if the version is not in use yet)";
const PACKAGE_CHANGED: &str = "is not the package that the manifest promises; restore it, or raise `metadata.version` \
                               (or pass --overwrite if the version is not in use yet)";

/// Returns true if a package contains these files and no others.
fn package_has_files(package: &[u8], files: &FilesByPath) -> bool {
    PackageContents::read(package, &limits()).is_ok_and(|contents| {
        let packed = contents.files.iter().map(|(path, file)| (path.as_str(), file));
        has_exactly_files(packed, files)
    })
}

fn has_exactly_files<'a>(packed: impl Iterator<Item = (&'a str, &'a PackageFile)>, files: &FilesByPath) -> bool {
    let packed: BTreeMap<&str, Sha256Sum> = packed.map(|(path, file)| (path, file.sum)).collect();
    packed.len() == files.len()
        && files.iter().all(|(path, bytes)| packed.get(path.as_str()) == Some(&Sha256Sum::of(bytes)))
}
