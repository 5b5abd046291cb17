//! The output target of the images, which is determined before anything is paid for.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use super::name_template::{NameTemplate, NameValues};
use crate::cli::failure::CommandFailure;
use crate::client;
use crate::image::Format;

/// The maximum number of characters of the prompt in a file name: enough to recognise the prompt (our choice).
const NAME_LENGTH: usize = 40;

/// The maximum number of names that are checked before the images arrive (our choice). No service makes as many images,
/// but the number may be mistyped in a field that is sent unchecked.
const CHECKED_NAMES: usize = 1000;

/// The place that the images are written to. `count` is the number of images that the request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutputTarget {
    /// Standard output, for a single image.
    Stdout,
    /// The named file; several images are written to numbered files.
    Named { path: PathBuf, count: usize },
    /// Files in this folder whose names have placeholders. Several images are numbered, by the template if it has a
    /// number.
    Template { folder: PathBuf, template: NameTemplate, count: usize },
    /// New files in this folder. This name gets the extension of the image format, and a number if the file exists.
    New { folder: PathBuf, name: String },
}

// === impl OutputTarget ===

impl OutputTarget {
    pub(super) fn new(output: Option<&Path>, values: &NameValues, count: usize) -> Result<Self, CommandFailure> {
        let new_in = |folder: &Path| Self::New { folder: folder.to_owned(), name: values.prompt.clone() };
        let target = match output {
            None => new_in(Path::new("")),
            Some(path) if path == Path::new("-") => Self::stdout(count)?,
            Some(path) if path.is_dir() => new_in(path),
            Some(path) => Self::named(path, values, count)?,
        };
        let named_file = match &target {
            Self::Named { path, .. } => Some(path.clone()),
            Self::Template { .. } => Some(target.path(0, None)),
            Self::Stdout | Self::New { .. } => None,
        };
        match named_file {
            Some(path) if !names_file_in_folder(&path) => Err(missing_folder(&path)),
            Some(_) | None => Ok(target),
        }
    }

    /// Returns the target for a path, which may have placeholders in its last part.
    fn named(path: &Path, values: &NameValues, count: usize) -> Result<Self, CommandFailure> {
        let usage = |message: String| CommandFailure::Usage(format!("--output: {message}"));
        let has_brace = |text: &str| text.contains(['{', '}']);
        let folder = path.parent().unwrap_or(Path::new(""));
        if folder.to_str().is_some_and(has_brace) {
            return Err(usage("placeholders can stand only in the name of the file, not in its folder".to_owned()));
        }
        match path.file_name().and_then(|name| name.to_str()).filter(|name| has_brace(name)) {
            Some(name) => {
                let template = NameTemplate::parse(name, values).map_err(usage)?;
                Ok(Self::Template { folder: folder.to_owned(), template, count })
            }
            None => Ok(Self::Named { path: path.to_owned(), count }),
        }
    }

    fn stdout(count: usize) -> Result<Self, CommandFailure> {
        if count > 1 {
            return Err(CommandFailure::Usage("only one image can be written to standard output".to_owned()));
        }
        if io::stdout().is_terminal() {
            return Err(CommandFailure::Usage(
                "an image cannot be written to a terminal: name a file, or redirect standard output".to_owned(),
            ));
        }
        Ok(Self::Stdout)
    }

    /// Returns the files that the user has named, if the images have this format. The names of new files are not known
    /// before the images arrive.
    pub(super) fn named_paths(&self, format: Format) -> Vec<PathBuf> {
        let count = match self {
            Self::Stdout | Self::New { .. } => 0,
            Self::Named { count, .. } | Self::Template { count, .. } => (*count).min(CHECKED_NAMES),
        };
        let paths = (0..count).map(|index| self.path(index, Some(format)));
        paths.map(|path| client::with_format_extension(&path, Some(format))).collect()
    }

    /// Returns an error if a file exists that would have to be replaced, or a description beside it if there will be
    /// descriptions.
    pub(super) fn check_not_existing(&self, format: Format, has_descriptions: bool) -> Result<(), CommandFailure> {
        let paths = self.named_paths(format);
        let descriptions = paths.iter().filter(|_| has_descriptions).map(|path| description_path(path));
        match paths.iter().cloned().chain(descriptions).find(|path| path.exists()) {
            Some(path) => Err(CommandFailure::Usage(format!(
                "{} already exists: name another file, or replace it with --force",
                path.display()
            ))),
            None => Ok(()),
        }
    }

    /// Returns an error if the images cannot be written, so that this is known before they are paid for.
    pub(super) fn check_writable(&self, format: Format) -> Result<(), CommandFailure> {
        if self.is_stdout() {
            return Ok(());
        }
        // The path with the last number is the longest, so it stands for all of them.
        let path = self.named_paths(format).pop().unwrap_or_else(|| self.path(0, Some(format)));
        client::check_writable(&path)
            .map_err(|error| CommandFailure::Usage(format!("{} cannot be written: {error}", path.display())))
    }

    /// Returns the target for this number of images that have arrived: a service may send more than were requested.
    pub(super) fn for_arrived(&self, images: usize) -> Self {
        let mut target = self.clone();
        match &mut target {
            Self::Named { count, .. } | Self::Template { count, .. } => *count = images.max(*count),
            Self::Stdout | Self::New { .. } => {}
        }
        target
    }

    pub(super) fn is_stdout(&self) -> bool {
        *self == Self::Stdout
    }

    /// Returns the format that belongs to the extension of the named file.
    pub(super) fn format(&self) -> Option<Format> {
        match self {
            Self::Named { path, .. } => client::format_from_extension(path),
            Self::Template { template, .. } => client::format_from_extension(Path::new(&template.name(0, None))),
            Self::Stdout | Self::New { .. } => None,
        }
    }

    /// Returns the file for the image with this index. When the image is written, the extension may be corrected, and a
    /// number is added if the file exists.
    pub(super) fn path(&self, index: usize, format: Option<Format>) -> PathBuf {
        match self {
            Self::Stdout => PathBuf::from("-"),
            Self::Named { path, count: 0..=1 } => path.clone(),
            Self::Named { path, .. } => client::numbered_path(path, index + 1),
            Self::Template { folder, template, count } => {
                let path = folder.join(template.name(index, format));
                if *count > 1 && !template.has_number() { client::numbered_path(&path, index + 1) } else { path }
            }
            Self::New { folder, name } => folder.join(format!("{name}.{}", format.map_or("bin", Format::extension))),
        }
    }

    /// Returns the file for an intermediate image: its name is that of the final image with a suffix.
    pub(super) fn partial_path(&self, index: u32, format: Option<Format>) -> PathBuf {
        // The extension is added first, because `partial-0` would be taken for an extension.
        let path = self.path(0, format);
        let path = match format {
            Some(format) if path.extension().is_none() => path.with_extension(format.extension()),
            _ => path,
        };
        client::path_with_suffix(&path, &format!(".partial-{index}"))
    }
}

/// Returns the file for the description of an image.
pub(super) fn description_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".json");
    PathBuf::from(name)
}

/// Returns true if the path names a file, and its folder exists.
pub(in crate::cli) fn names_file_in_folder(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_folder = path.as_os_str().to_string_lossy().ends_with(std::path::is_separator);
    !is_folder && path.file_name().is_some() && folder.is_none_or(Path::is_dir)
}

pub(in crate::cli) fn missing_folder(path: &Path) -> CommandFailure {
    CommandFailure::Usage(format!("the output folder of {} does not exist", path.display()))
}

/// Builds a file name from the first words of the prompt; every file system accepts it.
pub(in crate::cli) fn name_from_prompt(prompt: &str) -> String {
    let mut name = String::new();
    for character in prompt.chars().flat_map(char::to_lowercase) {
        if name.len() >= NAME_LENGTH {
            break;
        }
        if character.is_ascii_alphanumeric() {
            name.push(character);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "image".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_target(path: impl AsRef<Path>, number: usize) -> Result<OutputTarget, CommandFailure> {
        let [prompt, date, model, size] = ["a-fox", "2026-11-27", "gpt-image-2", "auto"].map(str::to_owned);
        OutputTarget::new(Some(path.as_ref()), &NameValues { prompt, date, model, size }, number)
    }

    fn valid_target(path: impl AsRef<Path>, number: usize) -> OutputTarget {
        new_target(path, number).unwrap()
    }

    #[test]
    fn a_prompt_becomes_a_name_that_every_file_system_accepts() {
        let check = |prompt: &str, name: &str| assert_eq!(name_from_prompt(prompt), name);
        check("A red fox, in fresh snow!", "a-red-fox-in-fresh-snow");
        check("../../etc/passwd", "etc-passwd");
        check("дом", "image");
        check("", "image");
        check(&"long ".repeat(30), "long-long-long-long-long-long-long-long");
    }

    #[test]
    fn several_images_are_numbered() {
        let target = valid_target("fox.png", 2);
        assert_eq!([0, 1].map(|index| target.path(index, None)), ["fox-1.png", "fox-2.png"].map(PathBuf::from));
        let target = valid_target("fox", 2);
        assert_eq!(target.path(1, None), PathBuf::from("fox-2"));
        let target = valid_target("fox.png", 1);
        assert_eq!(target.path(0, None), PathBuf::from("fox.png"));
    }

    #[test]
    fn intermediate_images_are_named_after_the_final_one() {
        let check = |path: &str, format: Option<Format>, expected: &str| {
            let target = valid_target(path, 1);
            assert_eq!(target.partial_path(0, format), PathBuf::from(expected));
        };
        check("fox.png", Some(Format::Png), "fox.partial-0.png");
        check("fox", Some(Format::Jpeg), "fox.partial-0.jpg");
        let folder = tempfile::tempdir().unwrap();
        let target = valid_target(folder.path(), 1);
        assert_eq!(target.partial_path(2, Some(Format::Webp)), folder.path().join("a-fox.partial-2.webp"));
    }

    #[test]
    fn an_existing_file_is_found_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let is_free = |name: &str, number: usize| {
            let target = valid_target(folder.path().join(name), number);
            target.check_not_existing(Format::Png, false).is_ok()
        };
        std::fs::write(folder.path().join("fox-2.png"), "").unwrap();
        assert!(is_free("fox.png", 1) && is_free("fox", 1) && is_free("fox-2.png", 2));
        assert!(!is_free("fox-2.png", 1) && !is_free("fox-2", 1) && !is_free("fox.png", 2) && !is_free("fox", 3));
        assert!(is_free("", 2), "new names are chosen in a folder");
        std::fs::write(folder.path().join("owl.png.json"), "").unwrap();
        let target = valid_target(folder.path().join("owl"), 1);
        assert!(target.check_not_existing(Format::Png, false).is_ok());
        assert!(target.check_not_existing(Format::Png, true).is_err(), "its description would be replaced");
    }

    #[test]
    fn only_named_files_may_be_replaced_also_if_more_images_arrive() {
        let folder = tempfile::tempdir().unwrap();
        let named = |path: &Path, number: usize| valid_target(path, number).named_paths(Format::Png);
        assert!(named(folder.path(), 3).is_empty());
        assert_eq!(named(Path::new("fox"), 1), [PathBuf::from("fox.png")]);
        assert_eq!(named(Path::new("fox.png"), 2), ["fox-1.png", "fox-2.png"].map(PathBuf::from));
        assert_eq!(named(Path::new("{n}.{ext}"), 2), ["1.png", "2.png"].map(PathBuf::from));
        assert_eq!(named(Path::new("fox"), usize::MAX).len(), CHECKED_NAMES);
        let arrived = valid_target("fox.png", 1).for_arrived(2);
        assert_eq!([0, 1].map(|index| arrived.path(index, None)), ["fox-1.png", "fox-2.png"].map(PathBuf::from));
        let arrived = valid_target("fox.png", 2).for_arrived(1);
        assert_eq!(arrived.path(0, None), PathBuf::from("fox-1.png"));
    }

    #[test]
    fn a_target_that_cannot_be_written_is_found_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let is_writable =
            |name: &str, number| valid_target(folder.path().join(name), number).check_writable(Format::Png).is_ok();
        let long = format!("{}.png", "a".repeat(250));
        assert!(is_writable("", 3) && is_writable("fox", 1) && is_writable(&long, 1));
        assert!(!is_writable(&long, 2), "a number makes the name too long");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_folder_is_found_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["none/fox.png", "none/"] {
            assert!(new_target(folder.path().join(name), 1).is_err(), "{name}");
        }
        assert!(new_target(folder.path().join("fox.png"), 1).is_ok());
    }

    #[test]
    fn placeholders_name_and_number_the_files() {
        let paths = |path: &str, number: usize| {
            let target = valid_target(path, number);
            (0..number).map(|index| target.path(index, Some(Format::Jpeg))).collect::<Vec<_>>()
        };
        assert_eq!(paths("{prompt}-{n}.{ext}", 2), ["a-fox-1.jpg", "a-fox-2.jpg"].map(PathBuf::from));
        assert_eq!(paths("{date}.{ext}", 2), ["2026-11-27-1.jpg", "2026-11-27-2.jpg"].map(PathBuf::from));
        assert_eq!(paths("{model}-{size}.{ext}", 1), ["gpt-image-2-auto.jpg"].map(PathBuf::from));
        assert_eq!(
            (valid_target("{n}.webp", 1).format(), valid_target("{n}.{ext}", 1).format()),
            (Some(Format::Webp), None)
        );
        assert_eq!(
            valid_target("{prompt}.{ext}", 1).partial_path(0, Some(Format::Png)),
            PathBuf::from("a-fox.partial-0.png")
        );
    }

    #[test]
    fn a_template_that_cannot_be_used_is_found_before_anything_is_sent() {
        for path in ["{promt}.png", "{date}/fox.png", "none/{n}.png", "fox}.png"] {
            assert!(matches!(new_target(path, 1), Err(CommandFailure::Usage(_))), "{path}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a-fox-2.png"), "").unwrap();
        let target = valid_target(folder.path().join("{prompt}-{n}.{ext}"), 2);
        assert!(target.check_not_existing(Format::Png, false).is_err());
        assert!(target.check_not_existing(Format::Jpeg, false).is_ok());
    }

    #[test]
    fn standard_output_takes_one_image() {
        assert!(new_target("-", 2).is_err());
    }
}
