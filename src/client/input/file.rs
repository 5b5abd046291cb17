//! A file as an input: inspected by itself, and then sent as the body of a part. It is opened when its part begins,
//! read piece by piece, and sent with exactly the promised length.

use std::fmt;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use reqwest::Body;
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};

use super::InputInspection;
use crate::image::{ByteSource, inspect};

/// Each piece costs one trip to a blocking thread: few trips, and still little memory.
const CHUNK_BYTES: usize = 256 * 1024;

/// Inspects a file on a blocking thread, because reading it may block.
pub(super) async fn inspect_file(path: PathBuf) -> io::Result<InputInspection> {
    let look = tokio::task::spawn_blocking(move || InputFile::open(&path).map(|opened| opened.inspection()));
    look.await.unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
}

/// A file that is open for inspection.
struct InputFile {
    file: std::fs::File,
    length: u64,
}

// === impl InputFile ===

impl InputFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = std::fs::File::open(path)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        Ok(Self { file, length: facts.len() })
    }

    fn inspection(&self) -> InputInspection {
        InputInspection { length: self.length, header: inspect(self) }
    }
}

impl ByteSource for InputFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // Two calls, because not every platform has one that does both; nothing else uses this handle.
        (&self.file).seek(SeekFrom::Start(offset))?;
        (&self.file).read(buffer)
    }
}

/// Returns the file as a body.
pub(super) fn body(path: &Path, length: u64) -> Body {
    Body::wrap_stream(InputFileStream { path: path.to_owned(), left: length, state: InputFileStreamState::Closed })
}

/// A file that could not be read to the promised length. The form ended early, so nothing was made.
#[derive(Debug)]
pub(in crate::client) struct InputFileError {
    path: PathBuf,
    source: io::Error,
}

struct InputFileStream {
    path: PathBuf,
    left: u64,
    state: InputFileStreamState,
}

enum InputFileStreamState {
    /// The file is opened only when its part begins, so that sixteen files need not be open at once.
    Closed,
    Opening(Pin<Box<dyn Future<Output = io::Result<File>> + Send>>),
    Open(File),
    Done,
}

// === impl InputFileStream ===

impl InputFileStream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            match &mut self.state {
                InputFileStreamState::Closed => {
                    self.state = InputFileStreamState::Opening(Box::pin(File::open(self.path.clone())));
                }
                InputFileStreamState::Opening(opening) => {
                    self.state = InputFileStreamState::Open(ready!(opening.as_mut().poll(cx))?);
                }
                InputFileStreamState::Open(_) if self.left == 0 => self.state = InputFileStreamState::Done,
                InputFileStreamState::Open(file) => return next_chunk(file, &mut self.left, cx).map_ok(Some),
                InputFileStreamState::Done => return Poll::Ready(Ok(None)),
            }
        }
    }
}

/// Returns the next piece of the file. A file that has grown is cut; one that has shrunk is an error, because its rest
/// would be missing.
fn next_chunk(file: &mut File, left: &mut u64, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    let length = usize::try_from(*left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
    let mut piece = vec![0; length];
    let mut buffer = ReadBuf::new(&mut piece);
    ready!(Pin::new(file).poll_read(cx, &mut buffer))?;
    let read = buffer.filled().len();
    if read == 0 {
        return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter")));
    }
    piece.truncate(read);
    *left = left.saturating_sub(u64::try_from(read).unwrap_or(*left));
    Poll::Ready(Ok(piece.into()))
}

impl Stream for InputFileStream {
    type Item = Result<Bytes, InputFileError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let result = ready!(self.poll(cx));
        if result.is_err() {
            self.state = InputFileStreamState::Done;
        }
        Poll::Ready(result.map_err(|source| InputFileError { path: self.path.clone(), source }).transpose())
    }
}

// === impl InputFileError ===

impl fmt::Display for InputFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for InputFileError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::run;

    fn pieces(path: &Path, length: u64) -> Result<Vec<u8>, InputFileError> {
        let mut pieces = InputFileStream { path: path.to_owned(), left: length, state: InputFileStreamState::Closed };
        run(async {
            let mut all = Vec::new();
            while let Some(piece) = std::future::poll_fn(|cx| Pin::new(&mut pieces).poll_next(cx)).await {
                all.extend_from_slice(&piece?);
            }
            Ok(all)
        })
    }

    #[test]
    fn a_file_has_the_length_that_was_promised_or_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let bytes: Vec<u8> = (0..CHUNK_BYTES * 2 + 7).map(|index| u8::try_from(index % 251).unwrap()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let length = u64::try_from(bytes.len()).unwrap();
        assert!(pieces(&path, length).unwrap() == bytes);
        assert!(pieces(&path, length - 9).unwrap() == bytes[..bytes.len() - 9]);
        let broken = pieces(&path, length + 1).unwrap_err().to_string();
        assert!(broken.contains("a.png") && broken.contains("shorter"), "{broken}");
        assert!(pieces(&folder.path().join("none"), 1).is_err());
    }
}
