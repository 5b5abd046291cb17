//! The forms that tests send: parts with any name and headers, and large files whose pieces share memory.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::Call;

/// Bytes in pieces that are shared, so that a file of fifty megabytes takes about one megabyte of memory.
pub(crate) type Pieces = Vec<Arc<Vec<u8>>>;

/// All pieces as one, for files that are not large.
pub(crate) fn concat(pieces: &Pieces) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}

/// A `multipart/form-data` body.
#[derive(Clone, Default)]
pub(crate) struct Form {
    pieces: Pieces,
}

const BOUNDARY: &str = "----imagate-it-7d93b2a1c0";

// === impl Form ===

impl Form {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A form with `model` and `prompt`.
    pub(crate) fn with_required_fields() -> Self {
        Self::new().text("model", "gpt-image-2").text("prompt", "a red cube")
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        self.part(&format!("content-disposition: form-data; name=\"{name}\""), [Arc::new(value.as_bytes().to_vec())])
    }

    /// A file as most clients send it.
    pub(crate) fn file(self, name: &str, bytes: &[u8]) -> Self {
        self.part(&file_headers(name), [Arc::new(bytes.to_vec())])
    }

    /// A file in pieces.
    pub(crate) fn big_file(self, name: &str, pieces: Pieces) -> Self {
        self.part(&file_headers(name), pieces)
    }

    /// A part with these header lines.
    pub(crate) fn part(mut self, headers: &str, bytes: impl IntoIterator<Item = Arc<Vec<u8>>>) -> Self {
        self.pieces.push(Arc::new(format!("--{BOUNDARY}\r\n{headers}\r\n\r\n").into_bytes()));
        self.pieces.extend(bytes);
        self.raw("\r\n")
    }

    /// Appends this text as it is, also where the rules of forms forbid it.
    pub(crate) fn raw(mut self, text: &str) -> Self {
        self.pieces.push(Arc::new(text.as_bytes().to_vec()));
        self
    }

    /// The request, with the final boundary.
    pub(crate) fn call(self) -> Call {
        self.raw(&format!("--{BOUNDARY}--\r\n")).unfinished()
    }

    /// The request to another path, with the final boundary.
    pub(crate) fn call_to(self, path: &str) -> Call {
        self.raw(&format!("--{BOUNDARY}--\r\n")).unfinished_to(path)
    }

    /// The request, without the final boundary.
    pub(crate) fn unfinished(self) -> Call {
        self.unfinished_to("/v1/images/edits")
    }

    fn unfinished_to(self, path: &str) -> Call {
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        Call::post(path).header("content-type", &kind).pieces(self.pieces)
    }
}

fn file_headers(name: &str) -> String {
    format!("content-disposition: form-data; name=\"{name}\"; filename=\"picture.png\"\r\ncontent-type: image/png")
}

/// A whole and valid PNG file of this size with an alpha channel, stretched to exactly `length` bytes by private
/// chunks.
pub(crate) fn stretched_png(width: u32, height: u32, length: usize) -> Pieces {
    const BLOCK: usize = 1 << 20;
    static SHARED: OnceLock<Arc<Vec<u8>>> = OnceLock::new();
    let block = SHARED.get_or_init(|| Arc::new(private_chunk(BLOCK)));
    let file = alpha_png(width, height);
    // The end chunk of a PNG always has these twelve bytes.
    let (body, end) = file.split_at(file.len() - 12);
    let room = length.checked_sub(file.len()).expect("longer than the file itself");
    let mut pieces = vec![Arc::new(body.to_vec())];
    let (blocks, rest) = (room / BLOCK, room % BLOCK);
    // A chunk has at least twelve bytes, so a shorter rest is joined with a block.
    let (blocks, rest) = if rest == 0 || rest >= 12 { (blocks, rest) } else { (blocks - 1, rest + BLOCK) };
    pieces.extend(std::iter::repeat_n(Arc::clone(block), blocks));
    if rest > 0 {
        pieces.push(Arc::new(private_chunk(rest)));
    }
    pieces.push(Arc::new(end.to_vec()));
    assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), length);
    pieces
}

/// A small PNG of eight bits per channel with an alpha channel, half of it transparent.
pub(crate) fn alpha_png(width: u32, height: u32) -> Arc<Vec<u8>> {
    type PngCache = std::collections::HashMap<(u32, u32), Arc<Vec<u8>>>;
    static CACHE: OnceLock<Mutex<PngCache>> = OnceLock::new();
    let mut cache = CACHE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(cache.entry((width, height)).or_insert_with(|| Arc::new(encode_alpha_png(width, height))))
}

fn encode_alpha_png(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().expect("a header");
    let pixels = width as usize * height as usize;
    let half = pixels / 2 * 4;
    let mut data = vec![90; pixels * 4];
    data[..half].fill(0);
    writer.write_image_data(&data).expect("pixels");
    writer.finish().expect("a PNG");
    file
}

/// A PNG chunk that every reader skips; `length` counts its header and checksum too.
fn private_chunk(length: usize) -> Vec<u8> {
    let mut chunk = u32::try_from(length - 12).expect("a length").to_be_bytes().to_vec();
    chunk.extend_from_slice(b"fiLl");
    let noise = (0..u32::MAX).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]);
    chunk.extend(noise.take(length - 12));
    let sum = crc(&chunk[4..]);
    chunk.extend_from_slice(&sum.to_be_bytes());
    chunk
}

fn crc(bytes: &[u8]) -> u32 {
    let mut table = [0_u32; 256];
    for (at, slot) in (0_u32..).zip(&mut table) {
        *slot = (0..8).fold(at, |value, _| if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 });
    }
    !bytes.iter().fold(!0_u32, |sum, byte| table[usize::from(sum.to_le_bytes()[0] ^ byte)] ^ (sum >> 8))
}
