//! `imagate openapi`

use clap::{Args, ValueEnum};

use super::failure::Failure;
use super::output::print;
use crate::tables;

/// Arguments of `openapi`.
#[derive(Debug, Args)]
pub(super) struct OpenApi {
    /// Which document.
    #[arg(value_enum, default_value_t = Document::Gateway)]
    document: Document,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Document {
    /// The API of the callers.
    Gateway,
    /// The API of the operators.
    Admin,
}

// === impl OpenApi ===

impl OpenApi {
    pub(super) fn run(self) -> Result<(), Failure> {
        let text = match self.document {
            Document::Gateway => tables::OPENAPI,
            Document::Admin => tables::ADMIN_OPENAPI,
        };
        Ok(print(text)?)
    }
}
