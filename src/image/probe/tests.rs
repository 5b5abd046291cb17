//! Tests of the verdicts in the table of the parent module.
//!
//! The submodules `jpeg`, `png` and `webp` test the cases of each format, and `hostile` tests mutated files. `files`
//! builds the files.

mod files;
mod hostile;
mod jpeg;
mod png;
mod webp;

use std::cell::Cell;
use std::io;

use super::{ByteSource, ImageFileError, ImageHeader, MAX_PARTS, inspect, probe};

/// A file that counts its reads, and the bytes that they ask for.
pub(super) struct CountingSource<'a> {
    file: &'a [u8],
    reads: Cell<u32>,
    largest: Cell<usize>,
    bytes: Cell<usize>,
}

impl<'a> CountingSource<'a> {
    fn new(file: &'a [u8]) -> Self {
        Self { file, reads: Cell::default(), largest: Cell::default(), bytes: Cell::default() }
    }

    /// Inspects the file, and checks that the number of reads and the largest read are within bounds.
    #[track_caller]
    fn inspect(&self) -> Result<ImageHeader, ImageFileError> {
        let verdict = inspect(self);
        assert!(self.reads.get() <= 2 * MAX_PARTS + 8, "{} reads", self.reads.get());
        assert!(self.largest.get() <= 260, "a read of {} bytes", self.largest.get());
        verdict
    }
}

impl ByteSource for CountingSource<'_> {
    fn len(&self) -> u64 {
        ByteSource::len(self.file)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads.set(self.reads.get() + 1);
        self.largest.set(self.largest.get().max(buffer.len()));
        self.bytes.set(self.bytes.get() + buffer.len());
        self.file.read_at(offset, buffer)
    }
}

/// Checks the verdict on a file: `Ok` says whether it has alpha, `Err` is a part of the error message.
#[track_caller]
pub(super) fn check(file: &[u8], expected: Result<bool, &str>) {
    match (CountingSource::new(file).inspect(), expected) {
        (Ok(header), Ok(alpha)) => assert_eq!(header.has_alpha, alpha, "{header:?}"),
        (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error} does not contain: {text}"),
        (verdict, expected) => panic!("{verdict:?}, not {expected:?}"),
    }
}

/// Returns width and height of a file that is accepted.
#[track_caller]
pub(super) fn size(file: &[u8]) -> (u32, u32) {
    let properties = CountingSource::new(file).inspect().unwrap().properties;
    assert_eq!(probe(file), Some(properties), "probe and inspect disagree");
    (properties.width, properties.height)
}

#[test]
fn only_the_first_bytes_decide_the_format() {
    let png = files::png(16, 16, 8, 6, &[]);
    check(&[b"<html></html>".as_slice(), &png].concat(), Err("not a PNG, JPEG or WebP"));
    check(&png[1..], Err("not a PNG, JPEG or WebP"));
    check(&[png.as_slice(), b"<html></html>"].concat(), Ok(true));
    for other in [
        b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>".as_slice(),
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        b"BM\0\0\0\0\0\0\0\0",
        b"RIFF\x04\0\0\0WAVE",
        b"\x89PNG\n\x1a\n\0\0\0\0\0",
        b"\xff\xd8",
        b"\0",
    ] {
        check(other, Err("not a PNG, JPEG or WebP"));
        assert_eq!(probe(other), None);
    }
    check(b"", Err("The file is empty."));
    assert_eq!(probe(b""), None);
}

#[test]
fn a_file_cut_off_anywhere_ends_too_early() {
    for (name, file, whole_from) in files::valid_files() {
        for end in 0..file.len() {
            let verdict = CountingSource::new(&file[..end]).inspect();
            match end {
                0 => assert_eq!(verdict, Err(ImageFileError::Empty)),
                _ if end >= whole_from => assert!(verdict.is_ok(), "{name} cut at {end}: {verdict:?}"),
                1..12 if verdict == Err(ImageFileError::Unknown) => {}
                _ => assert!(matches!(verdict, Err(ImageFileError::Truncated(_))), "{name} cut at {end}: {verdict:?}"),
            }
        }
        check(&file, Ok(CountingSource::new(&file).inspect().unwrap().has_alpha));
    }
}

#[test]
fn probe_succeeds_as_soon_as_the_head_contains_the_size() {
    for (name, file, _) in files::valid_files() {
        let properties = probe(&file);
        assert!(properties.is_some(), "{name}");
        let first = (0..file.len()).find(|end| probe(&file[..*end]).is_some()).unwrap();
        assert!(
            (first..file.len()).all(|end| probe(&file[..end]) == properties),
            "{name}: known from {first}, not always"
        );
        assert!(first < 1000, "{name}: known from {first} only");
    }
}

#[test]
fn a_png_is_known_from_its_first_chunk() {
    let head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x02\x80\x08\x02\0\0\0";
    let properties = super::ImageProperties { format: crate::image::Format::Png, width: 1024, height: 640 };
    assert_eq!(probe(head), Some(properties));
    assert_eq!(probe(&head[..12]), None);
    assert_eq!(inspect(&head.as_slice()), Err(ImageFileError::Truncated(properties.format)));
}

#[test]
fn a_gif_is_known_from_its_logical_screen_but_is_no_upload() {
    let head = b"GIF89a\x00\x04\x80\x02\xf7\0\0";
    let properties = super::ImageProperties { format: crate::image::Format::Gif, width: 1024, height: 640 };
    assert_eq!(probe(head), Some(properties));
    assert_eq!(probe(b"GIF87a\x01\0\x01\0\0\0"), Some(super::ImageProperties { width: 1, height: 1, ..properties }));
    for head in [&b"GIF89a\x00\x04\x80"[..], b"GIF88a\x00\x04\x80\x02\0\0", b"GIF89a\x00\0\x80\x02\0\0"] {
        assert_eq!(probe(head), None, "{head:?}");
    }
    assert_eq!(inspect(&head.as_slice()), Err(ImageFileError::Unknown));
}

#[test]
fn other_files_have_no_image_properties() {
    assert_eq!(probe(b"<html><body>no</body></html>"), None);
    assert_eq!(probe(b""), None);
}

/// Reads one byte at a time, is interrupted on every other read, and fails at the offset `fails_at`.
struct FlakySource<'a> {
    file: &'a [u8],
    fails_at: Option<u64>,
    calls: Cell<u32>,
}

impl ByteSource for FlakySource<'_> {
    fn len(&self) -> u64 {
        ByteSource::len(self.file)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get() % 2 == 1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.fails_at == Some(offset) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let count = buffer.len().min(1);
        self.file.read_at(offset, &mut buffer[..count])
    }
}

#[test]
fn a_read_error_is_not_a_damaged_file() {
    let file = files::png(16, 16, 8, 6, &[]);
    let source = |fails_at| FlakySource { file: &file, fails_at, calls: Cell::default() };
    assert_eq!(inspect(&source(None)), inspect(&file.as_slice()));
    assert_eq!(inspect(&source(Some(20))), Err(ImageFileError::Unreadable(io::ErrorKind::StorageFull)));
}

/// Reports a length that is too large, and from each read more bytes than the buffer can hold.
struct LyingSource<'a>(&'a [u8]);

impl ByteSource for LyingSource<'_> {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read_at(offset, buffer)?;
        Ok(if count == 0 { 0 } else { usize::MAX })
    }
}

#[test]
fn false_lengths_of_a_source_are_harmless() {
    for (name, file, whole_from) in files::valid_files() {
        assert!(inspect(&LyingSource(&file)).is_ok(), "{name}");
        // If bytes are missing that the check needs, their read detects it.
        assert_eq!(inspect(&LyingSource(&file[..20])).is_ok(), whole_from <= 20, "{name}");
    }
}
