//! Images that are saved while their answer arrives, so that no image is in memory as a whole.
//!
//! This module decides which bytes go where: each image is decoded piece by piece into its own file or into a writer.
//! A file appears under its name when its image is whole.

use std::path::{Path, PathBuf};

use tokio::fs::File;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::answer_members::AnswerMembers;
use super::answer_splitter::{AnswerSplitter, ImagePart};
use super::image_decoder::ImageDecoder;
use super::images::JSON;
use super::paid_call::PaidCall;
use super::raw_json::{UnreadableText, lossy_text};
use super::save::{FileNaming, TemporaryFile, check_writable, numbered_path, with_format_extension};
use super::session::Session;
use super::sse::EVENT_MAX_BYTES;
use super::timer::before;
use super::{AnswerMetadata, Error, Json};
use crate::image::{Format, ImageProperties};
use crate::wire::types::ImageUsage;

/// The number of decoded bytes that are written together (our choice).
const WRITE_BYTES: usize = 256 << 10;

/// The place to which images are saved: a path, which may be a text, or a writer.
///
/// An image gets the path as [`Image::write_to`](super::Image::write_to) would write it, and several images are numbered
/// like those of [`Images::write_all`](super::Images::write_all). A writer takes one image.
pub struct ImageTarget<'a>(TargetKind<'a>);

enum TargetKind<'a> {
    Path(PathBuf),
    Writer(&'a mut (dyn AsyncWrite + Send + Unpin)),
}

/// The images of an answer that were saved while it arrived.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SavedImages {
    /// The images, in order. There always is one.
    pub images: Vec<SavedImage>,
    /// The answer as it was received, with an empty text in place of each image.
    pub json: Json,
    /// The tokens that were used, if the service reports them.
    pub usage: Option<ImageUsage>,
    /// The number of requested images that are missing from the answer.
    pub missing: usize,
    /// The metadata of the answer.
    pub meta: AnswerMetadata,
}

/// An image that was saved.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SavedImage {
    /// The file; `None` if the image went into a writer.
    pub path: Option<PathBuf>,
    /// The size of the file in bytes.
    pub length: u64,
    /// The file format, read from the bytes themselves; `None` if the format is unknown.
    pub format: Option<Format>,
    /// Width and height in pixels, read from the bytes themselves; `None` if the bytes do not state them.
    pub dimensions: Option<(u32, u32)>,
}

/// The image whose text is being read.
struct OpenImage {
    decoder: ImageDecoder,
    /// The decoded bytes that have not been written.
    unwritten: Vec<u8>,
    length: u64,
    properties: Option<ImageProperties>,
    /// The file; `None` before the first bytes, and with a writer.
    file: Option<(TemporaryFile, File)>,
}

/// Saves the images of one answer.
struct ImageSaver<'a> {
    target: TargetKind<'a>,
    /// The number of images that were requested.
    requested: usize,
    naming: FileNaming,
    open: Option<OpenImage>,
    images: Vec<SavedImage>,
    /// The first error of an image. It does not stop the others, which are paid for.
    failure: Option<Error>,
}

// === impl ImageTarget ===

impl<'a> ImageTarget<'a> {
    /// A writer, for a single image. If the image is not whole, the bytes so far have been written.
    pub fn writer(writer: &'a mut (impl AsyncWrite + Send + Unpin)) -> Self {
        Self(TargetKind::Writer(writer))
    }

    /// Returns an error if the target cannot take this number of images, or if its files cannot be written.
    pub(super) fn check(&self, count: u64) -> Result<(), Error> {
        let path = match &self.0 {
            TargetKind::Writer(_) if count > 1 => return Err(Error::request("n", "a writer takes one image")),
            TargetKind::Writer(_) => return Ok(()),
            TargetKind::Path(path) => path,
        };
        // The last number is the longest.
        let last = usize::try_from(count).ok().filter(|count| *count > 1).map(|count| numbered_path(path, count));
        check_writable(last.as_ref().unwrap_or(path))
            .map_err(|source| Error::file(format!("{} cannot be written", path.display()), source))
    }
}

impl From<PathBuf> for ImageTarget<'_> {
    fn from(path: PathBuf) -> Self {
        Self(TargetKind::Path(path))
    }
}

impl From<&Path> for ImageTarget<'_> {
    fn from(path: &Path) -> Self {
        path.to_owned().into()
    }
}

impl From<&PathBuf> for ImageTarget<'_> {
    fn from(path: &PathBuf) -> Self {
        path.clone().into()
    }
}

impl From<&str> for ImageTarget<'_> {
    fn from(path: &str) -> Self {
        PathBuf::from(path).into()
    }
}

impl From<String> for ImageTarget<'_> {
    fn from(path: String) -> Self {
        PathBuf::from(path).into()
    }
}

impl std::fmt::Debug for ImageTarget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            TargetKind::Path(path) => f.debug_tuple("ImageTarget").field(path).finish(),
            TargetKind::Writer(_) => f.write_str("ImageTarget(writer)"),
        }
    }
}

// === impl SavedImages ===

impl SavedImages {
    /// Returns the files, in the order of the images.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.images.iter().filter_map(|image| image.path.as_deref())
    }
}

/// Makes a call, and saves the images of its answer. `count` is the number of images that were requested.
pub(super) async fn save_answer(
    call: &mut PaidCall,
    target: ImageTarget<'_>,
    count: u64,
) -> Result<SavedImages, Error> {
    let naming = if count > 1 { FileNaming::Numbered } else { FileNaming::Free };
    let requested = usize::try_from(count).unwrap_or(0);
    let mut saver = ImageSaver { target: target.0, requested, naming, open: None, images: Vec::new(), failure: None };
    let saved = before(call.session().deadline(), saver.save_attempts(call)).await;
    match saved.unwrap_or_else(|| Err(Error::deadline_exceeded(call.session()))) {
        Ok(rest) => {
            let saved = saver.finish(&rest, call.session());
            call.finish(saved)
        }
        Err(error) => {
            let files = saver.images.iter().filter_map(|image| image.path.as_deref());
            call.finish(Err(error.with_saved_files(files)))
        }
    }
}

const UNREADABLE: &str = "this version does not understand the answer";

// === impl ImageSaver ===

impl ImageSaver<'_> {
    /// Makes the call, again if its answer is lost and nothing of it was kept; returns the rest of the answer.
    async fn save_attempts(&mut self, call: &mut PaidCall) -> Result<Vec<u8>, Error> {
        loop {
            match self.save(call).await {
                // The parts of an image that was cut off are dropped.
                Err(error) if self.is_empty() && call.prepare_repetition(&error).await => self.open = None,
                saved => return saved,
            }
        }
    }

    /// Sends the request, and saves the images while the answer arrives; returns the rest of the answer.
    async fn save(&mut self, call: &PaidCall) -> Result<Vec<u8>, Error> {
        let response = call.send(JSON).await?;
        let read = self.read(response, call.session()).await;
        self.failure.take().map_or(read, Err)
    }

    /// Returns true if nothing of the answer was kept, so that another answer can take its place. A writer keeps every
    /// byte that it gets.
    fn is_empty(&self) -> bool {
        let has_written = match self.target {
            TargetKind::Writer(_) => self.open.as_ref().is_some_and(|open| open.length > 0),
            TargetKind::Path(_) => false,
        };
        self.images.is_empty() && !has_written
    }

    async fn read(&mut self, mut response: reqwest::Response, session: &Session) -> Result<Vec<u8>, Error> {
        let mut splitter = AnswerSplitter::default();
        while let Some(bytes) = response.chunk().await.map_err(|error| Error::from_stream(error, session))? {
            self.take_images(&mut splitter, &bytes, session).await?;
            if splitter.rest_length() > EVENT_MAX_BYTES {
                return Err(Error::unintelligible("the answer is too large", session.head()));
            }
        }
        if splitter.is_done() {
            Ok(splitter.into_rest())
        } else {
            Err(Error::broken("the answer ended too early; the image may still have been made", session))
        }
    }

    /// Saves the parts of images in the next bytes of the answer.
    async fn take_images(
        &mut self,
        splitter: &mut AnswerSplitter,
        mut input: &[u8],
        session: &Session,
    ) -> Result<(), Error> {
        loop {
            match splitter.next(&mut input) {
                Ok(Some(part)) => self.take(part).await,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let answer = [&std::mem::take(splitter).into_rest(), input].concat();
                    let unreadable = Error::unintelligible(UNREADABLE, session.head()).with_source(error);
                    return Err(unreadable.with_body(lossy_text(&answer), &session.secrets()));
                }
            }
        }
    }

    async fn take(&mut self, part: ImagePart<'_>) {
        if let Err(error) = self.save_part(part).await {
            self.open = None;
            self.failure.get_or_insert(error);
        }
    }

    async fn save_part(&mut self, part: ImagePart<'_>) -> Result<(), Error> {
        match (part, &mut self.open) {
            // A writer takes one image, and a service may send more than were requested.
            (ImagePart::Start, _) if matches!(self.target, TargetKind::Writer(_)) && !self.images.is_empty() => {}
            (ImagePart::Start, open) => *open = Some(OpenImage::new()),
            (ImagePart::Text(text), Some(open)) => open.push(text, &mut self.target).await?,
            (ImagePart::Escaped(byte), Some(open)) => open.push(&[byte], &mut self.target).await?,
            (ImagePart::End, open) => {
                if let Some(open) = open.take() {
                    let saved = open.finish(&mut self.target, self.naming).await?;
                    self.images.extend(saved);
                }
            }
            (_, None) => {}
        }
        Ok(())
    }

    /// Reads the members of the answer beside its images.
    fn finish(self, rest: &[u8], session: &Session) -> Result<SavedImages, Error> {
        let meta = session.recorded_head().clone();
        let members = match AnswerMembers::read(lossy_text(rest)) {
            Ok(members) => members,
            // The images are saved, so an unreadable member elsewhere is no failure.
            Err(UnreadableText { text, .. }) if !self.images.is_empty() => {
                let missing = meta.missing().max(self.requested.saturating_sub(self.images.len()));
                let json = Json::from_text_or_string(text);
                return Ok(SavedImages { images: self.images, json, usage: None, missing, meta });
            }
            Err(UnreadableText { error, text }) => {
                let unreadable = Error::unintelligible(UNREADABLE, session.head()).with_source(error);
                return Err(unreadable.with_body(text, &session.secrets()));
            }
        };
        if self.images.is_empty() {
            let address = members.images.iter().find_map(|image| image.url.as_deref());
            return Err(match address {
                Some(url) => Error::remote_image(url, session.head()),
                None if members.has_error => Error::from_answer(&members.json, session),
                None => Error::no_image(&members.json, session),
            });
        }
        let entries = (members.images.len() + members.empty_entries).max(self.requested);
        let missing = meta.missing().max(entries.saturating_sub(self.images.len()));
        Ok(SavedImages { images: self.images, json: members.json, usage: members.facts.usage, missing, meta })
    }
}

// === impl OpenImage ===

impl OpenImage {
    fn new() -> Self {
        Self { decoder: ImageDecoder::new(), unwritten: Vec::new(), length: 0, properties: None, file: None }
    }

    async fn push(&mut self, text: &[u8], target: &mut TargetKind<'_>) -> Result<(), Error> {
        self.decoder.push(text, &mut self.unwritten)?;
        if self.unwritten.len() >= WRITE_BYTES { self.write(target).await } else { Ok(()) }
    }

    /// Writes the decoded bytes. The first ones tell the format.
    async fn write(&mut self, target: &mut TargetKind<'_>) -> Result<(), Error> {
        if self.length == 0 {
            self.properties = crate::image::probe(&self.unwritten);
        }
        self.length += self.unwritten.len() as u64;
        match target {
            TargetKind::Writer(writer) => {
                let written = writer.write_all(&self.unwritten).await;
                written.map_err(|source| Error::file("the image cannot be written", source))?;
            }
            TargetKind::Path(path) => {
                let to_error = |source| Error::file(format!("{} cannot be written", path.display()), source);
                if self.file.is_none() {
                    let temporary = TemporaryFile::create(path).map_err(to_error)?;
                    let file = File::from_std(temporary.file().try_clone().map_err(to_error)?);
                    self.file = Some((temporary, file));
                }
                if let Some((_, file)) = &mut self.file {
                    file.write_all(&self.unwritten).await.map_err(to_error)?;
                }
            }
        }
        self.unwritten.clear();
        Ok(())
    }

    /// Completes the image; returns `None` if its text is empty: some services send one for an image that was not made.
    async fn finish(mut self, target: &mut TargetKind<'_>, naming: FileNaming) -> Result<Option<SavedImage>, Error> {
        self.decoder.finish(&mut self.unwritten)?;
        if self.length == 0 && self.unwritten.is_empty() {
            return Ok(None);
        }
        self.write(target).await?;
        let format = self.properties.as_ref().map(|properties| properties.format);
        let path = match (&mut *target, self.file.take()) {
            (TargetKind::Path(path), Some((temporary, mut file))) => {
                let path = with_format_extension(path, format);
                let to_error = |source| Error::file(format!("{} cannot be written", path.display()), source);
                file.flush().await.map_err(to_error)?;
                let named = path.clone();
                let published = tokio::task::spawn_blocking(move || temporary.publish(&named, naming)).await;
                let published = published.unwrap_or_else(|error| Err(std::io::Error::other(error)));
                Some(published.map_err(to_error)?)
            }
            (TargetKind::Writer(writer), _) => {
                writer.flush().await.map_err(|source| Error::file("the image cannot be written", source))?;
                None
            }
            (TargetKind::Path(_), None) => None,
        };
        let dimensions = self.properties.map(|properties| (properties.width, properties.height));
        Ok(Some(SavedImage { path, length: self.length, format, dimensions }))
    }
}
