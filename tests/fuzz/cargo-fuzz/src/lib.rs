//! The functions that the targets of cargo-fuzz call. `tests/fuzz` calls the same functions with mutated inputs.

#[expect(dead_code, reason = "other commands use the other items")]
#[path = "../../../../src/cli/skills/atomic_file.rs"]
mod atomic_file;
#[path = "../../../../src/checkout.rs"]
mod checkout;
#[allow(dead_code, reason = "the tests of the archive reader use the other items")]
#[path = "../../../skills/hostile.rs"]
mod hostile;
#[expect(dead_code, reason = "the transport uses the other items")]
#[path = "../../../../src/gateway/upstream/transport"]
mod http1 {
    mod answer_framing;
    mod answer_head;
    #[path = "../../../../tests/fuzz/http_answers.rs"]
    pub(crate) mod http_answers;
}
#[path = "../../install.rs"]
mod install;
#[path = "../../memory.rs"]
mod memory;
#[path = "../../../../src/cli/skills/install/package_install.rs"]
mod package_install;
#[path = "../../pieces.rs"]
mod pieces;
#[expect(dead_code, reason = "other commands use the other items")]
#[path = "../../../../src/cli/skills/install/skills_folder.rs"]
mod skills_folder;
#[expect(dead_code, unused_imports, reason = "the gateway uses the other items")]
#[path = "../../../../src/stream"]
mod stream {
    pub(crate) mod json;
}
#[path = "../../targets.rs"]
mod targets;
#[path = "../../../../src/cli/skills/install/unpack.rs"]
mod unpack;

/// The module path under which the included files of the program import each other.
mod cli {
    pub(crate) mod skills {
        pub(crate) use crate::atomic_file;
    }
}

use imagate::manifest;

/// Each function panics if the input violates an invariant, and returns whether the code under test accepts the input.
pub const ARCHIVE: fn(&[u8]) -> bool = targets::archive;
pub const FRONT: fn(&[u8]) -> bool = targets::front;
pub const HTTP: fn(&[u8]) -> bool = http1::http_answers::http;
pub const INSTALL: fn(&[u8]) -> bool = install::install;
pub const JSON: fn(&[u8]) -> bool = pieces::json;
pub const MANIFEST: fn(&[u8]) -> bool = targets::manifest;
pub const TAR: fn(&[u8]) -> bool = targets::tar;
pub const ZIP: fn(&[u8]) -> bool = targets::zip;
