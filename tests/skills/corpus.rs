//! The corpus of manifests. `corpus/M040/short.json` breaks rule M040, `corpus/M040/good-….json` almost breaks it, and
//! the manifests in `corpus/good` have no findings. A case may have further files beside its manifest: the manifest
//! that was published before (`….previous.json`), a checkout (`….files/`) and the answers of URLs (`….web.json`). Git
//! on some systems turns symbolic links into text files, so the corpus has none: `NAME.link` in a checkout stands for
//! the link `NAME`, and its text is the target of the link.
//!
//! The printed reports are in `golden/`, one file for each format; `IMAGATE_BLESS=1` writes them again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use imagate::manifest::rules::{self, RuleClass};
use imagate::manifest::{CheckReport, SourceFile, format};

use crate::cases::{self, Case, FORMATS, FileTree, printed};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/skills")
}

/// The folder of the documents and the skills that this repository ships: the repository, or a changed copy that
/// `cargo xtask mutations` made.
#[expect(clippy::disallowed_methods, reason = "`cargo xtask mutations` passes the folder only in the environment")]
pub(crate) fn documents() -> PathBuf {
    let root = || Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf();
    std::env::var_os("IMAGATE_DOCUMENTS").map_or_else(root, PathBuf::from)
}

pub(crate) fn cases() -> Vec<Case> {
    cases::cases(&tree(&folder().join("corpus")))
}

fn tree(root: &Path) -> FileTree {
    let (mut tree, mut folders) = (FileTree::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let below = path.strip_prefix(root).expect("below");
            let name: Vec<&str> = below.iter().map(|part| part.to_str().expect("a name")).collect();
            tree.insert(name.join("/"), fs::read(&path).expect("a file"));
        }
    }
    tree
}

fn broken(report: &CheckReport) -> BTreeSet<&'static str> {
    report.findings().iter().map(|finding| finding.rule().id).collect()
}

#[test]
fn every_case_breaks_the_rule_that_it_is_named_after() {
    let cases = cases();
    assert!(cases.len() >= 120, "{}", cases.len());
    for case in &cases {
        let found = broken(&case.report());
        match case.rule() {
            None => assert!(found.is_empty(), "{}: {found:?}", case.name),
            Some(rule) => assert_eq!(found.contains(rule), !case.is_good(), "{}: {found:?}", case.name),
        }
    }
}

#[test]
fn every_rule_about_the_manifest_has_cases() {
    let covered: BTreeSet<String> =
        cases().iter().filter(|case| !case.is_good()).filter_map(|case| case.rule().map(str::to_owned)).collect();
    let is_about_manifest = |class| matches!(class, RuleClass::Shape | RuleClass::Static | RuleClass::History);
    let missing: Vec<&str> = rules::all()
        .filter(|rule| is_about_manifest(rule.class) && !covered.contains(rule.id))
        .map(|rule| rule.id)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_finding_points_into_its_file() {
    for case in cases() {
        let report = case.report();
        for finding in report.findings() {
            let spans = finding.span().into_iter().chain(finding.related().iter().map(|related| &related.span));
            for span in spans {
                let source = report.source(span.file).expect("a file of the report");
                assert!(span.start <= span.end && span.end <= source.bytes().len(), "{}: {span:?}", case.name);
            }
        }
    }
}

#[test]
fn formatting_is_stable_and_changes_only_layout_findings() {
    for case in cases() {
        let Ok(text) = format(&case.source, false) else { continue };
        let formatted = SourceFile::new(case.source.name(), text.clone());
        assert_eq!(format(&formatted, false).expect("formatted text is JSON"), text, "{}", case.name);
        let before = broken(&case.report());
        let after = broken(&case.with(formatted).report());
        let layout_rules = BTreeSet::from(["M001", "M120"]);
        assert!(before.difference(&after).all(|rule| layout_rules.contains(rule)), "{before:?} {after:?}");
        assert!(after.is_subset(&before) && !after.contains("M120"), "{before:?} {after:?}");
    }
}

#[test]
fn reports_equal_the_golden_files_in_every_format() {
    FORMATS.into_iter().for_each(compare_with_golden_file);
}

/// Compares the printed reports of all cases with the golden file.
fn compare_with_golden_file(format: &str) {
    let name = format!("{format}.txt");
    let path = folder().join("golden").join(&name);
    let printed = printed(format, &cases());
    if crate::outside::environment_variable("IMAGATE_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, &printed).expect("a golden file");
    }
    let before = fs::read_to_string(&path).unwrap_or_default();
    let difference = printed.lines().zip(before.lines()).enumerate().find(|(_, (now, before))| now != before);
    if let Some((line, (now, before))) = difference {
        panic!("{name}:{}: `{now}`, before `{before}`; IMAGATE_BLESS=1 writes the file again", line + 1);
    }
    assert_eq!(printed.len(), before.len(), "{name}; IMAGATE_BLESS=1 writes the file again");
}
