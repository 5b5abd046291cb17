//! Rules about paths as the manifest states them, without a look at the files.

use super::rules;

rules! {
    M050 "path-outside" Static Error
    "No path leads out of the repository."
    "A path starts at the root of the repository. `..`, a leading `/`, a drive such as `C:` and an address lead out \
     of it; so do `%2e%2e` and `\\\\`, which browsers and Windows treat alike. It is an error because it makes an \
     installation unsafe: a program that appends such a path to a folder or an address reads, writes or downloads \
     something that was not reviewed here."

    M051 "path-form" Static Warning
    "Paths are plain: `/` between parts, no empty part, no `.`, no percent escapes."
    "`skills//a/./b`, `skills\\\\a` and `skills%2Fa` name a file on some systems and not on others, and two spellings \
     of one path cannot be compared. A folder has no `/` at its end, an empty path names nothing, and shells expand \
     `~` to a home folder."

    M052 "path-portable" Static Warning
    "Every part of a path is a valid file name on every system."
    "Windows allows no files named `con`, `nul` or `com1`, whatever their extension, no names that end with a dot or \
     a space, and no names with control characters or one of `<>:\"|?*`. A repository with such a path cannot be \
     cloned there."

    M053 "path-unicode" Static Warning
    "Paths are in Unicode normal form C."
    "`é` can be written as one character or as two. macOS, Linux and git disagree about the form of a file name, so a \
     path in the other form is not found. Write it in normal form C."

    M054 "path-length" Static Warning
    "No part of a path is longer than 255 bytes, and no path is longer than 1,024 bytes."
    "Most file systems accept no longer names, so the repository cannot be cloned, and the skill cannot be unpacked \
     there. Shorten the names of folders and files."

    M055 "package-type" Static Warning
    "Packages are `.zip`, `.tar.gz` or `.tgz` files."
    "Installers recognize the format of a package by the extension of its file name. No installer understands other \
     extensions."

    M056 "package-name" Static Warning
    "The file name of a package is its skill's name and version."
    "`image-generation-1.2.0.zip` identifies its content wherever it is downloaded to, and a new version never \
     overwrites an old one in a cache. If the name has no version, readers keep a package that has changed."

    M057 "path-case" Static Warning
    "No two paths differ only in case or Unicode form."
    "On file systems that ignore case, both are the same file, and one of them is lost when the repository is cloned."
}
