//! What cargo-fuzz calls: the same functions that every run of the tests tries with changed bytes.

#[path = "../../../../src/checkout.rs"]
mod checkout;
#[path = "../../../../src/cli/skills/atomic_file.rs"]
mod atomic_file;
#[allow(dead_code, reason = "the tests of the reader use the rest")]
#[path = "../../../skills/hostile.rs"]
mod hostile;
#[path = "../../install.rs"]
mod install;
#[path = "../../memory.rs"]
mod memory;
#[path = "../../../../src/cli/skills/install/skills_folder.rs"]
mod skills_folder;
#[path = "../../../../src/cli/skills/install/package_install.rs"]
mod package_install;
#[path = "../../targets.rs"]
mod targets;
#[path = "../../../../src/cli/skills/install/unpack.rs"]
mod unpack;

/// Where the files of the program look for each other.
mod cli {
    pub(crate) mod skills {
        pub(crate) use crate::atomic_file;
    }
}

use imagate::manifest;

/// Each of them panics where something does not hold that must hold of any input, and says whether it was let in.
pub const ARCHIVE: fn(&[u8]) -> bool = targets::archive;
pub const FRONT: fn(&[u8]) -> bool = targets::front;
pub const INSTALL: fn(&[u8]) -> bool = install::install;
pub const MANIFEST: fn(&[u8]) -> bool = targets::manifest;
pub const TAR: fn(&[u8]) -> bool = targets::tar;
pub const ZIP: fn(&[u8]) -> bool = targets::zip;
