//! The entry of one skill, and its package.

use std::collections::BTreeMap;

use semver::Version;

use super::{Before, Built, Member, Node, Problem, Recipe, Value, folder, limits, set, stamp, string, text};
use crate::manifest::package::archive::Fault;
use crate::manifest::package::front::{self, SkillFile};
use crate::manifest::package::{Contents, SKILL_FILE, Sha256Sum, pack, skill};
use crate::manifest::text::Source;

type Files = BTreeMap<String, Vec<u8>>;

pub(super) fn entry(
    recipe: &Recipe<'_>,
    name: &str,
    before: &Before<'_>,
    built: &mut Built,
) -> Result<Node, Vec<Problem>> {
    let root = format!("{}/{name}", recipe.skills);
    let files = folder::files(recipe, &root, built)?;
    let path = format!("{root}/{SKILL_FILE}");
    let Some(bytes) = files.get(SKILL_FILE) else { return Err(vec![Problem::new(path, "is missing")]) };
    let file = read(bytes, name, &path)?;
    let version = version(&file, &path, bytes)?;
    let package = format!("{}/{name}-{version}.zip", recipe.packages);
    let packed =
        package_of(recipe, &files, &package, before.version(&version), built).map_err(|problem| vec![problem])?;
    let mut members: Vec<Member> = before.newest().map(|entry| entry.members().to_vec()).unwrap_or_default();
    let description = file.front.description.as_ref().map(|word| word.text.trim().to_owned()).unwrap_or_default();
    set(&mut members, "name", string(name));
    set(&mut members, "version", string(version));
    set(&mut members, "title", string(title(&file, name)));
    set(&mut members, "description", string(description));
    set(&mut members, "path", string(root));
    set(&mut members, "package", string(package));
    set(&mut members, "sha256", string(packed.sum.to_string()));
    set(&mut members, "size_bytes", Node::new(Value::Number(packed.size.to_string())));
    for key in ["tags", "agents"] {
        if let Some(words) = file.front.metadata.get(key) {
            let words = words.text.split([',', ' ']).filter(|word| !word.is_empty()).map(string).collect();
            set(&mut members, key, Node::new(Value::Array(words)));
        }
    }
    let is_as_before = before.newest().is_some_and(|entry| says_the_same(entry.members(), &members));
    if !(is_as_before && members.iter().any(|member| member.key == "updated_at")) {
        set(&mut members, "updated_at", string(stamp(recipe.now)));
    }
    Ok(Node::new(Value::Object(members)))
}

fn says_the_same(one: &[Member], other: &[Member]) -> bool {
    let plain = |members: &[Member]| Node { span: 0..0, value: Value::Object(members.to_vec()) }.to_json();
    plain(one) == plain(other)
}

fn read<'a>(bytes: &'a [u8], name: &str, path: &str) -> Result<SkillFile<'a>, Vec<Problem>> {
    let source = || Source::new(path, bytes);
    let file = front::read(bytes).map_err(|error| {
        let position = Some(source().position(error.span.start));
        vec![Problem { path: path.to_owned(), position, message: error.message }]
    })?;
    let faults = skill::faults(&file, Some(name));
    if faults.is_empty() {
        return Ok(file);
    }
    let source = source();
    let problem = |fault: skill::FrontFault| Problem {
        path: path.to_owned(),
        position: Some(source.position(fault.span.start)),
        message: fault.message,
    };
    Err(faults.into_iter().map(problem).collect())
}

fn version(file: &SkillFile<'_>, path: &str, bytes: &[u8]) -> Result<String, Vec<Problem>> {
    let at = |start: usize, message: String| {
        let position = Some(Source::new(path, bytes).position(start));
        vec![Problem { path: path.to_owned(), position, message }]
    };
    let Some(word) = file.front.metadata.get("version") else {
        let message = "has no version; write `metadata:` and below it `  version: \"1.0.0\"`";
        return Err(at(file.front_span.start, message.to_owned()));
    };
    match Version::parse(word.text.trim()) {
        Ok(version) => Ok(version.to_string()),
        Err(error) => Err(at(word.span.start, format!("`{}` is no version like 1.0.0: {error}", word.text))),
    }
}

/// What people call the skill: what it says, else its first heading, else its name in words.
fn title(file: &SkillFile<'_>, name: &str) -> String {
    let said = file.front.metadata.get("title").map(|word| word.text.trim().to_owned());
    let heading = || file.body.lines().find_map(|line| line.strip_prefix("# ")).map(|title| title.trim().to_owned());
    let words = || {
        let mut words = name.replace('-', " ");
        if let Some(first) = words.get(..1).map(str::to_uppercase) {
            words.replace_range(..1, &first);
        }
        words
    };
    said.or_else(heading).filter(|title| !title.is_empty()).unwrap_or_else(words)
}

struct Packed {
    size: usize,
    sum: Sha256Sum,
}

/// The package that is there, if it holds the same files; else a new one, if its version may have it.
fn package_of(
    recipe: &Recipe<'_>,
    files: &Files,
    path: &str,
    published: Option<&Node>,
    built: &mut Built,
) -> Result<Packed, Problem> {
    let there = recipe.files.read(path, limits().archive_bytes)?;
    let promised = published.and_then(|entry| text(entry, "sha256"));
    if let Some(bytes) = there {
        let sum = Sha256Sum::of(&bytes);
        let is_promised = promised.is_none_or(|promised| promised.eq_ignore_ascii_case(&sum.to_string()));
        if is_promised && holds(&bytes, files) {
            built.kept += 1;
            return Ok(Packed { size: bytes.len(), sum });
        }
        if !recipe.overwrite {
            return Err(Problem::new(path, if is_promised { CHANGED } else { TOUCHED }));
        }
    }
    let bytes = pack(files, recipe.stamp, &limits()).map_err(|error| Problem::new(path, error.to_string()))?;
    // What is too large for those who install, or unsafe, is never published; nor what would not be known again.
    let contents = Contents::read(&bytes, &limits()).map_err(|faults| Problem::new(path, listed(&faults)))?;
    if !is_of(&contents, files) {
        return Err(Problem::new(path, "does not hold what was packed into it, and is not written"));
    }
    let sum = Sha256Sum::of(&bytes);
    if promised.is_some_and(|promised| !promised.eq_ignore_ascii_case(&sum.to_string())) && !recipe.overwrite {
        return Err(Problem::new(path, CHANGED));
    }
    let packed = Packed { size: bytes.len(), sum };
    built.packages.push((path.to_owned(), bytes));
    Ok(packed)
}

const CHANGED: &str = "was published with other content under this version; raise `metadata.version` (or pass --overwrite if \
                       nobody has it yet)";
const TOUCHED: &str = "is not the package that the manifest promises; restore it, or raise `metadata.version` (or pass \
                       --overwrite if nobody has it yet)";

fn listed(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether a package holds these files and no others.
fn holds(package: &[u8], files: &Files) -> bool {
    Contents::read(package, &limits()).is_ok_and(|contents| is_of(&contents, files))
}

fn is_of(contents: &Contents, files: &Files) -> bool {
    contents.root() == Some("")
        && contents.files.len() == files.len()
        && files
            .iter()
            .all(|(path, bytes)| contents.files.get(path).is_some_and(|content| content.sum == Sha256Sum::of(bytes)))
}
