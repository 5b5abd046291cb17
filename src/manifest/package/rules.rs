//! The rules about the checkout and the packages.

use crate::manifest::rules::rules;

rules! {
    M070 "skill-folder" Repository Error
    "`path` is a folder of the repository with a `SKILL.md`."
    "People and agents use `path` to read a skill without its package. If the folder was moved or renamed, the entry \
     leads nowhere. Run `imagate skills build`, which writes the current paths."

    M071 "package-missing" Repository Error
    "`package` is a file of the repository."
    "Installers download this file; without it there is nothing to install. It must be a regular file, committed \
     beside the manifest. `imagate skills build` makes the packages that are missing."

    M072 "package-size" Repository Error
    "`size_bytes` is the size of the package."
    "Installers stop a download that is longer than this, and recognize a truncated download by it. A difference \
     means that the package is not the one of the manifest. Do not write the size by hand: `imagate skills build` \
     measures the file."

    M073 "package-digest" Repository Error
    "`sha256` is the checksum of the package."
    "The checksum identifies the package that was reviewed: installers refuse a package with another checksum. A \
     difference means that the package was changed after the manifest was made, or never belonged to it. Publish \
     changed content as a new version with `imagate skills build`."

    M074 "symbolic-link" Repository Error
    "No path leads through a symbolic link, and a skill contains none."
    "Raw hosts serve the text of a link and not the file that it points to, and a link may point out of the \
     repository. Readers then get something other than the files that were checked here. Replace the link by a copy \
     of the file."

    M075 "not-committed" Repository Warning
    "Packages are committed as they are, not as pointers of Git LFS."
    "A raw host serves what is committed. It does not serve a file that is not tracked, and for a file in Git LFS it \
     serves only the pointer, a text of three lines. Add the file to the repository itself: `git lfs untrack` and \
     `git add`."

    M076 "path-spelling" Repository Error
    "Paths have the same spelling and case as the files."
    "Windows and macOS find `Skills/Demo` for `skills/demo`; raw hosts and Linux do not. The manifest then works on \
     the machine of its author and not elsewhere. Spell the path as the folder listing does."

    M077 "unlisted-skill" Repository Warning
    "Every skill of the folders that the manifest uses is in the manifest."
    "A folder with a `SKILL.md` beside those of published skills is most likely a skill that was left out by mistake. \
     Run `imagate skills build`, or move drafts to another folder."

    M078 "unlisted-package" Repository Note
    "Every package of the folders that the manifest uses is in the manifest."
    "Packages of older versions may stay for users who have pinned them; others are leftovers that only make the \
     repository larger. Installers are not affected in either case."

    M079 "document-missing" Repository Warning
    "`apis[].path` is a file of the repository."
    "Agents read the catalogue of API references and fetch each path from the raw host. If the file is missing, they \
     get an error. Correct the path, or remove the entry."

    M080 "archive-unreadable" Package Error
    "The package is a complete zip or gzipped tar."
    "The file cannot be read: it is truncated, damaged, encrypted, or packed with a method that only some programs \
     support. `imagate skills build` writes a plain zip that every program opens."

    M081 "archive-limits" Package Error
    "The package is within the limits of size, number and depth."
    "A package has at most 10 MiB, 10,000 entries, 500 MiB unpacked, files of 100 MiB, 8 levels of folders, and is \
     unpacked at most 100 times larger than packed. These are the limits of public registries; an archive beyond them \
     can be an attempt to fill disks. Leave out the files that agents do not read."

    M082 "archive-path" Package Error
    "Every path in the package stays inside the folder of the skill and is valid on every system."
    "An absolute path, `..`, a drive letter or a backslash can write outside of the folder of the skill; a device \
     name, a colon or a dot at the end names another file on Windows. Rename the file, or pack with `imagate skills \
     build`, which refuses such names."

    M083 "archive-collision" Package Error
    "No two entries of the package are the same file."
    "If a path occurs twice, one program keeps the first file and another the last. Paths that differ only in case or \
     in the composition of letters are two files on Linux and one on Windows and macOS. Rename one of them."

    M084 "archive-kind" Package Error
    "The package contains only regular files and folders."
    "A link can redirect a later entry to another place, a device or a pipe can block the program that reads it, and \
     a set-user-id bit grants rights. A skill needs none of them. Replace links by copies of the files."

    M085 "archive-ambiguous" Package Error
    "All programs unpack the same files from the package."
    "Bytes before, between or after the entries, headers that disagree with the directory, overlapping entries or two \
     directories can show other content to a scanner than to an installer. Pack the folder again with `imagate skills \
     build`."

    M086 "package-layout" Package Error
    "`SKILL.md` is at the root of the package, or in its one folder."
    "Installers look for `SKILL.md` at the root of the archive, or in one folder that holds everything and has the \
     name of the skill. They do not find it elsewhere; if there are two, chance decides which skill is installed."

    M087 "front-matter" Package Error
    "`SKILL.md` begins with front matter that Agent Skills can read."
    "Agents load `name` and `description` of every skill at start, and leave out a skill whose front matter cannot be \
     read, without a message. `name` has at most 64 lower-case letters, digits and single hyphens and is the name of \
     the folder; `description` has 1 to 1024 characters. `metadata` maps texts to texts: agents interpret a mapping \
     or a list there in different ways, or leave out the whole skill. Write such a value as one text."

    M088 "entry-differs" Package Error
    "`name` and `version` are those of the package's `SKILL.md`."
    "If the entry and the skill have different names, an installer installs something other than requested. `version` \
     is compared with `metadata.version` of the front matter, if that is present. `imagate skills build` takes both \
     from there."

    M089 "description-differs" Package Warning
    "`description` is that of the package's `SKILL.md`."
    "People choose a skill by its description in the manifest, and agents by that in its `SKILL.md`. Two descriptions \
     drift apart over time. `imagate skills build` takes the description from the front matter."

    M090 "content-differs" Package Error
    "The package contains the same files as the folder of the skill."
    "The files that people review in the repository must be the files that agents install. A difference means that \
     the skill was changed and not published, or that the package contains files that reviewers do not see. Raise \
     `metadata.version` and run `imagate skills build`."

    M091 "secret-file" Package Error
    "The package contains no files with secrets."
    "Keys, `.env` files and credentials of tools get into packages by mistake, and cannot be withdrawn after \
     publication. Remove the file, publish a new version, and replace the secret itself."

    M092 "junk-file" Package Warning
    "The package contains no leftovers of systems, editors and tools."
    "`.DS_Store`, `__MACOSX`, `Thumbs.db`, `__pycache__` and copies of editors make packages larger and different on \
     every machine. `imagate skills build` leaves them out."

    M093 "broken-link" Package Warning
    "Links of `SKILL.md` to files lead to files of the package."
    "Agents follow relative links to read more. A link to a file that is not in the package ends in an error in the \
     middle of a task. Correct the link, or put the file into the folder."

    M094 "program-file" Package Off
    "Executable files in the package are known."
    "Lists the executable files for the review of a package: an agent may start them on the machine of its user. The \
     rule is off unless you switch it on."

    M095 "long-skill" Package Note
    "`SKILL.md` is short enough to be read whole."
    "Agents read the whole body when they use a skill. A body of more than 500 lines or about 5000 tokens leaves less \
     room for the task itself; move details into linked files, which agents read when they need them."

    M096 "front-matter-field" Package Warning
    "The front matter has only the fields of Agent Skills."
    "Agent Skills defines `name`, `description`, `license`, `compatibility`, `allowed-tools` and `metadata`. Some \
     agents know more fields; others, and the reference validator, refuse a skill with a field that they do not know. \
     Put it under `metadata`."

    M097 "auto-loaded-file" Package Error
    "The package contains no files that other programs read on their own."
    "git runs commands that a `.git/config` names, agents those of `.claude/` and `.mcp.json`, editors those of \
     `.vscode/`, shells those of `.envrc`, and Python runs every `.pth` file and `sitecustomize.py`. Such a file acts as \
     soon as a program looks at the installed skill. `imagate skills build` leaves these files out; remove them from \
     the package."
}
