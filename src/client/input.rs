//! An image to work from: the source of its bytes, and the check that the service would accept it.
//!
//! Before a byte is sent, the input is checked as the service will check it: it must exist, not be too long, and have
//! the structure of an image file. Files are never read into memory; they are read while they are sent, and again if
//! the request is sent again.

#[cfg(not(target_arch = "wasm32"))]
mod file;

use std::fmt;
use std::hash::Hasher;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};

use bytes::Bytes;
use reqwest::Body;
use reqwest::multipart::Part;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::Error;
use crate::image::{ByteSource, Format, ImageFileError, ImageHeader, inspect};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

#[cfg(not(target_arch = "wasm32"))]
pub(super) use file::InputFileError;

/// An image to work from, or a mask: a file, or bytes in memory.
///
/// Wherever an input is expected, a path stands for a file, and bytes stand for the contents of one.
#[derive(Clone)]
pub struct Input {
    content: InputContent,
    name: Option<String>,
}

#[derive(Clone)]
enum InputContent {
    #[cfg(not(target_arch = "wasm32"))]
    File(PathBuf),
    Bytes(Bytes),
}

/// An input that was checked, and that can be sent any number of times.
#[derive(Debug)]
pub(super) struct CheckedInput {
    input: Input,
    length: u64,
    header: ImageHeader,
}

/// The result of inspecting an input. Its header only matters if the length is within the limit.
struct InputInspection {
    length: u64,
    header: Result<ImageHeader, ImageFileError>,
}

// === impl Input ===

impl Input {
    /// Creates an input from the file at this path. The file is read while it is sent, so it should not change until
    /// there is an answer.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        Self { content: InputContent::File(path.into()), name: None }
    }

    /// Creates an input from the bytes of an image file.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self { content: InputContent::Bytes(bytes.into()), name: None }
    }

    /// Reads an image file from a reader to its end, into memory: it must be whole before it can be checked, and may have
    /// to be sent more than once. No more is read than an image may have.
    ///
    /// # Errors
    ///
    /// Returns an error if the reader fails. An image that is too large is an error of the request.
    pub async fn from_reader(reader: impl AsyncRead + Unpin) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        let read = reader.take(MAX_UPLOAD_IMAGE_BYTES).read_to_end(&mut bytes).await;
        read.map_err(|source| Error::file("the image cannot be read", source))?;
        Ok(Self::from_bytes(bytes))
    }

    /// Sets the name that is sent to the service. By default it is the name of the file, without its folders, or a name
    /// such as `image.png` for bytes in memory.
    #[must_use]
    pub fn file_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Checks the input. `param` is the name of the request field, which an error states.
    pub(super) async fn check(self, param: &str) -> Result<CheckedInput, Error> {
        let InputInspection { length, header } = self.inspect_content(param).await?;
        if length >= MAX_UPLOAD_IMAGE_BYTES {
            let message = format!("{self} has {length} bytes; it must have fewer than {MAX_UPLOAD_IMAGE_BYTES}");
            return Err(Error::request(param, message));
        }
        match header {
            Ok(header) => Ok(CheckedInput { input: self, length, header }),
            Err(error) => Err(Error::request(param, format!("{self}: {error}"))),
        }
    }

    #[cfg_attr(target_arch = "wasm32", expect(unused_variables, reason = "only a file can be unreadable"))]
    async fn inspect_content(&self, param: &str) -> Result<InputInspection, Error> {
        match &self.content {
            InputContent::Bytes(bytes) => {
                Ok(InputInspection { length: ByteSource::len(&**bytes), header: inspect(&&**bytes) })
            }
            #[cfg(not(target_arch = "wasm32"))]
            InputContent::File(path) => {
                let unreadable = |error| Error::request(param, format!("{self} cannot be read: {error}"));
                file::inspect_file(path.clone()).await.map_err(unreadable)
            }
        }
    }

    /// Returns the name for the service, without control characters: a line end would corrupt the headers of the part.
    fn sent_name(&self, format: Format) -> String {
        let path_name = match &self.content {
            #[cfg(not(target_arch = "wasm32"))]
            InputContent::File(path) => path.file_name().map(|name| name.to_string_lossy().into_owned()),
            InputContent::Bytes(_) => None,
        };
        let name = self.name.clone().or(path_name).unwrap_or_else(|| format!("image.{}", format.extension()));
        name.chars().filter(|character| !character.is_control()).collect()
    }
}

/// The name that errors use.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.content) {
            (Some(name), _) => f.write_str(name),
            #[cfg(not(target_arch = "wasm32"))]
            (None, InputContent::File(path)) => path.display().fmt(f),
            (None, InputContent::Bytes(_)) => f.write_str("the image"),
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Input");
        match &self.content {
            #[cfg(not(target_arch = "wasm32"))]
            InputContent::File(path) => debug.field("path", path),
            // Only the length is shown, because megabytes of bytes are of no use in debug output.
            InputContent::Bytes(bytes) => debug.field("bytes", &bytes.len()),
        };
        debug.field("name", &self.name).finish()
    }
}

impl From<Bytes> for Input {
    fn from(bytes: Bytes) -> Self {
        Self::from_bytes(bytes)
    }
}

impl From<Vec<u8>> for Input {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from_bytes(bytes)
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        Self::from_path(path)
    }
}

/// Takes the text as the path of a file.
#[cfg(not(target_arch = "wasm32"))]
impl From<&str> for Input {
    fn from(path: &str) -> Self {
        Self::from_path(path)
    }
}

/// Takes the text as the path of a file.
#[cfg(not(target_arch = "wasm32"))]
impl From<String> for Input {
    fn from(path: String) -> Self {
        Self::from_path(path)
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl From<&Path> for Input {
    fn from(path: &Path) -> Self {
        Self::from_path(path)
    }
}

// === impl CheckedInput ===

impl CheckedInput {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn header(&self) -> ImageHeader {
        self.header
    }

    /// Adds the content and its length to a hash. `param` is the name of the request field, which an error states.
    #[cfg_attr(target_arch = "wasm32", expect(unused_variables, reason = "only a file can be unreadable"))]
    pub(super) async fn hash<H: Hasher + Send + 'static>(&self, param: &str, mut hasher: H) -> Result<H, Error> {
        match &self.input.content {
            InputContent::Bytes(bytes) => hasher.write(bytes),
            #[cfg(not(target_arch = "wasm32"))]
            InputContent::File(path) => {
                let unreadable = |error| Error::request(param, format!("{} cannot be read: {error}", self.input));
                hasher = file::hash_file(path.clone(), hasher).await.map_err(unreadable)?;
            }
        }
        hasher.write_u64(self.length);
        Ok(hasher)
    }

    /// Returns the part for one attempt.
    pub(super) fn part(&self) -> reqwest::Result<Part> {
        let body = match &self.input.content {
            #[cfg(not(target_arch = "wasm32"))]
            InputContent::File(path) => file::body(path, self.length),
            InputContent::Bytes(bytes) => Body::from(bytes.clone()),
        };
        // The type is declared for services that rely on it; the gateway reads the bytes.
        let format = self.header.properties.format;
        part(body, self.length).file_name(self.input.sent_name(format)).mime_str(&format!("image/{format}"))
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn part(body: Body, length: u64) -> Part {
    // If each part has a length, the form has a length too, and a service can refuse the form before it has received
    // all of it.
    Part::stream_with_length(body, length)
}

#[cfg(target_arch = "wasm32")]
fn part(body: Body, _: u64) -> Part {
    Part::stream(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::test_images::{padded, png};

    fn check_input(input: impl Into<Input>) -> Result<CheckedInput, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(input.into().check("image"))
    }

    #[track_caller]
    fn assert_refused(input: impl Into<Input>, message_part: &str) {
        let error = check_input(input).unwrap_err();
        assert!(error.is_invalid_request() && error.param() == Some("image"), "{error:?}");
        assert!(error.message().contains(message_part), "{error}");
    }

    #[test]
    fn the_limit_is_exact_in_memory_and_on_disk() {
        assert_eq!(check_input(padded(png(16, 16, true), 52_428_799)).unwrap().length(), 52_428_799);
        assert_refused(padded(png(16, 16, true), 52_428_800), "it must have fewer than 52428800");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        std::fs::write(&path, png(16, 16, true)).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(52_428_799).unwrap();
        assert_eq!(check_input(&*path).unwrap().length(), 52_428_799);
        assert_eq!(check_input(path.to_str().unwrap()).unwrap().length(), 52_428_799);
        file.set_len(52_428_800).unwrap();
        assert_refused(&*path, "a.png has 52428800 bytes");
    }

    #[test]
    fn a_file_and_its_bytes_give_the_same_result() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let (good, gif) = (png(16, 16, false), b"GIF89a\x01\0\x01\0\0\0\0".to_vec());
        for bytes in [good.clone(), gif, Vec::new(), good[..good.len() - 13].to_vec(), good[..12].to_vec()] {
            std::fs::write(&path, &bytes).unwrap();
            let check_result = |input: Input| {
                let message = |error: Error| error.message().split_once(": ").unwrap().1.to_owned();
                check_input(input).map(|checked| checked.header()).map_err(message)
            };
            assert_eq!(check_result(bytes.clone().into()), check_result(path.clone().into()));
            assert_eq!(check_result(bytes.clone().into()).is_ok(), bytes == good);
        }
    }

    #[test]
    fn an_image_can_come_from_a_reader() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = |bytes: &[u8]| runtime.block_on(Input::from_reader(bytes)).unwrap();
        assert_eq!(check_input(read(&png(16, 16, true))).unwrap().length(), png(16, 16, true).len() as u64);
        assert_refused(read(&padded(png(16, 16, true), 52_428_801)), "it must have fewer than 52428800");
    }

    #[test]
    fn an_unreadable_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_refused(folder.path(), "cannot be read: it is not a file");
        assert_refused(folder.path().join("none.png"), "none.png cannot be read");
    }

    #[test]
    fn the_sent_name_has_no_folders_and_no_control_characters() {
        let name = |input: Input| input.sent_name(Format::Webp);
        assert_eq!(name(Input::from_path("there/here/fox.webp")), "fox.webp");
        assert_eq!(name(Input::from_bytes(vec![0])), "image.webp");
        assert_eq!(name(Input::from_bytes(vec![0]).file_name("a\r\nX: y\0.png")), "aX: y.png");
    }

    #[test]
    fn debug_shows_no_bytes() {
        let debug_text = format!("{:?}", Input::from_bytes(b"secret".to_vec()));
        assert_eq!(debug_text, "Input { bytes: 6, name: None }");
    }
}
