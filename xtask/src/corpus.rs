//! `cargo xtask corpus`: the inputs that cargo-fuzz has collected, one archive for each target.
//!
//! cargo-fuzz needs a folder of small files, but a repository should have few files. So the inputs are stored as tar
//! archives that depend only on names and bytes: sorted, without times and owners. They are not compressed, so that git
//! can store a new version as a difference. An archive is accepted only if it equals the output of [`archive`] byte for
//! byte, so damage is an error and never a loss of inputs.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The targets of cargo-fuzz.
pub const TARGETS: [&str; 8] = ["archive", "front", "http", "install", "json", "manifest", "tar", "zip"];

/// The folder of the archives.
const STORED: &str = "tests/fuzz/corpus";
/// The folder in which cargo-fuzz looks for the inputs of a target.
const UNPACKED: &str = "tests/fuzz/cargo-fuzz/corpus";

/// One input: the name that cargo-fuzz gave it, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FuzzInput {
    /// A plain file name.
    pub name: String,
    /// The complete input.
    pub bytes: Vec<u8>,
}

/// The inputs that are stored for a target, sorted by name.
///
/// # Errors
///
/// The archive is missing, damaged or empty.
pub fn stored(root: &Path, target: &str) -> Result<Vec<FuzzInput>> {
    let path = format!("{STORED}/{target}.tar");
    let bytes = fs::read(root.join(&path)).with_context(|| path.clone())?;
    inputs(&bytes).with_context(|| path)
}

/// Writes the stored inputs as files; existing other files are kept.
///
/// # Errors
///
/// An archive that cannot be read, or a file that cannot be written.
pub fn unpack(root: &Path) -> Result<()> {
    for target in TARGETS {
        let folder = root.join(UNPACKED).join(target);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let inputs = stored(root, target)?;
        for input in &inputs {
            fs::write(folder.join(&input.name), &input.bytes).with_context(|| input.name.clone())?;
        }
        println!("{UNPACKED}/{target}: {} inputs", inputs.len());
    }
    Ok(())
}

/// Writes the archive of each target that has a folder of files.
///
/// # Errors
///
/// A folder without inputs, or a file that cannot be read or written.
pub fn pack(root: &Path) -> Result<()> {
    for target in TARGETS {
        let folder = root.join(UNPACKED).join(target);
        if !folder.is_dir() {
            println!("{STORED}/{target}.tar: unchanged, because there is no {UNPACKED}/{target}");
            continue;
        }
        let files = files(&folder).with_context(|| folder.display().to_string())?;
        let bytes = archive(&files).with_context(|| folder.display().to_string())?;
        fs::write(root.join(format!("{STORED}/{target}.tar")), bytes)?;
        println!("{STORED}/{target}.tar: {} inputs", files.len());
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<FuzzInput>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push(FuzzInput { bytes: fs::read(entry.path()).with_context(|| name.clone())?, name });
    }
    files.sort_unstable();
    Ok(files)
}

/// The bytes of an archive of these inputs.
///
/// # Errors
///
/// There is no input, a name is not a plain file name, or the names are not sorted.
pub fn archive(inputs: &[FuzzInput]) -> Result<Vec<u8>> {
    ensure!(!inputs.is_empty(), "there is no input");
    ensure!(inputs.is_sorted_by(|first, second| first.name < second.name), "the inputs are not sorted by name");
    let mut builder = tar::Builder::new(Vec::new());
    for input in inputs {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let name = input.name.as_bytes();
        let is_plain = (1..100).contains(&name.len()) && name[0] != b'.' && name.iter().copied().all(is_plain);
        ensure!(is_plain, "{:?} is not a plain file name", input.name);
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(input.bytes.len().try_into()?);
        builder.append_data(&mut header, &input.name, &*input.bytes)?;
    }
    Ok(builder.into_inner()?)
}

/// Returns the inputs of an archive.
fn inputs(bytes: &[u8]) -> Result<Vec<FuzzInput>> {
    let mut inputs = Vec::new();
    for entry in tar::Archive::new(bytes).entries()? {
        let mut entry = entry?;
        let name = String::from_utf8(entry.path_bytes().into_owned()).context("a name")?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).with_context(|| name.clone())?;
        inputs.push(FuzzInput { name, bytes });
    }
    ensure!(archive(&inputs)? == bytes, "the archive differs from the output of `cargo xtask corpus pack`");
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_inputs() -> Vec<FuzzInput> {
        let lengths = [0, 1, 511, 512, 513, 2000];
        let input =
            |(index, length): (usize, &usize)| FuzzInput { name: format!("input-{index}"), bytes: vec![0xff; *length] };
        lengths.iter().enumerate().map(input).collect()
    }

    #[test]
    fn unpacked_inputs_equal_the_packed_ones() {
        let bytes = archive(&sample_inputs()).unwrap();
        assert_eq!(bytes, archive(&sample_inputs()).unwrap());
        assert_eq!(inputs(&bytes).unwrap(), sample_inputs());
    }

    #[test]
    fn every_target_has_an_archive_that_can_be_read() {
        for target in TARGETS {
            assert!(!stored(&crate::tree::root(), target).unwrap().is_empty(), "{target}");
        }
    }

    #[test]
    fn a_missing_or_empty_archive_is_an_error() {
        let error = stored(Path::new("/nowhere"), "tar").unwrap_err();
        assert_eq!(error.to_string(), "tests/fuzz/corpus/tar.tar");
        for empty in [vec![], vec![0; 1024]] {
            assert_eq!(inputs(&empty).unwrap_err().to_string(), "there is no input");
        }
    }

    #[test]
    fn an_archive_of_another_length_is_an_error() {
        let bytes = archive(&sample_inputs()).unwrap();
        for length in 0..bytes.len() {
            assert!(inputs(&bytes[..length]).is_err(), "{length}");
        }
        assert!(inputs(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn an_archive_with_a_changed_header_or_end_is_an_error() {
        let bytes = archive(&sample_inputs()[..1]).unwrap();
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 0x10;
            assert!(inputs(&changed).is_err(), "{index}");
        }
    }

    #[test]
    fn only_sorted_plain_names_are_packed() {
        let named = |names: &[&str]| -> Vec<FuzzInput> {
            names.iter().map(|name| FuzzInput { name: (*name).to_owned(), bytes: Vec::new() }).collect()
        };
        assert!(archive(&named(&["crash-0a", "x.y_z"])).is_ok());
        let long = "a".repeat(100);
        for wrong in [&["b", "a"][..], &["a", "a"], &["../a"], &[".a"], &["a/b"], &[""], &["a b"], &[&long]] {
            assert!(archive(&named(wrong)).is_err(), "{wrong:?}");
        }
    }
}
