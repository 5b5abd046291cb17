//! One line of a batch: a request, its files and its idempotency key.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::cli::image_command::name_from_prompt;
use crate::cli::image_cost::CostFactors;
use crate::cli::request_digest::RequestDigest;
use crate::client::{self, EditRequest, GenerateRequest, ImageCount, Json};
use crate::image::SizeRequest;

/// The members that a batch does not send as they are.
const OWN_MEMBERS: [&str; 6] = ["prompt", "file", "image", "mask", "n", "size"];

/// A line of the input.
#[derive(Debug)]
pub(super) struct BatchLine {
    /// The number of the line, from 1.
    pub(super) number: usize,
    pub(super) prompt: String,
    /// The file of the image, or the one that gets a number for each of several images.
    file: PathBuf,
    images: Vec<PathBuf>,
    mask: Option<PathBuf>,
    count: ImageCount,
    size: Option<SizeRequest>,
    /// All other fields of the request.
    fields: Vec<(String, Json)>,
    idempotency_key: String,
}

// === impl BatchLine ===

impl BatchLine {
    /// Parses all lines; empty ones are left out.
    ///
    /// # Errors
    /// Returns all problems, each with the number of its line.
    pub(super) fn parse_all(text: &str) -> Result<Vec<Self>, Vec<String>> {
        let (mut lines, mut problems) = (Vec::<Self>::new(), Vec::new());
        let mut numbers_of_files = BTreeMap::<String, usize>::new();
        // Some editors begin a file with a byte order mark, which is no part of its text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let numbered = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        for (number, text) in numbered {
            match Self::parse(number, text).and_then(|line| line.claim_files(&mut numbers_of_files)) {
                Ok(line) => lines.push(line),
                Err(problem) => problems.push(format!("line {number}: {problem}")),
            }
        }
        if lines.is_empty() && problems.is_empty() {
            problems.push("the input has no lines".to_owned());
        }
        if problems.is_empty() { Ok(lines) } else { Err(problems) }
    }

    fn parse(number: usize, text: &str) -> Result<Self, String> {
        let members = match serde_json::from_str(text) {
            Ok(Value::Object(members)) => members,
            Ok(_) => return Err("expected a JSON object, such as {\"prompt\": \"a fox\"}".to_owned()),
            Err(error) => return Err(format!("is not JSON: {error}")),
        };
        let prompt = text_member(&members, "prompt")?.ok_or("`prompt` is missing")?;
        if prompt.trim().is_empty() {
            return Err("`prompt` is empty".to_owned());
        }
        for name in ["stream", "partial_images"] {
            if members.contains_key(name) {
                return Err(format!("`{name}` cannot be used in a batch"));
            }
        }
        let file = match text_member(&members, "file")? {
            Some(file) => relative_file(&file)?,
            None => PathBuf::from(format!("{number:04}-{}", name_from_prompt(&prompt))),
        };
        let count = members.get("n").map(|count| serde_json::from_value(count.clone())).transpose();
        let size = text_member(&members, "size")?;
        let images = files_member(&members, "image")?;
        let mask = text_member(&members, "mask")?.map(PathBuf::from);
        if mask.is_some() && images.is_empty() {
            return Err("`mask` needs `image`".to_owned());
        }
        let others = members.iter().filter(|(name, _)| !OWN_MEMBERS.contains(&name.as_str()));
        let mut fields: Vec<(String, Json)> =
            others.map(|(name, value)| (name.clone(), value.clone().into())).collect();
        // A size that breaks the rules of the document may be one of the service.
        let rule_size = size.as_deref().and_then(|size| size.parse::<SizeRequest>().ok());
        if let (None, Some(size)) = (rule_size, &size) {
            fields.push(("size".to_owned(), size.as_str().into()));
        }
        Ok(Self {
            number,
            idempotency_key: idempotency_key(&members, &file),
            prompt,
            file,
            images,
            mask,
            count: count.map_err(|error| format!("`n`: {error}"))?.unwrap_or(ImageCount::MIN),
            size: rule_size,
            fields,
        })
    }

    /// Adds the files of the line to those of the lines before it. Returns an error if one of them has the same file.
    fn claim_files(self, numbers_of_files: &mut BTreeMap<String, usize>) -> Result<Self, String> {
        let identities: Vec<String> = self.paths(Path::new("")).iter().map(|path| file_identity(path)).collect();
        if let Some(first) = identities.iter().find_map(|identity| numbers_of_files.get(identity)) {
            return Err(format!("`file` is that of line {first}"));
        }
        numbers_of_files.extend(identities.into_iter().map(|identity| (identity, self.number)));
        Ok(self)
    }

    /// Finds the faults of the request, its images and the names of its files before anything is sent. The error is a
    /// sentence.
    pub(super) async fn check(&self, folder: &Path) -> Result<(), String> {
        let checked = match self.edit_request() {
            Some(request) => request.check().await,
            None => self.request().check(),
        };
        checked.map_err(|error| match error.param() {
            Some(param) => format!("`{param}`: {}", error.message()),
            None => error.to_string(),
        })?;
        // The last number is the longest.
        let path = self.path(folder, self.count() - 1);
        client::check_writable(&path).map_err(|error| format!("`file`: {} cannot be written: {error}", path.display()))
    }

    /// Returns the files of the images, whose extension may be corrected.
    pub(super) fn paths(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.count()).map(|index| self.path(folder, index)).collect()
    }

    /// Returns the file of the image with this index, also of one that was not requested.
    pub(super) fn path(&self, folder: &Path, index: usize) -> PathBuf {
        let path = folder.join(&self.file);
        if self.count() == 1 && index == 0 { path } else { client::numbered_path(&path, index + 1) }
    }

    /// Returns the number of images that the line requests.
    fn count(&self) -> usize {
        usize::try_from(self.count.get()).unwrap_or(1)
    }

    /// Returns what the cost of the line depends on.
    pub(super) fn cost_factors(&self) -> CostFactors {
        let model = self.fields.iter().find(|(name, _)| name == "model").and_then(|(_, model)| model.read());
        CostFactors { model, is_edit: !self.images.is_empty() }
    }

    /// Returns the request without its images.
    pub(super) fn request(&self) -> GenerateRequest {
        let request = GenerateRequest::new(&self.prompt).idempotency_key(&self.idempotency_key);
        let request = self.size.into_iter().fold(request, GenerateRequest::size);
        let request = if self.count > ImageCount::MIN { request.count(self.count) } else { request };
        self.fields.iter().fold(request, |request, (name, value)| request.set(name, value.clone()))
    }

    /// Returns the request if it has images to edit.
    pub(super) fn edit_request(&self) -> Option<EditRequest> {
        let request = EditRequest::from(self.request()).images(self.images.iter().map(PathBuf::as_path));
        let request = self.mask.iter().fold(request, |request, mask| request.mask(mask.as_path()));
        (!self.images.is_empty()).then_some(request)
    }
}

/// Returns a text that is the same for all names under which an image is one file: the extension of its format may be
/// corrected, and some file systems do not distinguish capital letters.
fn file_identity(path: &Path) -> String {
    let is_corrected = client::format_from_extension(path).is_some();
    let path = if is_corrected { path.with_extension("") } else { path.to_owned() };
    path.to_string_lossy().to_lowercase()
}

fn text_member(members: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{name}` must be a text")),
    }
}

/// Reads the path of one file, or a list of such paths.
fn files_member(members: &Map<String, Value>, name: &str) -> Result<Vec<PathBuf>, String> {
    let problem = || format!("`{name}` must be the path of a file, or a list of paths");
    let path = |value: &Value| value.as_str().map(PathBuf::from).ok_or_else(problem);
    match members.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(paths)) => paths.iter().map(path).collect(),
        Some(value) => Ok(vec![path(value)?]),
    }
}

/// Returns the path of a file directly in the folder of the images.
fn relative_file(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    let mut components = path.components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(_)), None) => Ok(path),
        _ => Err(format!("`file` must be the name of a file without a folder, but is {name:?}")),
    }
}

/// Returns a key that is the same whenever the same line is run for the same file. The order of the members does not
/// matter.
fn idempotency_key(members: &Map<String, Value>, file: &Path) -> String {
    let sorted: BTreeMap<&String, &Value> = members.iter().collect();
    let text = format!("{}\n{}", serde_json::json!(sorted), file.display());
    let mut digest = RequestDigest::default();
    digest.write(text.as_bytes());
    format!("imagate-batch-{}", digest.into_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn problems_of(text: &str) -> Vec<String> {
        BatchLine::parse_all(text).unwrap_err()
    }

    #[test]
    fn each_problem_is_reported_with_its_line() {
        let text = "{\"prompt\": \"a\"}\n\n[1]\n{\"size\": \"auto\"}\n{\"prompt\": \" \"}\nx\n\
            {\"prompt\": \"a\", \"n\": 11}\n{\"prompt\": \"a\", \"file\": \"../a.png\"}\n\
            {\"prompt\": \"a\", \"mask\": \"m.png\"}\n{\"prompt\": \"a\", \"stream\": true}\n\
            {\"prompt\": \"a\", \"file\": \"b\"}\n{\"prompt\": \"c\", \"file\": \"b\"}\n";
        let problems = problems_of(text);
        let expected = [
            "line 3: expected a JSON object",
            "line 4: `prompt` is missing",
            "line 5: `prompt` is empty",
            "line 6: is not JSON",
            "line 7: `n`: expected a whole number from 1 to 10",
            "line 8: `file` must be the name of a file",
            "line 9: `mask` needs `image`",
            "line 10: `stream` cannot be used",
            "line 12: `file` is that of line 11",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}");
        }
        assert_eq!(problems_of("\n \n"), ["the input has no lines"]);
    }

    #[test]
    fn files_that_only_the_format_or_a_capital_letter_distinguishes_are_one_file() {
        for (first, second) in [
            (r#""file": "fox.png""#, r#""file": "fox.webp", "output_format": "webp""#),
            (r#""file": "fox""#, r#""file": "fox.jpeg""#),
            (r#""file": "fox.png""#, r#""file": "Fox.PNG""#),
            (r#""file": "fox", "n": 2"#, r#""file": "fox-2.png""#),
            (r#""file": "fox-2.png""#, r#""file": "fox", "n": 2"#),
        ] {
            let text = format!("{{\"prompt\": \"a\", {first}}}\n{{\"prompt\": \"b\", {second}}}");
            assert_eq!(problems_of(&text), ["line 2: `file` is that of line 1"], "{text}");
        }
        let others =
            ["fox", "fox.v2", "fox-1", "foxes.png"].map(|file| format!("{{\"prompt\": \"a\", \"file\": \"{file}\"}}"));
        assert_eq!(BatchLine::parse_all(&others.join("\n")).unwrap().len(), 4);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        assert_eq!(BatchLine::parse_all("\u{feff}{\"prompt\": \"a\"}\n").unwrap().len(), 1);
    }

    #[test]
    fn a_key_depends_on_the_line_and_its_file_only() {
        let key = |text: &str| BatchLine::parse_all(text).unwrap().pop().unwrap().idempotency_key;
        let first = key(r#"{"prompt": "a", "size": "1024x1024"}"#);
        assert_eq!(first, key(r#"{"size":"1024x1024",   "prompt":"a"}"#));
        for other in [
            r#"{"prompt": "a"}"#,
            r#"{"prompt": "a", "size": "1024x1024", "file": "b"}"#,
            "\n{\"prompt\": \"a\", \"size\": \"1024x1024\"}",
        ] {
            assert_ne!(first, key(other), "{other}");
        }
    }

    #[test]
    fn files_are_numbered_by_line_and_image() {
        let text = "{\"prompt\": \"A fox\"}\n{\"prompt\": \"b\", \"n\": 2, \"file\": \"b.png\"}";
        let lines = BatchLine::parse_all(text).unwrap();
        let paths = |index: usize| lines[index].paths(Path::new("out"));
        assert_eq!(paths(0), [PathBuf::from("out/0001-a-fox")]);
        assert_eq!(paths(1), [PathBuf::from("out/b-1.png"), PathBuf::from("out/b-2.png")]);
    }
}
