//! The secrets of an account as arguments: each argument names the source of a secret and never holds the secret
//! itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::failure::CommandFailure;
use crate::cli::secret;

/// The sources of the secrets of an account.
#[derive(Debug, Args)]
pub(super) struct AccountSecretArgs {
    /// The environment variable that holds the upstream's API key.
    #[arg(long, value_name = "NAME", conflicts_with = "api_key_file")]
    api_key_env: Option<String>,
    /// The file that holds the upstream's API key; `-` is standard input.
    #[arg(long, value_name = "PATH")]
    api_key_file: Option<PathBuf>,
    /// The environment variable that holds the OAuth client secret.
    #[arg(long, value_name = "NAME", conflicts_with = "client_secret_file")]
    client_secret_env: Option<String>,
    /// The file that holds the client secret; `-` is standard input.
    #[arg(long, value_name = "PATH")]
    client_secret_file: Option<PathBuf>,
    /// The environment variable that holds the initial refresh token.
    #[arg(long, value_name = "NAME", conflicts_with = "refresh_token_file")]
    refresh_token_env: Option<String>,
    /// The file that holds the initial refresh token; `-` is standard input.
    #[arg(long, value_name = "PATH")]
    refresh_token_file: Option<PathBuf>,
}

// === impl AccountSecretArgs ===

impl AccountSecretArgs {
    /// Reads the secrets whose sources were given. The keys of the map are the names of the settings.
    pub(super) fn read_secrets(&self) -> Result<BTreeMap<String, String>, CommandFailure> {
        let sources = [
            ("api_key", &self.api_key_env, &self.api_key_file),
            ("client_secret", &self.client_secret_env, &self.client_secret_file),
            ("refresh_token", &self.refresh_token_env, &self.refresh_token_file),
        ];
        let from_stdin = sources.iter().filter(|(_, _, file)| file.as_deref() == Some(Path::new(secret::STDIN)));
        if from_stdin.count() > 1 {
            return Err(CommandFailure::Usage("only one secret can be read from standard input".to_owned()));
        }
        let mut secrets = BTreeMap::new();
        for (field, variable, file) in sources {
            if let Some(secret) = secret::read_secret(&format!("`{field}`"), variable.as_deref(), file.as_deref())? {
                secrets.insert(field.to_owned(), secret);
            }
        }
        Ok(secrets)
    }
}
