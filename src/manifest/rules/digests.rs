//! Rules about checksums and sizes as they are written.

use super::rules;

rules! {
    M040 "sha256-form" Static Warning
    "`sha256` is 64 hexadecimal digits in small letters."
    "The checksum is what makes a package safe to install. In another form no installer can compare it: it has no \
     `sha256:` in front, no capital letters and no base64. `sha256sum FILE` prints it as it should be."

    M041 "sha256-of-nothing" Static Warning
    "`sha256` is not a placeholder."
    "64 zeros, or the checksum of the empty file, are what a script writes when it hashed nothing. Hash the package as \
     it is served."

    M042 "size" Static Warning
    "`size_bytes` is a whole number of bytes, and not more than a package may have."
    "Installers reserve and limit by this size before they download. It is written as digits alone, `1024` rather \
     than `1.024e3`, is at least 1, and at most 10 MiB, which is as much as registries of Agent Skills take."

    M043 "shared-package" Static Warning
    "No two skills share a package."
    "A package holds one skill of one version, under its own name. If two entries name one package, at least one of \
     them installs something else than it says."

    M044 "shared-digest" Static Warning
    "No two packages have one checksum."
    "Two packages with one checksum have the same content, so one of two skills, or one of two versions, is a copy of \
     the other. Most often the path was changed in an entry and the checksum was not."

    M045 "contradicting-package" Static Error
    "Entries that share a package agree on its checksum and size."
    "One file has one checksum and one size. It is an error because it makes an install ambiguous: at least one of the entries \
     is not the package that it names, and which one, nobody can say without the file; a host that answers with two files \
     satisfies both. Hash the package again, and correct both."
}
