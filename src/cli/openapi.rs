//! The command `imagate openapi`.

use clap::{Args, ValueEnum};

use super::failure::CommandFailure;
use super::output::print;
use crate::tables;

/// Arguments of `openapi`.
#[derive(Debug, Args)]
pub(super) struct OpenApiCommand {
    /// The document to print.
    #[arg(value_enum, default_value_t = ApiDocument::Gateway)]
    document: ApiDocument,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ApiDocument {
    /// The API of the callers.
    Gateway,
    /// The admin API.
    Admin,
}

// === impl OpenApiCommand ===

impl OpenApiCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let text = match self.document {
            ApiDocument::Gateway => tables::OPENAPI,
            ApiDocument::Admin => tables::ADMIN_OPENAPI,
        };
        Ok(print(text)?)
    }
}
