//! The rules about the checkout and the packages.

use crate::manifest::rules::rules;

rules! {
    M070 "skill-folder" Repository Error
    "`path` is a folder of the repository with a `SKILL.md`."
    "`path` is where people and agents look at a skill without its package. A folder that was moved or renamed leaves \
     an entry that leads nowhere. Run `imagate skills build`, which writes the paths that are there."

    M071 "package-missing" Repository Error
    "`package` is a file of the repository."
    "Whoever installs the skill downloads this file; without it there is nothing to install. It must be a regular file, \
     committed beside the manifest. `imagate skills build` makes the packages that are missing."

    M072 "package-size" Repository Error
    "`size_bytes` is the size of the package."
    "Installers stop where a download is longer than this, and tell a cut-off download by it. A difference means that the \
     package is not the one of the manifest. Never type it: `imagate skills build` measures the file."

    M073 "package-digest" Repository Error
    "`sha256` is the checksum of the package."
    "The checksum is what makes a skill the one that was reviewed: installers refuse a package that has another one. \
     A difference means that the package was changed after the manifest was made, or never belonged to it. Publish changed \
     content as a new version with `imagate skills build`."

    M074 "symbolic-link" Repository Error
    "No path goes through a symbolic link, and a skill holds none."
    "A raw host answers with the text of a link and not with what it points to, and a link may point out of the \
     repository. What was checked here is then not what others get. Put a copy of the file there."

    M075 "not-committed" Repository Warning
    "Packages are committed as they are, not as pointers of Git LFS."
    "A raw host serves what is committed. A file that is not tracked is served to nobody, and of a file in Git LFS only the \
     pointer is served, a text of three lines. Add the file to the repository itself: `git lfs untrack` and `git add`."

    M076 "path-spelling" Repository Error
    "Paths are spelled as the files are."
    "Windows and macOS find `Skills/Demo` for `skills/demo`; raw hosts and Linux do not. The manifest works for whoever wrote \
     it and for nobody else. Spell the path as the folder listing does."

    M077 "unlisted-skill" Repository Warning
    "Every skill of the folders that the manifest uses is in the manifest."
    "A folder with a `SKILL.md` beside those of published skills is most likely a skill that somebody forgot to publish. \
     Run `imagate skills build`, or move drafts to another folder."

    M078 "unlisted-package" Repository Note
    "Every package of the folders that the manifest uses is in the manifest."
    "Packages of older versions may stay for those who have pinned them; others are left-overs that only make the \
     repository larger. Nothing breaks either way."

    M079 "document-missing" Repository Warning
    "`apis[].path` is a file of the repository."
    "The catalogue of API references is read by agents that fetch the path from the raw host. An entry without its file \
     sends them to an error. Mend the path, or take the entry out."

    M080 "archive-unreadable" Package Error
    "The package is a whole zip or gzipped tar."
    "It cannot be read: it is cut off, damaged, encrypted, or packed with a method that only some programs know. \
     `imagate skills build` writes a plain zip that every program opens."

    M081 "archive-limits" Package Error
    "The package is within the limits of size, number and depth."
    "A package has at most 10 MiB, 10,000 entries, 500 MiB unpacked, files of 100 MiB, 8 levels of folders, and is unpacked \
     at most 100 times larger than packed. These are the limits of public registries; an archive beyond them is a way to fill \
     disks. Leave out what an agent does not read."

    M082 "archive-path" Package Error
    "Every path in the package stays inside, and is good on every system."
    "An absolute path, `..`, a drive letter or a backslash writes outside of the folder of the skill; a device name, a colon \
     or a dot at the end is another file on Windows. Rename the file, or pack with `imagate skills build`, which refuses such names."

    M083 "archive-collision" Package Error
    "No two entries of the package are one file."
    "If a path is there twice, one program keeps the first file and another the last. Paths that differ only in case or in \
     the composition of letters are two files on Linux and one on Windows and macOS. Rename one of them."

    M084 "archive-kind" Package Error
    "The package holds plain files and folders only."
    "Links make a later entry write somewhere else, devices and pipes hang whoever reads them, and set-user-id bits hand out \
     rights. A skill needs none of them. Put copies of files in their place."

    M085 "archive-ambiguous" Package Error
    "All programs unpack the same from the package."
    "Bytes in front, between or behind, headers that disagree with the directory, overlapping entries or two directories make \
     a scanner see one content and an installer another. Pack the folder anew with `imagate skills build`."

    M086 "package-layout" Package Error
    "`SKILL.md` is at the root of the package, or in its one folder."
    "Installers look for `SKILL.md` at the root of the archive, or in one folder that holds everything and is named as the \
     skill. Elsewhere they find nothing; with two of them it is left to chance which skill is installed."

    M087 "front-matter" Package Error
    "`SKILL.md` begins with front matter that Agent Skills can read."
    "Agents load `name` and `description` of every skill at start; a skill whose front matter cannot be read is left out \
     without a word. `name` has at most 64 small letters, digits and single hyphens and is the name of the folder; \
     `description` has 1 to 1024 characters. \
     `metadata` maps texts to texts, as the format says: agents that read a mapping or a list there take it each in their own \
     way, or leave the whole skill out. Write such a value as one text."

    M088 "entry-differs" Package Error
    "`name` and `version` are those of the package's `SKILL.md`."
    "An entry that calls a skill otherwise than the skill calls itself installs something else than was asked for. `version` is \
     held against `metadata.version` of the front matter, where it is there. `imagate skills build` takes both from there."

    M089 "description-differs" Package Warning
    "`description` is that of the package's `SKILL.md`."
    "People choose by the description of the manifest, agents use the skill by that of its `SKILL.md`. Two of them drift apart. \
     `imagate skills build` takes it from the front matter."

    M090 "content-differs" Package Error
    "The package holds what the folder of the skill holds."
    "What people review in the repository must be what agents install. A difference means that the skill was changed and not \
     published, or that the package holds something that nobody sees. Raise `metadata.version` and run `imagate skills build`."

    M091 "secret-file" Package Error
    "The package holds no files that keep secrets."
    "Keys, `.env` files, credentials of tools and folders of version control are in packages by mistake, and cannot be taken \
     back once published. Take the file out, publish a new version, and replace the secret itself."

    M092 "junk-file" Package Warning
    "The package holds no left-overs of systems, editors and tools."
    "`.DS_Store`, `__MACOSX`, `Thumbs.db`, `__pycache__` and copies of editors make packages larger and different on every \
     machine. `imagate skills build` leaves them out."

    M093 "broken-link" Package Warning
    "Links of `SKILL.md` to files lead to files of the package."
    "Agents follow relative links to read more. A link to a file that is not in the package ends in an error in the middle of a \
     task. Mend the link, or put the file into the folder."

    M094 "program-file" Package Off
    "Programs of the package are known."
    "A list of the files that may be run, for whoever reviews a package: they are what an agent may start on the machine of \
     its user. It is off unless it is asked for."

    M095 "long-skill" Package Note
    "`SKILL.md` is short enough to be read whole."
    "Agents read the whole body when they use a skill. Beyond 500 lines or about 5000 tokens it crowds out the task itself; put \
     details into files that are linked and read when they are needed."

    M096 "front-matter-field" Package Warning
    "The front matter has only the fields of Agent Skills."
    "Agent Skills knows `name`, `description`, `license`, `compatibility`, `allowed-tools` and `metadata`. Some agents know more; \
     others, and the reference validator, refuse a skill with a field that they do not know. Put it under `metadata`."
}
