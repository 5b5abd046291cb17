//! The file of a backup: a tar with the manifest, the digest of the manifest, and the files of the manifest, sealed as a
//! whole or not.
//!
//! It can be listed and unpacked with every tar program, if it is not sealed. When it is read, its parts must be exactly those that were
//! written, in the same order: names and kinds of entries come from the list of this program and never from the file, so
//! that no entry can lead out of a folder.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tar::{Archive, Builder, Entries, Entry, EntryType, Header};

use super::BackupError;
use super::manifest::{BackupFile, BackupManifest, FORMAT, HashingReader, sha256};
use super::sealing::{BackupIdentity, BackupRecipient, FIRST_LINE, OpeningReader, SealingWriter};
use crate::gateway::store::{INSTALLATION_FILES, create_private, newest_schema_version};

const MANIFEST: &str = "manifest.json";
/// The digest of the manifest, in the format of `sha256sum`.
const MANIFEST_DIGEST: &str = "manifest.json.sha256";
/// The longest manifest and digest that are read (our choice): many times those that are written.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// The length of a header, to multiples of which the contents of a file are padded.
const BLOCK_BYTES: u64 = 512;
/// The length of the end of an archive.
const END_BYTES: u64 = 2 * BLOCK_BYTES;

/// A backup whose manifest has been read and checked.
#[derive(Debug)]
pub(super) struct BackupArchive<'a> {
    file: File,
    path: PathBuf,
    /// The keys that open the file; empty if it is not sealed.
    identities: &'a [BackupIdentity],
    pub(super) manifest: BackupManifest,
    /// The length of the tar.
    length: u64,
}

/// A reader that counts its bytes.
struct CountingReader<R> {
    reader: R,
    bytes: u64,
}

/// The version of a manifest and of its form, which every later form has too.
#[derive(serde::Deserialize)]
struct ManifestVersion {
    format: i64,
    version: String,
}

/// Writes the archive of the files in a folder, sealed if there are recipients, waits until it is durable, and returns its
/// length.
pub(super) fn write_archive(
    file: &File,
    folder: &Path,
    manifest: &BackupManifest,
    recipients: &[BackupRecipient],
) -> io::Result<u64> {
    let writer = io::BufWriter::with_capacity(1 << 20, file);
    let writer = if recipients.is_empty() {
        write_tar(writer, folder, manifest)?
    } else {
        write_tar(SealingWriter::new(writer, recipients)?, folder, manifest)?.finish()?
    };
    writer.into_inner()?.sync_all()?;
    Ok(file.metadata()?.len())
}

fn write_tar<W: Write>(writer: W, folder: &Path, manifest: &BackupManifest) -> io::Result<W> {
    let mut builder = Builder::new(writer);
    let bytes = manifest.to_bytes()?;
    append(&mut builder, MANIFEST, bytes.len() as u64, &mut bytes.as_slice())?;
    let digest = format!("{}  {MANIFEST}\n", sha256(&bytes));
    append(&mut builder, MANIFEST_DIGEST, digest.len() as u64, &mut digest.as_bytes())?;
    for BackupFile { name, bytes, .. } in &manifest.files {
        append(&mut builder, name, *bytes, &mut File::open(folder.join(name))?)?;
    }
    builder.into_inner()
}

fn append(builder: &mut Builder<impl Write>, name: &str, bytes: u64, contents: &mut dyn Read) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(bytes);
    // The time is for those who list the file. A restore does not read it.
    header.set_mtime(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs()));
    builder.append_data(&mut header, name, contents)
}

// === impl BackupArchive ===

impl<'a> BackupArchive<'a> {
    /// Opens a file, and reads its manifest. A sealed file needs one of the keys, and one that is not sealed takes none.
    /// Neither a newer form nor a newer schema is accepted, and the length must be that of a complete file.
    pub(super) fn open(path: &Path, identities: &'a [BackupIdentity]) -> Result<Self, BackupError> {
        let reading = |error| BackupError::reading(path)(error);
        let file = File::open(path).map_err(reading)?;
        let metadata = file.metadata().map_err(reading)?;
        if !metadata.is_file() {
            return Err(not_a_backup(path, "it is not a file"));
        }
        let is_sealed = is_sealed(&file).map_err(reading)?;
        match (is_sealed, identities) {
            (true, []) => return Err(BackupError::Sealed(path.to_owned())),
            (false, [_, ..]) => return Err(BackupError::NotSealed(path.to_owned())),
            _ => {}
        }
        let mut archive = Archive::new(contents(&file, path, identities)?);
        let mut entries = raw_entries(&mut archive).map_err(reading)?;
        let bytes = read_small_file(&mut entries, path, MANIFEST)?;
        let digest = read_small_file(&mut entries, path, MANIFEST_DIGEST)?;
        if digest != format!("{}  {MANIFEST}\n", sha256(&bytes)).as_bytes() {
            return Err(BackupError::damaged("its manifest was changed"));
        }
        let manifest = parse_manifest(&bytes, path)?;
        let expected = expected_length(&manifest, bytes.len() as u64, digest.len() as u64);
        if !is_sealed {
            check_length(metadata.len(), expected)?;
        }
        drop(archive);
        Ok(Self { file, path: path.to_owned(), identities, manifest, length: expected })
    }

    /// Reads every byte, and compares it with the manifest. Writes nothing.
    pub(super) fn check(&self) -> Result<(), BackupError> {
        self.read_files(|_| Ok(Box::new(io::sink())))
    }

    /// Writes the files to an empty folder, and compares them with the manifest again.
    pub(super) fn unpack(&self, folder: &Path) -> Result<(), BackupError> {
        let mut written = Vec::new();
        self.read_files(|name| {
            let file = create_private(&folder.join(name))?;
            written.push(file.try_clone()?);
            Ok(Box::new(file))
        })?;
        let synced = written.iter().try_for_each(File::sync_all);
        synced.map_err(BackupError::io("writing to", folder))
    }

    fn read_files(
        &self,
        mut target: impl FnMut(&'static str) -> io::Result<Box<dyn Write>>,
    ) -> Result<(), BackupError> {
        let reading = |error| BackupError::reading(&self.path)(error);
        let mut contents = CountingReader { reader: contents(&self.file, &self.path, self.identities)?, bytes: 0 };
        let mut archive = Archive::new(&mut contents);
        let mut entries = raw_entries(&mut archive).map_err(reading)?;
        for name in [MANIFEST, MANIFEST_DIGEST] {
            next_file(&mut entries, name).map_err(BackupError::damaged)?;
        }
        for expected in &self.manifest.files {
            let name = known_name(&expected.name)?;
            let entry = next_file(&mut entries, name).map_err(BackupError::damaged)?;
            let mut target = target(name).map_err(BackupError::io("writing", Path::new(name)))?;
            let copied = HashingReader::new(entry).copy_to(&mut *target);
            let (bytes, sha256) = copied.map_err(BackupError::copying(Path::new(name)))?;
            if (bytes, &sha256) != (expected.bytes, &expected.sha256) {
                return Err(BackupError::damaged(format!("{name} is not as it was: its SHA-256 digest differs")));
            }
        }
        if entries.next().is_some() {
            return Err(BackupError::damaged("it has more files than its manifest"));
        }
        // The end of a sealed file shows that nothing was cut off.
        io::copy(&mut contents, &mut io::sink()).map_err(reading)?;
        check_length(contents.bytes, self.length)
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Returns a reader of the tar in a file.
fn contents<'a>(file: &'a File, path: &Path, identities: &[BackupIdentity]) -> Result<Box<dyn Read + 'a>, BackupError> {
    io::Seek::rewind(&mut &*file).map_err(BackupError::io("reading", path))?;
    if identities.is_empty() {
        return Ok(Box::new(file));
    }
    let reader = OpeningReader::new(io::BufReader::with_capacity(1 << 17, file), identities);
    match reader.map_err(BackupError::reading(path))? {
        Some(reader) => Ok(Box::new(reader)),
        None => Err(BackupError::OtherIdentity(path.to_owned())),
    }
}

fn is_sealed(mut file: &File) -> io::Result<bool> {
    let mut beginning = Vec::new();
    file.take(FIRST_LINE.len() as u64).read_to_end(&mut beginning)?;
    io::Seek::rewind(&mut file)?;
    Ok(beginning == FIRST_LINE.as_bytes())
}

fn check_length(found: u64, expected: u64) -> Result<(), BackupError> {
    let kind = match found.cmp(&expected) {
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Less => "truncated",
        std::cmp::Ordering::Greater => "too long",
    };
    Err(BackupError::damaged(format!("it is {kind}: {found} of {expected} bytes")))
}

/// Returns the entries without the interpretation of extended headers, none of which a backup has.
fn raw_entries<R: Read>(archive: &mut Archive<R>) -> io::Result<Entries<'_, R>> {
    Ok(archive.entries()?.raw(true))
}

/// Returns the next entry, which must be a regular file of this name.
fn next_file<'a, R: Read>(entries: &mut Entries<'a, R>, name: &str) -> Result<Entry<'a, R>, String> {
    let entry = entries.next().ok_or_else(|| format!("{name} is missing"))?;
    let entry = entry.map_err(|error| format!("{name} cannot be read: {error}"))?;
    if *entry.path_bytes() != *name.as_bytes() || entry.header().entry_type() != EntryType::Regular {
        return Err(format!("there is something else in the place of {name}"));
    }
    Ok(entry)
}

fn read_small_file<R: Read>(entries: &mut Entries<'_, R>, path: &Path, name: &str) -> Result<Vec<u8>, BackupError> {
    let entry = next_file(entries, name).map_err(|detail| not_a_backup(path, &detail))?;
    let mut bytes = Vec::new();
    let read = entry.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes);
    read.map_err(BackupError::io("reading", path))?;
    Ok(bytes)
}

fn parse_manifest(bytes: &[u8], path: &Path) -> Result<BackupManifest, BackupError> {
    let invalid = |error: serde_json::Error| not_a_backup(path, &format!("its manifest cannot be read: {error}"));
    let ManifestVersion { format, version } = serde_json::from_slice(bytes).map_err(invalid)?;
    let newer = |what, found, known| {
        let version = version.clone();
        if found > known { Err(BackupError::NewerBackup { version, what, found, known }) } else { Ok(()) }
    };
    newer("form", format, FORMAT)?;
    let manifest: BackupManifest = serde_json::from_slice(bytes).map_err(invalid)?;
    newer("schema version", manifest.schema_version, newest_schema_version())?;
    Ok(manifest)
}

/// Returns the name in the list of this program.
fn known_name(name: &str) -> Result<&'static str, BackupError> {
    let known = INSTALLATION_FILES.into_iter().find(|known| *known == name);
    known.ok_or_else(|| BackupError::damaged("its manifest names a file that no backup has"))
}

/// Returns the length of a complete file.
fn expected_length(manifest: &BackupManifest, manifest_bytes: u64, digest_bytes: u64) -> u64 {
    let padded = |bytes: u64| bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).saturating_add(BLOCK_BYTES);
    let files = manifest.files.iter().map(|file| file.bytes);
    let lengths = [manifest_bytes, digest_bytes].into_iter().chain(files);
    lengths.map(padded).fold(END_BYTES, u64::saturating_add)
}

fn not_a_backup(path: &Path, detail: &str) -> BackupError {
    BackupError::NotABackup { file: path.to_owned(), detail: detail.to_owned() }
}
