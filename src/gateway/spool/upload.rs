//! What a form brought: its fields, and its images as files.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Spooled;
use crate::image::{Flaw, Header, inspect};

/// The form of an edit, whichever way it was encoded. The rules judge it.
#[derive(Debug)]
pub(crate) struct EditForm {
    /// What is no image, as JSON.
    pub(crate) fields: Map<String, Value>,
    /// At least one, and at most as many as an edit may have, in the caller's order.
    pub(crate) images: Vec<Upload>,
    /// The mask, where there is one.
    pub(crate) mask: Option<Upload>,
}

/// One image as it came.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    /// As the caller spelled it: `image`, `image[]`, `images[0].image_url`, `mask`.
    pub(crate) param: String,
    /// Its bytes.
    pub(crate) file: Arc<Spooled>,
    /// What its first bytes tell, or what is wrong with them.
    pub(crate) header: Result<Header, Flaw>,
}

// === impl Upload ===

impl Upload {
    /// Looks at what has come. Blocks: not for async code.
    pub(crate) fn new(param: impl Into<String>, file: Arc<Spooled>) -> Self {
        let header = inspect(&*file);
        Self { param: param.into(), file, header }
    }
}
