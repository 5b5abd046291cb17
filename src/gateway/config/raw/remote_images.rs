//! The settings of images that edits name by a web address, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RawDuration;

/// The web addresses from which the gateway fetches the input images of JSON edits. Without this table, an edit with a
/// web address is refused.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRemoteImages {
    /// The hosts: names such as `images.example.com`, all names below one as `*.example.com`, or `*` for every name.
    /// With a port as `images.example.com:8443`, otherwise port 443. Only `https` addresses are fetched.
    #[schemars(required)]
    pub(crate) hosts: Option<Vec<String>>,
    /// Networks to which such a name may resolve besides the public Internet, such as `10.1.0.0/16`. Default: none, so
    /// a name cannot lead to a machine of a private network.
    pub(crate) networks: Option<Vec<String>>,
    /// The time limit for fetching the images of one request, with all redirects. Default: `30s`.
    pub(crate) timeout: Option<RawDuration>,
}
