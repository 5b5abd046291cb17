//! `cargo xtask tidy`: what neither the compiler nor clippy looks at.
//!
//! Holds the code against ARCHITECTURE.md (which modules there are, in which layers), and against the sizes and
//! rules of the project; docs/specification.md against the tests and files that it names; and the vocabulary of the code
//! against docs/glossary.md. Every check is a pure
//! function from texts to findings.

mod architecture;
mod forbidden_text;
mod imports;
mod sizes;
mod specification;
mod tokens;
mod vocabulary;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use architecture::LayerMap;
use tokens::tokens;
pub use vocabulary::Vocabulary;

/// The document that lists the modules and their layers.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// What is never looked at: built, foreign, or the history.
const SKIPPED: [&str; 4] = [".git", "target", "node_modules", "Cargo.lock"];

/// A file of the repository: the path from the root with `/`, and its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// From the root of the repository, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// Something that breaks a rule of the project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Everything that breaks a rule of the project, sorted by place.
///
/// # Errors
///
/// ARCHITECTURE.md is missing or has no import table.
pub fn check(sources: &[Source]) -> Result<Vec<Finding>> {
    let document = sources.iter().find(|source| source.path == ARCHITECTURE).context(ARCHITECTURE)?;
    let map = LayerMap::parse(&document.text).context(ARCHITECTURE)?;
    let mut findings = map.compare(ARCHITECTURE, sources);
    for source in sources {
        let mut found = forbidden_text::machine_paths(&source.text);
        if source.path.ends_with(".rs") && !source.path.starts_with("generated/") {
            let tokens = tokens(&source.text);
            found.extend(forbidden_text::bare_todos(&tokens));
            found.extend(sizes::long_file(&source.text));
            found.extend(sizes::long_functions(&tokens));
            found.extend(imports::forbidden(&map, &source.path, &tokens));
        }
        findings.extend(found.into_iter().map(|(line, message)| Finding { path: source.path.clone(), line, message }));
    }
    let untrue = specification::check_page(sources).into_iter();
    findings.extend(untrue.map(|(line, message)| Finding { path: specification::PAGE.to_owned(), line, message }));
    let faults = vocabulary::check_vocabulary(sources).into_iter();
    findings.extend(faults.map(|(path, line, message)| Finding { path, line, message }));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Every text of the repository.
///
/// # Errors
///
/// A folder or file that cannot be read.
pub fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    collect_sources(root, "", &mut sources)?;
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(sources)
}

fn collect_sources(folder: &Path, prefix: &str, sources: &mut Vec<Source>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| prefix.to_owned())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect_sources(&entry.path(), &format!("{path}/"), sources)?;
        } else if let Ok(text) = String::from_utf8(fs::read(entry.path()).with_context(|| path.clone())?) {
            sources.push(Source { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "## Rooms\n\n- **`image`** is.\n\n- **`wire`** is.\n\n\
        | Layer | Modules | May import |\n|---|---|---|\n| ground | `image` `wire` | |\n\n\
        | Crate | Only in | Never in |\n|---|---|---|\n| `tokio` | `wire` | |\n";

    fn repository(image: &str) -> Vec<Source> {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let row = |number| format!("| {number} | A demand. | nothing to hold | nothing to hold | yes |\n");
        vec![
            source(ARCHITECTURE, DOCUMENT),
            source(specification::PAGE, &(1..=121).map(row).collect::<String>()),
            source(vocabulary::GLOSSARY, "# Glossary\n"),
            source("src/image.rs", image),
            source("src/wire.rs", "use crate::image::Size;\n"),
        ]
    }

    #[test]
    fn a_tidy_house_has_no_findings() {
        assert_eq!(check(&repository("pub struct Size;\n")).unwrap(), []);
    }

    #[test]
    fn findings_say_where() {
        let findings =
            check(&repository("//! Pixels.\nuse crate::wire::Code;\n// TODO later\nfn a() { tokio::spawn(b()); }\n"))
                .unwrap();
        let printed: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            printed,
            [
                "src/image.rs:2: `image` may not import `crate::wire::Code` (ARCHITECTURE.md)",
                "src/image.rs:3: a `TODO` needs a kind and an issue, such as `TODO(cleanup #12)`",
                "src/image.rs:4: `image` never names `tokio` (ARCHITECTURE.md)",
            ]
        );
    }

    #[test]
    fn a_house_without_the_page_of_the_specification_is_not_tidy() {
        let mut house = repository("pub struct Size;\n");
        house.retain(|source| source.path != specification::PAGE);
        let findings = check(&house).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].to_string(), "docs/specification.md:1: the page is missing");
    }

    #[test]
    fn a_document_without_a_table_is_an_error() {
        assert!(check(&[Source { path: ARCHITECTURE.to_owned(), text: "## Rooms\n".to_owned() }]).is_err());
        assert!(check(&[]).is_err());
    }
}
