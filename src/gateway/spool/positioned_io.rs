//! Reads and writes at an offset, independent of the position of the file, which all its handles share.

use std::fs::File;
use std::io;
#[cfg(unix)]
use std::os::unix::fs::FileExt as _;
#[cfg(windows)]
use std::os::windows::fs::FileExt as _;

#[cfg(unix)]
use super::blocking_io;

#[cfg(unix)]
pub(crate) fn read(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    blocking_io::note_disk_access();
    file.read_at(buffer, offset)
}

/// Reads bytes that are in the cache of the system, without waiting for a disk.
#[cfg(target_os = "linux")]
pub(super) fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> Option<usize> {
    let mut buffers = [io::IoSliceMut::new(buffer)];
    rustix::io::preadv2(file, &mut buffers, offset, rustix::io::ReadWriteFlags::NOWAIT).ok()
}

/// Other systems cannot tell: every read goes to a thread that may block.
#[cfg(not(target_os = "linux"))]
pub(super) fn read_cached(_: &File, _: &mut [u8], _: u64) -> Option<usize> {
    None
}

/// Fills the whole buffer.
///
/// # Errors
///
/// Returns an error if the file ends before, or if the disk fails.
pub(crate) fn read_exact(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(file, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(unix)]
pub(crate) fn write_all(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    blocking_io::note_disk_access();
    file.write_all_at(bytes, offset)
}

#[cfg(windows)]
pub(crate) fn read(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buffer, offset)
}

#[cfg(windows)]
pub(crate) fn write_all(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = file.seek_write(bytes, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[count..];
        offset += count as u64;
    }
    Ok(())
}
