//! The identifiers that land in rows. Each is its own type, so that two of them cannot be mixed up.

use std::fmt;

use serde::{Serialize, Serializer};

use super::StoreError;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// 20 characters of base62 are 119 bits.
const RANDOM_LENGTH: usize = 20;

macro_rules! identifier {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(String);

        impl $name {
            /// The identifier as it is stored and printed.
            pub(crate) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
    ($(#[$attribute:meta])* $name:ident, $prefix:literal) => {
        identifier!($(#[$attribute])* $name);

        impl $name {
            /// A new one that nobody can guess.
            pub(crate) fn random() -> Result<Self, StoreError> {
                let letters = random_base62::<RANDOM_LENGTH>()?;
                Ok(Self(format!(concat!($prefix, "{}"), String::from_utf8_lossy(&letters))))
            }
        }
    };
}

identifier!(
    /// A user, `usr_…`.
    UserId,
    "usr_"
);
identifier!(
    /// A group, `grp_…`.
    GroupId,
    "grp_"
);
identifier!(
    /// A key, `key_…`.
    KeyId,
    "key_"
);
identifier!(
    /// A session of somebody who signed in, `ses_…`. It opens nothing.
    SessionId,
    "ses_"
);
identifier!(
    /// An admin token, `tok_…`. It opens nothing.
    TokenId,
    "tok_"
);
identifier!(
    /// An upstream account, `acc_…`.
    AccountId,
    "acc_"
);
identifier!(
    /// The part of a secret that may be seen: logs and pages show it.
    PublicId
);
identifier!(
    /// One request, as the front numbered it. Never taken from a caller.
    RequestId
);
identifier!(
    /// One process that serves. Only it may close what it has opened, until it is gone.
    NodeId
);

impl UserId {
    /// The owner of keys that belong to no person yet. No user can be found by this id, and the first admin receives
    /// its keys.
    pub(crate) const NOBODY: &str = "usr_nobody";

    /// True for [`UserId::NOBODY`].
    pub(crate) fn is_nobody(&self) -> bool {
        self.0 == Self::NOBODY
    }
}

impl NodeId {
    /// The only node of a database that no second server may use.
    pub(crate) fn only() -> Self {
        Self("only".to_owned())
    }
}

/// Letters and digits from the system's generator, each equally likely.
pub(crate) fn random_base62<const N: usize>() -> Result<[u8; N], StoreError> {
    // 248 is the largest multiple of 62 that a byte can hold: what lies above would favour the first letters.
    const FAIR: u8 = 248;
    let mut letters = [0; N];
    let mut filled = 0;
    while filled < N {
        let mut bytes = [0; 64];
        fill_random(&mut bytes)?;
        for byte in bytes.into_iter().filter(|byte| *byte < FAIR).take(N - filled) {
            letters[filled] = BASE62[usize::from(byte % 62)];
            filled += 1;
        }
    }
    Ok(letters)
}

/// Bytes from the system's generator.
pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

fn fill_random(bytes: &mut [u8]) -> Result<(), StoreError> {
    getrandom::fill(bytes).map_err(|source| StoreError::Unavailable {
        doing: "asking the system for random bytes",
        source: source.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_says_what_it_identifies() {
        let id = KeyId::random().unwrap();
        assert!(id.as_str().starts_with("key_"));
        assert_eq!(id.as_str().len(), 4 + RANDOM_LENGTH);
        assert_ne!(id, KeyId::random().unwrap());
    }

    #[test]
    fn every_letter_turns_up_about_equally_often() {
        let letters = random_base62::<62_000>().unwrap();
        for letter in BASE62 {
            let count = letters.iter().filter(|other| *other == letter).count();
            // 1000 expected, standard deviation 31: seven of them either way.
            assert!((780..1220).contains(&count), "{} came {count} times", char::from(*letter));
        }
    }
}
