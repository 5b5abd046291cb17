//! Seals a backup for the holder of a key, in the format of age (<https://age-encryption.org/v1>), so that every program for
//! this format can open it. Memory does not grow with the file.
//!
//! A recipient is a public key, so that the machine that makes backups cannot open them. Each file has a key of its own,
//! which is sealed for each recipient (X25519, HKDF-SHA256, ChaCha20-Poly1305). The contents are sealed in chunks: one that
//! was changed, moved or left out cannot be opened, and the last one is marked, so a file that was cut off is not complete.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::bech32;

/// The first line of a sealed file.
pub(super) const FIRST_LINE: &str = "age-encryption.org/v1\n";
const RECIPIENT_PREFIX: &str = "age";
const IDENTITY_PREFIX: &str = "age-secret-key-";
/// The line before a sealed file key; the public key of the sealing follows.
const STANZA: &str = "-> X25519 ";
const LAST_LINE: &str = "---";
const WRAP_INFO: &[u8] = b"age-encryption.org/v1/X25519";
const FILE_KEY_BYTES: usize = 16;
const NONCE_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// The length of a chunk before it is sealed. Only the last chunk may be shorter.
const CHUNK_BYTES: usize = 64 * 1024;
/// The longest line and the most lines of a head that are read (our choice): those of hundreds of recipients.
const MAX_LINE_BYTES: usize = 256;
const MAX_LINES: usize = 1024;

/// The public key for which a backup is sealed: `age1…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupRecipient([u8; 32]);

/// The secret key with which a sealed backup is opened: `AGE-SECRET-KEY-1…`.
pub(crate) struct BackupIdentity([u8; 32]);

/// Seals the bytes that are written, and writes them.
pub(super) struct SealingWriter<W> {
    writer: W,
    key: LessSafeKey,
    chunk: Vec<u8>,
    number: u64,
}

/// Reads the contents of a sealed file.
pub(super) struct OpeningReader<R> {
    reader: R,
    key: LessSafeKey,
    /// The sealed chunk that was read ahead, to know whether there is another.
    next: Vec<u8>,
    chunk: Vec<u8>,
    position: usize,
    number: u64,
    has_ended: bool,
}

// === impl BackupRecipient ===

impl FromStr for BackupRecipient {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let key = bech32::decode(RECIPIENT_PREFIX, text);
        key.map(Self).ok_or("must be a public key `age1…`, as `imagate backup key` and `age-keygen` print it")
    }
}

impl fmt::Display for BackupRecipient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&bech32::encode(RECIPIENT_PREFIX, &self.0))
    }
}

// === impl BackupIdentity ===

impl BackupIdentity {
    /// Returns a new key.
    pub(crate) fn random() -> io::Result<Self> {
        random_bytes().map(Self)
    }

    /// Reads the keys of a file: one in each line that is neither empty nor a comment. `None` if a line is no key.
    pub(crate) fn parse_file(text: &str) -> Option<Vec<Self>> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<Self> =
            lines.map(|line| bech32::decode(IDENTITY_PREFIX, line).map(Self)).collect::<Option<_>>()?;
        (!keys.is_empty()).then_some(keys)
    }

    /// Returns the text of the key.
    pub(crate) fn to_text(&self) -> String {
        bech32::encode(IDENTITY_PREFIX, &self.0).to_ascii_uppercase()
    }

    /// Returns the public key.
    pub(crate) fn recipient(&self) -> io::Result<BackupRecipient> {
        public_key(&self.0).map(BackupRecipient)
    }

    /// Opens a file key that was sealed for this key with this public key; `None` if it was sealed for another.
    fn open_file_key(&self, share: &[u8; 32], sealed: &[u8]) -> io::Result<Option<[u8; FILE_KEY_BYTES]>> {
        let Ok(key) = wrap_key(&self.0, share, share, &self.recipient()?.0) else { return Ok(None) };
        let mut bytes = sealed.to_vec();
        let opened = key.open_in_place(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut bytes);
        Ok(opened.ok().and_then(|bytes| (&*bytes).try_into().ok()))
    }
}

impl fmt::Debug for BackupIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BackupIdentity([redacted])")
    }
}

// === impl SealingWriter ===

impl<W: Write> SealingWriter<W> {
    /// Writes the head, with a new file key that is sealed for each recipient.
    pub(super) fn new(mut writer: W, recipients: &[BackupRecipient]) -> io::Result<Self> {
        let file_key: [u8; FILE_KEY_BYTES] = random_bytes()?;
        let mut head = FIRST_LINE.to_owned();
        for recipient in recipients {
            let secret = random_bytes()?;
            let share = public_key(&secret)?;
            let key = wrap_key(&secret, &recipient.0, &share, &recipient.0).map_err(io::Error::other)?;
            let mut sealed = file_key.to_vec();
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            key.seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed).map_err(io::Error::other)?;
            let (share, sealed) = (STANDARD_NO_PAD.encode(share), STANDARD_NO_PAD.encode(sealed));
            head.push_str(&format!("{STANZA}{share}\n{sealed}\n"));
        }
        head.push_str(LAST_LINE);
        let mac = hmac::sign(&head_key(&file_key).map_err(io::Error::other)?, head.as_bytes());
        let nonce: [u8; NONCE_BYTES] = random_bytes()?;
        writer.write_all(format!("{head} {}\n", STANDARD_NO_PAD.encode(mac)).as_bytes())?;
        writer.write_all(&nonce)?;
        let key = payload_key(&file_key, &nonce).map_err(io::Error::other)?;
        Ok(Self { writer, key, chunk: Vec::with_capacity(CHUNK_BYTES + TAG_BYTES), number: 0 })
    }

    /// Seals the last chunk, and returns the writer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.write_chunk(true)?;
        Ok(self.writer)
    }

    fn write_chunk(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = chunk_nonce(self.number, is_last);
        self.key.seal_in_place_append_tag(nonce, Aad::empty(), &mut self.chunk).map_err(io::Error::other)?;
        self.number += 1;
        self.writer.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }
}

impl<W: Write> Write for SealingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk waits for the next byte, because it may be the last one.
        if self.chunk.len() == CHUNK_BYTES && !bytes.is_empty() {
            self.write_chunk(false)?;
        }
        let taken = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

// === impl OpeningReader ===

impl<R: Read> OpeningReader<R> {
    /// Reads the head; `None` if the file was sealed for none of these keys.
    pub(super) fn new(mut reader: R, identities: &[BackupIdentity]) -> io::Result<Option<Self>> {
        let Some(file_key) = read_head(&mut reader, identities)? else { return Ok(None) };
        let mut nonce = [0; NONCE_BYTES];
        reader.read_exact(&mut nonce)?;
        let key = payload_key(&file_key, &nonce).map_err(io::Error::other)?;
        let next = read_chunk(&mut reader)?;
        Ok(Some(Self { reader, key, next, chunk: Vec::new(), position: 0, number: 0, has_ended: false }))
    }

    fn open_chunk(&mut self) -> io::Result<()> {
        let following = read_chunk(&mut self.reader)?;
        let is_last = following.is_empty();
        self.chunk = std::mem::replace(&mut self.next, following);
        let nonce = chunk_nonce(self.number, is_last);
        let opened =
            self.key.open_in_place(nonce, Aad::empty(), &mut self.chunk).map_err(|_| damaged("a part of it"))?;
        let length = opened.len();
        if length == 0 && self.number > 0 {
            return Err(damaged("its end"));
        }
        self.chunk.truncate(length);
        (self.position, self.has_ended) = (0, is_last);
        self.number += 1;
        Ok(())
    }
}

impl<R: Read> Read for OpeningReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position == self.chunk.len() && !self.has_ended {
            self.open_chunk()?;
        }
        let taken = buffer.len().min(self.chunk.len() - self.position);
        buffer[..taken].copy_from_slice(&self.chunk[self.position..self.position + taken]);
        self.position += taken;
        Ok(taken)
    }
}

/// Reads the head of a sealed file, checks it, and returns the file key.
fn read_head(reader: &mut impl Read, identities: &[BackupIdentity]) -> io::Result<Option<[u8; FILE_KEY_BYTES]>> {
    let mut head = String::new();
    let (mut share, mut file_key): (Option<[u8; 32]>, Option<[u8; FILE_KEY_BYTES]>) = (None, None);
    for _ in 0..MAX_LINES {
        let line = read_line(reader)?;
        if let Some(mac) = line.strip_prefix(LAST_LINE) {
            head.push_str(LAST_LINE);
            let Some(file_key) = file_key else { return Ok(None) };
            let mac = STANDARD_NO_PAD.decode(mac.trim_ascii()).map_err(|_| damaged("its head"))?;
            let key = head_key(&file_key).map_err(io::Error::other)?;
            hmac::verify(&key, head.as_bytes(), &mac).map_err(|_| damaged("its head"))?;
            return Ok(Some(file_key));
        }
        if let (Some(share), None) = (share.take(), file_key) {
            let sealed = STANDARD_NO_PAD.decode(line.trim_end()).map_err(|_| damaged("its head"))?;
            for identity in identities {
                file_key = file_key.or(identity.open_file_key(&share, &sealed)?);
            }
        }
        let text = line.trim_end().strip_prefix(STANZA);
        share = text.and_then(|text| STANDARD_NO_PAD.decode(text).ok()?.try_into().ok());
        head.push_str(&line);
    }
    Err(damaged("its head"))
}

/// Reads a line with its end, byte by byte, so that nothing after the head is read.
fn read_line(reader: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        line.push(byte[0]);
        if line.len() > MAX_LINE_BYTES {
            return Err(damaged("its head"));
        }
    }
    String::from_utf8(line).map_err(|_| damaged("its head"))
}

/// Reads a whole sealed chunk, or what is left of the file.
fn read_chunk(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES + TAG_BYTES);
    reader.take((CHUNK_BYTES + TAG_BYTES) as u64).read_to_end(&mut chunk)?;
    Ok(chunk)
}

fn damaged(part: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{part} was changed or cut off"))
}

/// Returns the key that seals the file key: of the shared secret of one key pair and another's public key.
fn wrap_key(
    secret: &[u8; 32],
    public: &[u8; 32],
    share: &[u8; 32],
    recipient: &[u8; 32],
) -> Result<LessSafeKey, Unspecified> {
    let secret = PrivateKey::from_private_key(&X25519, secret).map_err(|_| Unspecified)?;
    agree(&secret, UnparsedPublicKey::new(&X25519, public), Unspecified, |shared| {
        derived(&[&share[..], recipient].concat(), shared, WRAP_INFO).and_then(|key| chunk_key(&key))
    })
}

fn public_key(secret: &[u8; 32]) -> io::Result<[u8; 32]> {
    let secret = PrivateKey::from_private_key(&X25519, secret).map_err(io::Error::other)?;
    let public = secret.compute_public_key().map_err(io::Error::other)?;
    public.as_ref().try_into().map_err(io::Error::other)
}

fn head_key(file_key: &[u8]) -> Result<hmac::Key, Unspecified> {
    derived(&[], file_key, b"header").map(|key| hmac::Key::new(HMAC_SHA256, &key))
}

fn payload_key(file_key: &[u8], nonce: &[u8]) -> Result<LessSafeKey, Unspecified> {
    derived(nonce, file_key, b"payload").and_then(|key| chunk_key(&key))
}

fn chunk_key(key: &[u8; 32]) -> Result<LessSafeKey, Unspecified> {
    UnboundKey::new(&CHACHA20_POLY1305, key).map(LessSafeKey::new)
}

/// Derives a key with HKDF-SHA256.
fn derived(salt: &[u8], secret: &[u8], info: &[u8]) -> Result<[u8; 32], Unspecified> {
    let mut key = [0; 32];
    Salt::new(HKDF_SHA256, salt).extract(secret).expand(&[info], HKDF_SHA256)?.fill(&mut key)?;
    Ok(key)
}

/// The nonce of a chunk: its number in eleven bytes, and a mark for the last one.
fn chunk_nonce(number: u64, is_last: bool) -> Nonce {
    let mut nonce = [0; 12];
    nonce[3..11].copy_from_slice(&number.to_be_bytes());
    nonce[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(nonce)
}

fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
