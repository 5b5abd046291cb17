//! The cases of a corpus, the findings of a check in them, and the printed reports. The caller passes the files, so
//! this module also works without a file system (`tests/wasm`).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use imagate::manifest::package::Sha256Sum;
use imagate::manifest::{
    CheckOptions, CheckReport, FetchBody, FetchError, FetchRequest, FetchResponse, FetchScope, FileKind, FileMetadata,
    FindingLevel, MemoryFiles, RepositoryFiles as _, SourceFile, WebFetcher, check, render, rules,
};

/// The files of a folder, by their relative paths.
pub(crate) type FileTree = BTreeMap<String, Vec<u8>>;

/// A manifest of the corpus.
pub(crate) struct Case {
    /// Folder and file name without the extension, such as `M040/short`.
    pub(crate) name: String,
    pub(crate) source: SourceFile,
    previous: Option<SourceFile>,
    files: Option<MemoryFiles>,
    urls: Option<ScriptedWeb>,
}

/// The answers of URLs, from the `.web.json` file of a case.
struct ScriptedWeb {
    by_address: serde_json::Value,
    files: MemoryFiles,
}

impl WebFetcher for ScriptedWeb {
    fn fetch(&self, requests: &[FetchRequest]) -> Vec<Result<FetchResponse, FetchError>> {
        requests.iter().map(|request| self.answer(request)).collect()
    }
}

impl ScriptedWeb {
    fn answer(&self, request: &FetchRequest) -> Result<FetchResponse, FetchError> {
        let answer = &self.by_address[request.address.as_str()];
        let text = |key: &str| answer[key].as_str().map(str::to_owned);
        if let Some(limit) = answer["more_than"].as_u64() {
            return Err(FetchError::TooLarge { limit });
        }
        for (key, error) in [
            ("tls", FetchError::Tls as fn(String) -> FetchError),
            ("unreachable", FetchError::Unreachable),
            ("forbidden", FetchError::Forbidden),
        ] {
            text(key).map_or(Ok(()), |reason| Err(error(reason)))?;
        }
        let status = answer["status"].as_u64().unwrap_or_else(|| panic!("the case has no answer for {request:?}"));
        let bytes = match (text("file"), text("text")) {
            (Some(path), _) => self.files.read(&path, u64::MAX).expect("a file").expect("a file"),
            (None, text) => text.unwrap_or_default().into_bytes(),
        };
        let body = match request.scope {
            FetchScope::Status => FetchBody::Unread,
            _ if status != 200 => FetchBody::Unread,
            FetchScope::Checksum { .. } => FetchBody::Checksum { size: bytes.len() as u64, sum: Sha256Sum::of(&bytes) },
            FetchScope::Bytes { .. } => FetchBody::Bytes(bytes),
        };
        Ok(FetchResponse { status: u16::try_from(status).expect("a status"), body })
    }
}

/// The cases of a corpus, in the order of their names.
pub(crate) fn cases(tree: &FileTree) -> Vec<Case> {
    tree.keys().filter_map(|path| case(tree, path)).collect()
}

fn case(tree: &FileTree, path: &str) -> Option<Case> {
    let name = path.strip_suffix(".json")?;
    let (_, stem) = name.split_once('/')?;
    if stem.contains(['/', '.']) {
        return None;
    }
    let read = |path: &str| Some(SourceFile::new(path, tree.get(path)?.clone()));
    let files = files(tree, &format!("{name}.files/"));
    let web = tree.get(&format!("{name}.web.json")).map(|bytes| ScriptedWeb {
        by_address: serde_json::from_slice(bytes).expect("JSON"),
        files: files.clone().unwrap_or_default(),
    });
    Some(Case {
        source: read(path)?,
        previous: read(&format!("{name}.previous.json")),
        files,
        urls: web,
        name: name.to_owned(),
    })
}

/// The checkout of a case, if it has one.
fn files(tree: &FileTree, folder: &str) -> Option<MemoryFiles> {
    let mut files = MemoryFiles::new();
    let mut below = tree.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(folder)?, bytes))).peekable();
    below.peek()?;
    for (path, bytes) in below {
        match path.strip_suffix(".link") {
            None => drop(files.insert(path, bytes.clone())),
            Some(link) => {
                let kind = FileKind::Link(String::from_utf8(bytes.clone()).expect("UTF-8"));
                files.insert_other(link, FileMetadata { kind, size: 0, is_executable: false });
            }
        }
    }
    Some(files)
}

// === impl Case ===

impl Case {
    /// The id of the rule that the case tests; `None` for the cases in the folder `good`.
    pub(crate) fn rule(&self) -> Option<&str> {
        self.name.split('/').next().filter(|folder| *folder != "good")
    }

    pub(crate) fn is_good(&self) -> bool {
        self.name.contains("/good-") || self.rule().is_none()
    }

    /// The same case with another manifest.
    pub(crate) fn with(self, source: SourceFile) -> Self {
        Self { source, ..self }
    }

    /// The report of a check. A rule whose level is `off` is a warning in its own cases.
    pub(crate) fn report(&self) -> CheckReport {
        let mut options = CheckOptions::default();
        options.now = Some("2026-11-21T03:00:00Z".parse::<DateTime<Utc>>().expect("a time"));
        options.previous = self.previous.as_ref();
        options.files = self.files.as_ref().map(|files| files as _);
        options.web = self.urls.as_ref().map(|web| web as _);
        if let Some(rule) = self.rule().and_then(rules::find).filter(|rule| rule.level == FindingLevel::Off) {
            options.overrides.level(rule.id, FindingLevel::Warning).expect("a rule");
        }
        check(self.source.clone(), &options)
    }
}

/// The formats that a report is printed in; `golden/` has a file for each.
pub(crate) const FORMATS: [&str; 5] = ["human", "json", "github", "junit", "sarif"];

/// The printed reports of all cases in one of the [`FORMATS`].
pub(crate) fn printed(format: &str, cases: &[Case]) -> String {
    let print = |(index, case): (usize, &Case)| {
        let report = case.report();
        let text = match format {
            "human" => render::human(&report, false),
            "json" => render::json(&report).expect("JSON"),
            "github" => render::github(&report),
            "junit" => junit(&report),
            "sarif" => sarif(&report, index == 0),
            _ => panic!("unknown format {format}"),
        };
        format!("=== {}\n{text}", case.name)
    };
    cases.iter().enumerate().map(print).collect()
}

/// A JUnit report without the rules that hold, to keep the golden file short.
fn junit(report: &CheckReport) -> String {
    let text = render::junit(report);
    let lines = text.lines().filter(|line| !(line.contains("<testcase") && line.ends_with("/>")));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A SARIF report. The rules are the same in every report, so only the first report keeps them.
fn sarif(report: &CheckReport, is_first: bool) -> String {
    let text = render::sarif(report).expect("SARIF");
    let mut document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    if !is_first {
        document = document["runs"][0]["results"].take();
    }
    serde_json::to_string_pretty(&document).expect("JSON") + "\n"
}
