//! A file: looked at by itself, and as the body of a part, opened when its turn comes, read piece by piece, and of exactly
//! the promised length.

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

use super::Look;
use crate::image::{Source, inspect};

/// Each piece is one trip to the thread that may block: few of them, and still little memory.
const PIECE: usize = 256 * 1024;

/// Looks at a file, beside the runtime: reading it may block.
pub(super) async fn look(path: PathBuf) -> io::Result<Look> {
    let look = tokio::task::spawn_blocking(move || Opened::open(&path).map(|opened| opened.look()));
    look.await.unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
}

/// A file that is open for a look.
struct Opened {
    file: std::fs::File,
    length: u64,
}

// === impl Opened ===

impl Opened {
    fn open(path: &Path) -> io::Result<Self> {
        let file = std::fs::File::open(path)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        Ok(Self { file, length: facts.len() })
    }

    fn look(&self) -> Look {
        Look { length: self.length, header: inspect(self) }
    }
}

impl Source for Opened {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // Two calls, because one that does both is not on every platform; nobody else has this handle.
        (&self.file).seek(SeekFrom::Start(offset))?;
        (&self.file).read(buffer)
    }
}

/// The file as a body.
pub(super) fn body(path: &Path, length: u64) -> Body {
    Body::wrap_stream(Pieces { path: path.to_owned(), left: length, state: State::Closed })
}

/// A file that could not be read to the length that was promised. The form ended in the middle, so nothing was made.
#[derive(Debug)]
pub(in crate::client) struct Broken {
    path: PathBuf,
    source: io::Error,
}

struct Pieces {
    path: PathBuf,
    left: u64,
    state: State,
}

enum State {
    /// Its turn has not come: sixteen files need not be open at once.
    Closed,
    Opening(Pin<Box<dyn Future<Output = io::Result<File>> + Send>>),
    Open(File),
    Over,
}

// === impl Pieces ===

impl Pieces {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            match &mut self.state {
                State::Closed => self.state = State::Opening(Box::pin(File::open(self.path.clone()))),
                State::Opening(opening) => self.state = State::Open(ready!(opening.as_mut().poll(cx))?),
                State::Open(_) if self.left == 0 => self.state = State::Over,
                State::Open(file) => return piece(file, &mut self.left, cx).map_ok(Some),
                State::Over => return Poll::Ready(Ok(None)),
            }
        }
    }
}

/// What comes next in the file. One that has grown is cut; one that has shrunk would be an image that nobody has made.
fn piece(file: &mut File, left: &mut u64, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    let length = usize::try_from(*left).map_or(PIECE, |left| left.min(PIECE));
    let mut piece = vec![0; length];
    let mut buffer = ReadBuf::new(&mut piece);
    ready!(Pin::new(file).poll_read(cx, &mut buffer))?;
    let read = buffer.filled().len();
    if read == 0 {
        return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has become shorter")));
    }
    piece.truncate(read);
    *left = left.saturating_sub(u64::try_from(read).unwrap_or(*left));
    Poll::Ready(Ok(piece.into()))
}

impl Stream for Pieces {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let result = ready!(self.poll(cx));
        if result.is_err() {
            self.state = State::Over;
        }
        Poll::Ready(result.map_err(|source| Broken { path: self.path.clone(), source }).transpose())
    }
}

// === impl Broken ===

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for Broken {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::run;

    fn pieces(path: &Path, length: u64) -> Result<Vec<u8>, Broken> {
        let mut pieces = Pieces { path: path.to_owned(), left: length, state: State::Closed };
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
        let bytes: Vec<u8> = (0..PIECE * 2 + 7).map(|index| u8::try_from(index % 251).unwrap()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let length = u64::try_from(bytes.len()).unwrap();
        assert!(pieces(&path, length).unwrap() == bytes);
        assert!(pieces(&path, length - 9).unwrap() == bytes[..bytes.len() - 9]);
        let broken = pieces(&path, length + 1).unwrap_err().to_string();
        assert!(broken.contains("a.png") && broken.contains("shorter"), "{broken}");
        assert!(pieces(&folder.path().join("none"), 1).is_err());
    }
}
