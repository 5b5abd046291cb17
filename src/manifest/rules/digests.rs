//! Rules about checksums and sizes as the manifest states them, without a look at the packages.

use super::rules;

rules! {
    M040 "sha256-form" Static Warning
    "`sha256` is 64 hexadecimal digits in lower case."
    "The checksum is what makes a package safe to install. Installers can compare it only in this form: without \
     `sha256:` in front, capital letters or base64. `sha256sum FILE` prints it in the right form."

    M041 "sha256-of-nothing" Static Warning
    "`sha256` is not a placeholder."
    "64 zeros, or the checksum of the empty file, are the output of a script that hashed nothing. Calculate the \
     checksum of the package as the host serves it."

    M042 "size" Static Warning
    "`size_bytes` is a whole number of bytes, and at most the maximum size of a package."
    "Installers reserve space and limit the download by this size. Write it with digits only: `1024`, not `1.024e3`. \
     It is at least 1 and at most 10 MiB, the limit of the registries of Agent Skills."

    M043 "shared-package" Static Warning
    "No two skills share a package."
    "A package contains one skill in one version, under its own name. If two entries name one package, at least one \
     of them installs something other than it states."

    M044 "shared-digest" Static Warning
    "No two packages have the same checksum."
    "Two packages with the same checksum have the same content, so one of two skills, or one of two versions, is a \
     copy of the other. The usual reason is an entry in which the path was changed and the checksum was not."

    M045 "contradicting-package" Static Error
    "Entries that share a package agree on its checksum and size."
    "One file has one checksum and one size. It is an error because it makes an installation ambiguous: at least one \
     of the entries does not describe the package that it names, and only the file itself shows which one; a host \
     that answers with two files satisfies both. Calculate the checksum again, and correct both entries."
}
