//! The corpus: `corpus/M040/short.json` breaks rule M040, `corpus/M040/good-….json` is near it and does not, and what
//! stands in `corpus/good` has nothing to report. Beside a manifest may stand the one published before
//! (`….previous.json`), a checkout (`….files/`) and what addresses answer (`….web.json`). A symbolic link cannot lie there, for
//! git on some systems makes a text of it: `NAME.link` in a checkout is the link `NAME`, and its text is where that leads.
//!
//! What is printed of it stands in `golden/`, one file for each format; with `IMAGATE_BLESS=1` it is written anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use imagate::manifest::package::Sha256Sum;
use imagate::manifest::rules::{self, Class};
use imagate::manifest::{
    Body, Files as _, Kind, Level, MemoryFiles, Metadata, Options, Question, Reply, Report, Source, Want, Web,
    WebError, check, format, render,
};

/// A manifest of the corpus.
pub(crate) struct Case {
    /// `M040/short`
    pub(crate) name: String,
    pub(crate) source: Source,
    previous: Option<Source>,
    files: Option<MemoryFiles>,
    web: Option<Answers>,
}

/// What addresses answer, as it stands in the corpus.
struct Answers {
    by_address: serde_json::Value,
    files: MemoryFiles,
}

impl Web for Answers {
    fn ask(&self, questions: &[Question]) -> Vec<Result<Reply, WebError>> {
        questions.iter().map(|question| self.answer(question)).collect()
    }
}

impl Answers {
    fn answer(&self, question: &Question) -> Result<Reply, WebError> {
        let answer = &self.by_address[question.address.as_str()];
        let text = |key: &str| answer[key].as_str().map(str::to_owned);
        if let Some(limit) = answer["more_than"].as_u64() {
            return Err(WebError::TooLarge { limit });
        }
        for (key, error) in [
            ("tls", WebError::Tls as fn(String) -> WebError),
            ("unreachable", WebError::Unreachable),
            ("forbidden", WebError::Forbidden),
        ] {
            text(key).map_or(Ok(()), |why| Err(error(why)))?;
        }
        let status = answer["status"].as_u64().unwrap_or_else(|| panic!("nothing is said of {question:?}"));
        let bytes = match (text("file"), text("text")) {
            (Some(path), _) => self.files.read(&path, u64::MAX).expect("a file").expect("a file"),
            (None, text) => text.unwrap_or_default().into_bytes(),
        };
        let body = match question.want {
            _ if status != 200 => Body::Unread,
            Want::Status => Body::Unread,
            Want::Sum { .. } => Body::Sum { size: bytes.len() as u64, sum: Sha256Sum::of(&bytes) },
            Want::Bytes { .. } => Body::Bytes(bytes),
        };
        Ok(Reply { status: u16::try_from(status).expect("a status"), body })
    }
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/skills")
}

/// Everything in a folder, by name.
fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort_unstable();
    paths
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a name")
}

pub(crate) fn cases() -> Vec<Case> {
    let folders = listed(&folder().join("corpus"));
    folders.iter().flat_map(|folder| listed(folder)).filter_map(|path| case(&path)).collect()
}

fn case(path: &Path) -> Option<Case> {
    let stem = file_name(path).strip_suffix(".json").filter(|stem| Path::new(stem).extension().is_none())?;
    let name = format!("{}/{stem}", file_name(path.parent().expect("a folder")));
    let read = |path: &Path, name: String| Some(Source::new(name, fs::read(path).ok()?));
    let checkout = path.with_file_name(format!("{stem}.files"));
    let files = checkout.is_dir().then(|| files(&checkout));
    let web = fs::read(path.with_file_name(format!("{stem}.web.json"))).ok().map(|bytes| Answers {
        by_address: serde_json::from_slice(&bytes).expect("JSON"),
        files: files.clone().unwrap_or_default(),
    });
    Some(Case {
        source: read(path, format!("{name}.json"))?,
        previous: read(&path.with_file_name(format!("{stem}.previous.json")), format!("{name}.previous.json")),
        files,
        web,
        name,
    })
}

fn files(root: &Path) -> MemoryFiles {
    let (mut files, mut folders) = (MemoryFiles::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in listed(&folder) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name: Vec<&str> =
                path.strip_prefix(root).expect("below").iter().filter_map(|part| part.to_str()).collect();
            let (name, bytes) = (name.join("/"), fs::read(&path).expect("a file"));
            match name.strip_suffix(".link") {
                None => drop(files.insert(name, bytes)),
                Some(link) => {
                    let kind = Kind::Link(String::from_utf8(bytes).expect("UTF-8"));
                    files.insert_other(link, Metadata { kind, size: 0, is_executable: false });
                }
            }
        }
    }
    files
}

// === impl Case ===

impl Case {
    /// The rule that it is about, unless it is about none.
    fn rule(&self) -> Option<&str> {
        self.name.split('/').next().filter(|folder| *folder != "good")
    }

    fn is_good(&self) -> bool {
        self.name.contains("/good-") || self.rule().is_none()
    }

    /// What a check says. Rules that are off are on for their own cases.
    pub(crate) fn report(&self) -> Report {
        let mut options = Options::default();
        options.now = Some("2026-11-21T03:00:00Z".parse::<DateTime<Utc>>().expect("a time"));
        options.previous = self.previous.as_ref();
        options.files = self.files.as_ref().map(|files| files as _);
        options.web = self.web.as_ref().map(|web| web as _);
        if let Some(rule) = self.rule().and_then(rules::find).filter(|rule| rule.level == Level::Off) {
            options.overrides.level(rule.id, Level::Warning).expect("a rule");
        }
        check(self.source.clone(), &options)
    }
}

fn broken(report: &Report) -> BTreeSet<&'static str> {
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
    let of_manifest = |class| matches!(class, Class::Shape | Class::Static | Class::History);
    let missing: Vec<&str> =
        rules::all().filter(|rule| of_manifest(rule.class) && !covered.contains(rule.id)).map(|rule| rule.id).collect();
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
fn formatting_is_done_once_and_changes_no_finding_but_the_layout() {
    for case in cases() {
        let Ok(text) = format(&case.source, false) else { continue };
        let again = Source::new(case.source.name(), text.clone());
        assert_eq!(format(&again, false).expect("it was formatted"), text, "{}", case.name);
        let before = broken(&case.report());
        let after = broken(&Case { source: again, ..case }.report());
        let of_layout = BTreeSet::from(["M001", "M120"]);
        assert!(before.difference(&after).all(|rule| of_layout.contains(rule)), "{before:?} {after:?}");
        assert!(after.is_subset(&before) && !after.contains("M120"), "{before:?} {after:?}");
    }
}

#[test]
fn human_reports_are_as_they_were() {
    golden("human.txt", |report| render::human(report, false));
}

#[test]
fn json_reports_are_as_they_were() {
    golden("json.txt", |report| render::json(report).expect("JSON"));
}

#[test]
fn github_reports_are_as_they_were() {
    golden("github.txt", render::github);
}

/// Of the rules that were asked and hold, one line is as good as all.
#[test]
fn junit_reports_are_as_they_were() {
    golden("junit.txt", |report| {
        let text = render::junit(report);
        let lines = text.lines().filter(|line| !(line.contains("<testcase") && line.ends_with("/>")));
        lines.map(|line| format!("{line}\n")).collect()
    });
}

/// The rules are the same in every report, and stand in the first one only.
#[test]
fn sarif_reports_are_as_they_were() {
    let mut is_first = true;
    golden("sarif.txt", |report| {
        let text = render::sarif(report).expect("SARIF");
        let mut document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        if !std::mem::take(&mut is_first) {
            document = document["runs"][0]["results"].take();
        }
        serde_json::to_string_pretty(&document).expect("JSON") + "\n"
    });
}

/// Compares what is printed of every case with what was printed before.
fn golden(name: &str, mut print: impl FnMut(&Report) -> String) {
    let path = folder().join("golden").join(name);
    let printed: String = cases().iter().map(|case| format!("=== {}\n{}", case.name, print(&case.report()))).collect();
    if crate::outside::setting("IMAGATE_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, &printed).expect("a golden file");
    }
    let before = fs::read_to_string(&path).unwrap_or_default();
    let difference = printed.lines().zip(before.lines()).enumerate().find(|(_, (now, before))| now != before);
    if let Some((line, (now, before))) = difference {
        panic!("{name}:{}: `{now}`, before `{before}`; IMAGATE_BLESS=1 writes it anew", line + 1);
    }
    assert_eq!(printed.len(), before.len(), "{name}; IMAGATE_BLESS=1 writes it anew");
}
