//! An answer that is not understood, although it may have been paid for: it is kept in a file.

use std::path::Path;

use crate::cli::output::print_message;
use crate::client::{self, Error, ErrorKind, Image};

/// If an error says that its answer is not understood, writes the answer beside the file of its image, and prints where.
pub(in crate::cli) fn keep(error: &Error, image_path: &Path) {
    if let Some(answer) = error.body().filter(|_| error.kind() == ErrorKind::Unintelligible) {
        keep_text(answer, image_path);
    }
}

/// Returns true if the bytes of an image are in the answer, in a form that is not understood.
pub(in crate::cli) fn is_undecodable(error: &Error, image: &Image) -> bool {
    error.kind() == ErrorKind::Unintelligible && !image.base64().is_empty()
}

/// Writes an answer beside the file of its image, or else to the temporary folder of the system, and prints where.
pub(in crate::cli) fn keep_text(answer: &str, image_path: &Path) {
    // The name has no extension of an image, so that nothing takes the file for one.
    let path = image_path.with_extension("answer.txt");
    let written = client::write_new_file(&path, answer.as_bytes())
        .or_else(|_| client::write_new_file(&std::env::temp_dir().join("imagate.answer.txt"), answer.as_bytes()));
    print_message(&match written {
        Ok(path) => format!("note: the answer may hold an image that was paid for; it is in {}", path.display()),
        Err(error) => format!("note: the answer cannot be kept in {}: {error}", path.display()),
    });
}
