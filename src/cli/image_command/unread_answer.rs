//! An answer that is not understood, although it may have been paid for: it is kept in a file.

use std::path::Path;

use crate::cli::output::print_message;
use crate::client::{self, Error, ErrorKind};

/// Writes the answer of an error that states that it is not understood, beside the file of its image, and prints where.
pub(in crate::cli) fn keep(error: &Error, image_path: &Path) {
    let Some(answer) = error.body().filter(|_| error.kind() == ErrorKind::Unintelligible) else { return };
    // The name has no extension of an image, so that nothing takes the file for one.
    let path = image_path.with_extension("answer.txt");
    print_message(&match client::write_new_file(&path, answer.as_bytes()) {
        Ok(path) => format!("note: the answer may hold an image that was paid for; it is in {}", path.display()),
        Err(error) => format!("note: the answer cannot be kept in {}: {error}", path.display()),
    });
}
