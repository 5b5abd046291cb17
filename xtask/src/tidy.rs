//! `cargo xtask tidy`: checks that neither the compiler nor clippy makes.
//!
//! It compares the code with ARCHITECTURE.md and docs/modules.md (the modules and their layers), with the size limits and
//! rules of the project (also that what a caller chooses is allocated through the admission, and that no `match` hides an
//! `if`), and its names with the words of docs/glossary.md. It checks that the tests and files that docs/specification.md
//! names exist, that every path in a Markdown page exists, and that every generated type is read or written. Every check
//! is a pure function from texts to findings.

mod allocations;
mod architecture;
mod code_lines;
mod declarations;
mod forbidden_text;
mod generated_types;
mod glossary;
mod imports;
mod page_paths;
mod shapes;
mod sizes;
mod specification;
mod tokens;
mod vocabulary;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use architecture::LayerMap;
pub use code_lines::CodeLines;
use tokens::tokens;
pub use vocabulary::Vocabulary;

/// The document with the layers of the modules.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The page with a paragraph for each module.
const MODULES: &str = "docs/modules.md";
/// Names of files and folders that are never read: build output, third-party packages, and git.
const SKIPPED: [&str; 4] = [".git", "target", "node_modules", "Cargo.lock"];

/// A file of the repository: the path from the root with `/`, and its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path from the root of the repository, with `/`.
    pub path: String,
    /// The complete text.
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

/// All findings, sorted by path and line.
///
/// # Errors
///
/// ARCHITECTURE.md or docs/modules.md is missing, or ARCHITECTURE.md has no import table.
pub fn check(sources: &[Source]) -> Result<Vec<Finding>> {
    let text = |path: &'static str| {
        let source = sources.iter().find(|source| source.path == path);
        source.map(|source| &*source.text).context(path)
    };
    let map = LayerMap::parse(text(ARCHITECTURE)?, text(MODULES)?).context(ARCHITECTURE)?;
    let mut findings = map.compare(sources);
    for source in sources {
        let mut found = forbidden_text::machine_paths(&source.text);
        if source.path.ends_with(".rs") && !source.path.starts_with("generated/") {
            let tokens = tokens(&source.text);
            found.extend(forbidden_text::bare_todos(&tokens));
            found.extend(shapes::leading_guards(&tokens));
            found.extend(shapes::fallible_lengths(&tokens));
            found.extend(sizes::long_file(&source.text));
            found.extend(sizes::long_functions(&tokens));
            found.extend(imports::forbidden(&map, &source.path, &tokens));
            found.extend(allocations::unadmitted(&source.path, &tokens));
        }
        findings.extend(found.into_iter().map(|(line, message)| Finding { path: source.path.clone(), line, message }));
    }
    let specification_findings = specification::check_page(sources).into_iter();
    findings.extend(specification_findings.map(|(line, message)| Finding {
        path: specification::PAGE.to_owned(),
        line,
        message,
    }));
    let vocabulary_findings = vocabulary::check_vocabulary(sources).into_iter();
    let names = glossary::check_names(sources).into_iter();
    findings.extend(vocabulary_findings.chain(names).map(|(path, line, message)| Finding { path, line, message }));
    let dead_paths = page_paths::dead_paths(sources).into_iter();
    findings.extend(dead_paths.map(|(path, line, message)| Finding { path: path.to_owned(), line, message }));
    let unused_types = generated_types::unused(sources).into_iter();
    findings.extend(unused_types.map(|(path, line, message)| Finding { path: path.to_owned(), line, message }));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Reads every text file of the repository.
///
/// # Errors
///
/// A folder or file that cannot be read.
pub fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    collect_sources(root, "", &mut sources)?;
    sources.sort_by(|first, second| first.path.cmp(&second.path));
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

    const DOCUMENT: &str = "## Modules\n\n- **`image`** is.\n\n- **`wire`** is.\n\n\
        | Layer | Modules | May import |\n|---|---|---|\n| ground | `image` `wire` | |\n\n\
        | Crate | Only in | Never in |\n|---|---|---|\n| `tokio` | `wire` | |\n";

    fn repository(image: &str) -> Vec<Source> {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let row = |number| format!("| {number} | A demand. | none | none | yes |\n");
        vec![
            source(ARCHITECTURE, DOCUMENT),
            source(MODULES, DOCUMENT),
            source(specification::PAGE, &(1..=specification::DEMANDS).map(row).collect::<String>()),
            source(glossary::GLOSSARY, "# Glossary\n"),
            source("src/image.rs", image),
            source("src/wire.rs", "use crate::image::Size;\n"),
        ]
    }

    #[test]
    fn a_repository_without_faults_has_no_findings() {
        assert_eq!(check(&repository("pub struct Size;\n")).unwrap(), []);
    }

    #[test]
    fn findings_name_path_and_line() {
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
    fn a_missing_specification_page_is_a_finding() {
        let mut sources = repository("pub struct Size;\n");
        sources.retain(|source| source.path != specification::PAGE);
        let findings = check(&sources).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].to_string(), "docs/specification.md:1: the page is missing");
    }

    #[test]
    fn a_document_without_a_table_is_an_error() {
        assert!(check(&[Source { path: ARCHITECTURE.to_owned(), text: "## Modules\n".to_owned() }]).is_err());
        assert!(check(&[]).is_err());
    }
}
