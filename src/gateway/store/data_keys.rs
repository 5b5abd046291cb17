//! The data keys, which seal secrets and hash API keys. They are random, are stored in the database wrapped by the
//! master key, and never change: a new master key only wraps them again.

use super::secret_bytes::{KEY_LENGTH, SecretBytes};
use super::{MasterKey, StoreError, Vault};

/// The purposes of the keys, as their rows name them.
pub(super) const VAULT: &str = "vault";
pub(super) const PEPPER: &str = "pepper";

/// The key under which API keys are hashed.
#[derive(Debug)]
pub(crate) struct PepperKey(SecretBytes);

impl PepperKey {
    /// Returns the bytes for the hash. They must not appear in a log or a row.
    pub(crate) fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    #[cfg(test)]
    pub(crate) fn for_test(byte: u8) -> Self {
        Self(SecretBytes::new([byte; KEY_LENGTH]))
    }
}

/// Every data key of an installation.
#[derive(Debug)]
pub(super) struct DataKeys {
    vault: SecretBytes,
    pepper: SecretBytes,
}

impl DataKeys {
    /// Makes the keys of a new installation.
    pub(super) fn random() -> Result<Self, StoreError> {
        Ok(Self { vault: SecretBytes::random()?, pepper: SecretBytes::random()? })
    }

    /// Returns each purpose with its wrapped key.
    pub(super) fn wrap(&self, master: &MasterKey) -> Result<[(&'static str, Vec<u8>); 2], StoreError> {
        let wrapping = master.wrapping_vault()?;
        Ok([
            (VAULT, wrapping.seal(&sealing_context(VAULT), self.vault.expose())?),
            (PEPPER, wrapping.seal(&sealing_context(PEPPER), self.pepper.expose())?),
        ])
    }

    /// Returns the keys, or `None` if this master key cannot unwrap them.
    pub(super) fn unwrap(master: &MasterKey, wrapped: &WrappedDataKeys) -> Result<Option<Self>, StoreError> {
        let wrapping = master.wrapping_vault()?;
        let open = |purpose, sealed: &[u8]| {
            let mut plain = wrapping.try_open(&sealing_context(purpose), sealed)?;
            let key = <[u8; KEY_LENGTH]>::try_from(plain.as_slice()).ok().map(SecretBytes::new);
            plain.fill(0);
            key
        };
        let keys = open(VAULT, &wrapped.vault).zip(open(PEPPER, &wrapped.pepper));
        Ok(keys.map(|(vault, pepper)| Self { vault, pepper }))
    }

    /// Returns the keys as the types that use them.
    pub(super) fn into_parts(self) -> Result<(Vault, PepperKey), StoreError> {
        Ok((Vault::new(&self.vault)?, PepperKey(self.pepper)))
    }
}

/// The data keys as they are stored in the database.
#[derive(Debug)]
pub(super) struct WrappedDataKeys {
    pub(super) vault: Vec<u8>,
    pub(super) pepper: Vec<u8>,
}

fn sealing_context(purpose: &str) -> String {
    format!("data key {purpose}")
}
