//! The output target of the images, which is determined before anything is paid for.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use super::name_template::{NameTemplate, NameValues};
use crate::cli::failure::CommandFailure;
use crate::client::{self, ImageCount};
use crate::image::Format;

/// The maximum number of characters of the prompt in a file name: enough to recognise the prompt (our choice).
const NAME_LENGTH: usize = 40;

/// The place that the images are written to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputTarget {
    /// Standard output, for a single image.
    Stdout,
    /// The named file; several images are written to numbered files.
    Named { path: PathBuf, numbered: bool },
    /// Files in this folder whose names have placeholders. Several images are numbered, by the template if it has a
    /// number.
    Template { folder: PathBuf, template: NameTemplate, numbered: bool },
    /// New files in this folder. This name gets the extension of the image format, and a number if the file exists.
    New { folder: PathBuf, name: String },
}

// === impl OutputTarget ===

impl OutputTarget {
    pub(super) fn new(output: Option<&Path>, values: &NameValues, count: ImageCount) -> Result<Self, CommandFailure> {
        let numbered = count.get() > 1;
        let new_in = |folder: &Path| Self::New { folder: folder.to_owned(), name: values.prompt.clone() };
        let target = match output {
            None => new_in(Path::new("")),
            Some(path) if path == Path::new("-") => Self::stdout(numbered)?,
            Some(path) if path.is_dir() => new_in(path),
            Some(path) => Self::named(path, values, numbered)?,
        };
        let folder_file = match &target {
            Self::Named { path, .. } => Some(path.clone()),
            Self::Template { .. } => Some(target.path(0, None)),
            Self::Stdout | Self::New { .. } => None,
        };
        if let Some(path) = folder_file {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let is_folder = path.as_os_str().to_string_lossy().ends_with(std::path::is_separator);
            if is_folder || path.file_name().is_none() || folder.is_some_and(|folder| !folder.is_dir()) {
                return Err(CommandFailure::Usage(format!("the output folder of {} does not exist", path.display())));
            }
        }
        Ok(target)
    }

    /// Returns the target for a path, which may have placeholders in its last part.
    fn named(path: &Path, values: &NameValues, numbered: bool) -> Result<Self, CommandFailure> {
        let usage = |message: String| CommandFailure::Usage(format!("--output: {message}"));
        let has_brace = |text: &str| text.contains(['{', '}']);
        let folder = path.parent().unwrap_or(Path::new(""));
        if folder.to_str().is_some_and(has_brace) {
            return Err(usage("placeholders can stand only in the name of the file, not in its folder".to_owned()));
        }
        match path.file_name().and_then(|name| name.to_str()).filter(|name| has_brace(name)) {
            Some(name) => {
                let template = NameTemplate::parse(name, values).map_err(usage)?;
                Ok(Self::Template { folder: folder.to_owned(), template, numbered })
            }
            None => Ok(Self::Named { path: path.to_owned(), numbered }),
        }
    }

    fn stdout(numbered: bool) -> Result<Self, CommandFailure> {
        if numbered {
            return Err(CommandFailure::Usage("only one image can be written to standard output".to_owned()));
        }
        if io::stdout().is_terminal() {
            return Err(CommandFailure::Usage(
                "an image cannot be written to a terminal: name a file, or redirect standard output".to_owned(),
            ));
        }
        Ok(Self::Stdout)
    }

    /// Returns an error if a file exists that would have to be replaced. Only names that are known before the images
    /// arrive are checked.
    pub(super) fn check_not_existing(&self, count: ImageCount, format: Format) -> Result<(), CommandFailure> {
        if matches!(self, Self::Stdout | Self::New { .. }) {
            return Ok(());
        }
        let count = usize::try_from(count.get()).unwrap_or(1);
        let paths =
            (0..count).map(|index| client::with_format_extension(&self.path(index, Some(format)), Some(format)));
        match paths.into_iter().find(|path| path.exists()) {
            Some(path) => Err(CommandFailure::Usage(format!(
                "{} already exists: name another file, or replace it with --force",
                path.display()
            ))),
            None => Ok(()),
        }
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
            Self::Named { path, numbered: false } => path.clone(),
            Self::Named { path, numbered: true } => client::numbered_path(path, index + 1),
            Self::Template { folder, template, numbered } => {
                let path = folder.join(template.name(index, format));
                if *numbered && !template.has_number() { client::numbered_path(&path, index + 1) } else { path }
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

    fn count(number: i64) -> ImageCount {
        ImageCount::new(number).unwrap()
    }

    fn new_target(path: impl AsRef<Path>, number: i64) -> Result<OutputTarget, CommandFailure> {
        let [prompt, date, model, size] = ["a-fox", "2026-11-27", "gpt-image-2", "auto"].map(str::to_owned);
        OutputTarget::new(Some(path.as_ref()), &NameValues { prompt, date, model, size }, count(number))
    }

    fn valid_target(path: impl AsRef<Path>, number: i64) -> OutputTarget {
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
        let is_free = |name: &str, number: i64| {
            let target = valid_target(folder.path().join(name), number);
            target.check_not_existing(count(number), Format::Png).is_ok()
        };
        std::fs::write(folder.path().join("fox-2.png"), "").unwrap();
        assert!(is_free("fox.png", 1) && is_free("fox", 1) && is_free("fox-2.png", 2));
        assert!(!is_free("fox-2.png", 1) && !is_free("fox-2", 1) && !is_free("fox.png", 2) && !is_free("fox", 3));
        assert!(is_free("", 2), "new names are chosen in a folder");
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
        let paths = |path: &str, number: i64| {
            let target = valid_target(path, number);
            (0..number)
                .map(|index| target.path(usize::try_from(index).unwrap(), Some(Format::Jpeg)))
                .collect::<Vec<_>>()
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
        assert!(target.check_not_existing(count(2), Format::Png).is_err());
        assert!(target.check_not_existing(count(2), Format::Jpeg).is_ok());
    }

    #[test]
    fn standard_output_takes_one_image() {
        assert!(new_target("-", 2).is_err());
    }
}
