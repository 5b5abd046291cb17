//! Rules about paths as they are written.

use super::rules;

rules! {
    M050 "path-outside" Static Error
    "No path leads out of the repository."
    "A path starts at the root of the repository. `..`, a leading `/`, a drive such as `C:` and an address lead out of it; \
     `%2e%2e` and `\\\\` count as well, for browsers and Windows take them for the same. It is an error because it makes an \
     install unsafe: who joins such a path to a folder or to an address reads, writes or downloads elsewhere, whatever \
     was reviewed here."

    M051 "path-form" Static Warning
    "Paths are plain: `/` between parts, no empty part, no `.`, no escapes."
    "`skills//a/./b`, `skills\\\\a` and `skills%2Fa` name a file on some systems and not on others, and two spellings of \
     one path cannot be compared. A folder has no `/` at its end, an empty path names nothing, and shells take `~` for a \
     home folder."

    M052 "path-portable" Static Warning
    "Every part of a path can be a file on every system."
    "Windows has no files named `con`, `nul` or `com1`, with any ending, none that end with a dot or a blank, and none \
     with control characters or one of `<>:\"|?*`. A repository with such a path cannot be cloned there."

    M053 "path-unicode" Static Warning
    "Paths are in Unicode normal form C."
    "`é` can be written as one character or as two. macOS, Linux and git disagree on which of them a file has, so a \
     path in the other form is not found. Write it in normal form C."

    M054 "path-length" Static Warning
    "No part of a path is longer than 255 bytes, and no path than 1,024."
    "Most file systems take no longer names, so the repository cannot be cloned, nor the skill unpacked there. Shorten \
     the names of folders and files."

    M055 "package-type" Static Warning
    "Packages are `.zip`, `.tar.gz` or `.tgz` files."
    "Installers choose how to unpack by the ending of the name. Others are not understood by any of them."

    M056 "package-name" Static Warning
    "The file name of a package is its skill's name and version."
    "`image-generation-1.2.0.zip` says what it is wherever it is downloaded to, and a new version never overwrites \
     an old one in a cache. A name without version makes readers keep a package that has changed."

    M057 "path-case" Static Warning
    "No two paths differ only in case or Unicode form."
    "On file systems that ignore case, both are the same file, and one of them is lost when the repository is cloned."
}
