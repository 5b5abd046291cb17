//! The ids of images in tool calls, and the idempotency keys of the calls that make them.
//!
//! Both contain the same digest of the call, so an id leads back to the stored answer of its call. An id need not be
//! secret: the stored answer belongs to one API key, and no other key finds it.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256};

use super::arguments::ToolArguments;

/// The number of bytes of a digest that an id keeps (our choice). Two of a billion calls of one key are mixed up with a
/// probability of one in 10^11.
const DIGEST_BYTES: usize = 12;
const PREFIX: &str = "img_";

/// The digest of a tool call that makes images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallDigest([u8; DIGEST_BYTES]);

/// The id of an image that a tool call has made, such as `img_0123456789abcdef01234567_0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageId {
    /// The call that made the image.
    pub(super) call: CallDigest,
    /// The index of the image in the answer, from 0.
    pub(super) index: u8,
}

/// The text is not the id of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidImageId;

// === impl CallDigest ===

impl CallDigest {
    /// Returns the digest of a call of this tool. The order of the arguments, and arguments that are `null`, make no
    /// difference.
    pub(super) fn of(tool: &str, arguments: &ToolArguments) -> Self {
        let mut context = Context::new(&SHA256);
        let mut update = |part: &str| {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        };
        update("imagate mcp call v1");
        update(tool);
        for (name, value) in arguments.sorted() {
            update(name);
            update(&value.to_string());
        }
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&context.finish().as_ref()[..DIGEST_BYTES]);
        Self(digest)
    }

    /// Returns the idempotency key of the call.
    pub(super) fn idempotency_key(self) -> String {
        format!("mcp-{self}")
    }

    /// Returns the id of the image with this index in the answer to the call.
    pub(super) fn image(self, index: u8) -> ImageId {
        ImageId { call: self, index }
    }
}

impl fmt::Display for CallDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

// === impl ImageId ===

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_{}", self.call, self.index)
    }
}

impl FromStr for ImageId {
    type Err = InvalidImageId;

    fn from_str(text: &str) -> Result<Self, InvalidImageId> {
        let (digest, index) = text.strip_prefix(PREFIX).and_then(|text| text.split_once('_')).ok_or(InvalidImageId)?;
        let is_digest = digest.len() == 2 * DIGEST_BYTES && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_digest {
            return Err(InvalidImageId);
        }
        let mut bytes = [0; DIGEST_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digest.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| InvalidImageId)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidImageId)?;
        }
        Ok(Self { call: CallDigest(bytes), index: index.parse().map_err(|_| InvalidImageId)? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn digest(tool: &str, arguments: &Value) -> CallDigest {
        CallDigest::of(tool, &ToolArguments::new(arguments.as_object().cloned()))
    }

    #[test]
    fn only_calls_with_equal_arguments_have_the_same_digest() {
        let call = digest("generate_image", &json!({"prompt": "a cube", "size": "1024x1024"}));
        let same = json!({"size": "1024x1024", "model": null, "prompt": "a cube"});
        assert_eq!(digest("generate_image", &same), call);
        for (tool, other) in [
            ("edit_image", json!({"prompt": "a cube", "size": "1024x1024"})),
            ("generate_image", json!({"prompt": "a cube"})),
            ("generate_image", json!({"prompt": "a cube", "size": "1024x1024", "variation": "2"})),
            ("generate_image", json!({"prompt": "a cubesize", "": "1024x1024"})),
        ] {
            assert_ne!(digest(tool, &other), call, "{other}");
        }
    }

    #[test]
    fn an_id_leads_back_to_its_call() {
        let call = digest("generate_image", &json!({"prompt": "a cube"}));
        let id = call.image(3);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(call.idempotency_key().ends_with(&id.to_string()[PREFIX.len()..PREFIX.len() + 2 * DIGEST_BYTES]));
        for invalid in ["", "img_", "img_00_0", "img_0123456789abcdef0123456g_0", "img_0123456789abcdef01234567_256"] {
            assert_eq!(invalid.parse::<ImageId>(), Err(InvalidImageId), "{invalid}");
        }
        assert_eq!("img_+123456789abcdef01234567_0".parse::<ImageId>(), Err(InvalidImageId), "a sign is no digit");
    }
}
