//! The identifiers that are stored in rows. Each is a type of its own, so that the compiler rejects a mix-up.

use std::fmt;

use serde::{Serialize, Serializer};

use super::StoreError;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The number of random characters (our choice). 20 characters of base62 have 119 bits of entropy.
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
            /// Makes a new id that cannot be guessed.
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
    /// A session of a signed-in user, `ses_…`. The id gives no access.
    SessionId,
    "ses_"
);
identifier!(
    /// An admin token, `tok_…`. The id gives no access.
    TokenId,
    "tok_"
);
identifier!(
    /// An upstream account, `acc_…`.
    AccountId,
    "acc_"
);
identifier!(
    /// The visible part of a secret. Logs and pages show it.
    PublicId
);
identifier!(
    /// The id of one request, given by the front end. It is never taken from a caller.
    RequestId
);
identifier!(
    /// The id of a serving node, which its next process has again. As long as a process of the node lives, only that
    /// process may close the records of the node.
    NodeId, "node_"
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
    /// Returns the id of the node of a database that only one server may use.
    pub(crate) fn only() -> Self {
        Self("only".to_owned())
    }
}

/// Returns letters and digits from the system's random generator, each equally likely.
pub(crate) fn random_base62<const N: usize>() -> Result<[u8; N], StoreError> {
    // The largest multiple of 62 up to 256. Bytes from here on would favour the first characters.
    const UNBIASED_END: u8 = 248;
    let mut letters = [0; N];
    let mut filled = 0;
    while filled < N {
        let mut bytes = [0; 64];
        fill_random(&mut bytes)?;
        for byte in bytes.into_iter().filter(|byte| *byte < UNBIASED_END).take(N - filled) {
            letters[filled] = BASE62[usize::from(byte % 62)];
            filled += 1;
        }
    }
    Ok(letters)
}

/// Returns bytes from the system's random generator.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], StoreError> {
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
    fn an_id_has_the_prefix_of_its_kind() {
        let id = KeyId::random().unwrap();
        assert!(id.as_str().starts_with("key_"));
        assert_eq!(id.as_str().len(), 4 + RANDOM_LENGTH);
        assert_ne!(id, KeyId::random().unwrap());
    }

    #[test]
    fn all_characters_are_about_equally_frequent() {
        let letters = random_base62::<62_000>().unwrap();
        for letter in BASE62 {
            let count = letters.iter().filter(|drawn| *drawn == letter).count();
            // The expected count is 1000 and the standard deviation 31; the range is seven deviations in each
            // direction.
            assert!((780..1220).contains(&count), "{} occurs {count} times", char::from(*letter));
        }
    }
}
