//! A file as an input: it is inspected first, and then sent as the body of a part. The file is opened when its part
//! begins, read in chunks, and sent with exactly the length that the part declares.

use std::fmt;
use std::hash::Hasher;
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

/// The maximum size of a chunk (our choice). Each chunk costs a call on a blocking thread, so chunks should be few, but
/// small enough for memory.
const CHUNK_BYTES: usize = 256 * 1024;

/// Inspects a file on a blocking thread, because reading it may block.
pub(super) async fn inspect_file(path: PathBuf) -> io::Result<InputInspection> {
    let inspection = tokio::task::spawn_blocking(move || InputFile::open(&path).map(|file| file.inspection()));
    inspection.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Adds the content of a file to a hash, on a blocking thread.
pub(super) async fn hash_file<H: Hasher + Send + 'static>(path: PathBuf, mut hasher: H) -> io::Result<H> {
    let hashed = tokio::task::spawn_blocking(move || {
        let (mut file, mut chunk) = (std::fs::File::open(path)?, vec![0; CHUNK_BYTES]);
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(hasher),
                length => hasher.write(&chunk[..length]),
            }
        }
    });
    hashed.await.unwrap_or_else(|error| Err(io::Error::other(error)))
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
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        Ok(Self { file, length: metadata.len() })
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
        // Seek and read are two calls, because not every platform has one call for both. Nothing else uses this handle.
        (&self.file).seek(SeekFrom::Start(offset))?;
        (&self.file).read(buffer)
    }
}

/// Returns the file as a body.
pub(super) fn body(path: &Path, length: u64) -> Body {
    Body::wrap_stream(InputFileStream { path: path.to_owned(), remaining: length, state: InputFileStreamState::Closed })
}

/// The error of a file that could not be read to its declared length. The form ended early, so nothing was made.
#[derive(Debug)]
pub(in crate::client) struct InputFileError {
    path: PathBuf,
    source: io::Error,
}

struct InputFileStream {
    path: PathBuf,
    remaining: u64,
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
                InputFileStreamState::Open(_) if self.remaining == 0 => self.state = InputFileStreamState::Done,
                InputFileStreamState::Open(file) => return next_chunk(file, &mut self.remaining, cx).map_ok(Some),
                InputFileStreamState::Done => return Poll::Ready(Ok(None)),
            }
        }
    }
}

/// Returns the next chunk of the file. A file that has grown is cut. A file that has shrunk is an error, because the
/// declared length cannot be sent.
fn next_chunk(file: &mut File, remaining: &mut u64, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    let length = usize::try_from(*remaining).map_or(CHUNK_BYTES, |remaining| remaining.min(CHUNK_BYTES));
    let mut chunk = vec![0; length];
    let mut buffer = ReadBuf::new(&mut chunk);
    ready!(Pin::new(file).poll_read(cx, &mut buffer))?;
    let read = buffer.filled().len();
    if read == 0 {
        return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter")));
    }
    chunk.truncate(read);
    *remaining = remaining.saturating_sub(u64::try_from(read).unwrap_or(*remaining));
    Poll::Ready(Ok(chunk.into()))
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

    fn read_stream(path: &Path, length: u64) -> Result<Vec<u8>, InputFileError> {
        let mut stream =
            InputFileStream { path: path.to_owned(), remaining: length, state: InputFileStreamState::Closed };
        run(async {
            let mut all = Vec::new();
            while let Some(chunk) = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
                all.extend_from_slice(&chunk?);
            }
            Ok(all)
        })
    }

    #[test]
    fn a_file_is_sent_with_its_declared_length_or_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let bytes: Vec<u8> = (0..CHUNK_BYTES * 2 + 7).map(|index| u8::try_from(index % 251).unwrap()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let length = u64::try_from(bytes.len()).unwrap();
        assert!(read_stream(&path, length).unwrap() == bytes);
        assert!(read_stream(&path, length - 9).unwrap() == bytes[..bytes.len() - 9]);
        let error = read_stream(&path, length + 1).unwrap_err().to_string();
        assert!(error.contains("a.png") && error.contains("shorter"), "{error}");
        assert!(read_stream(&folder.path().join("none"), 1).is_err());
    }
}
