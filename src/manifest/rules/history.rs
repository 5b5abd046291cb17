//! Rules that compare a manifest with the one that was published before.

use super::rules;

rules! {
    M110 "same-version" History Error
    "Changed content has a version of its own."
    "The content changed, and the new version is only another spelling of the old one: `1.0.0+b` after `1.0.0+a`, or \
     `v1.0.0` after `1.0.0`. Versions that differ in build metadata are equal, so nobody who has the old content gets \
     the new. Raise the version."

    M111 "version-down" History Warning
    "The newest version of a skill is not older than before."
    "Whoever has the newer version is not offered anything any more, and whoever installs now gets what was replaced. \
     To take a release back, publish its predecessor under a higher version."

    M112 "removed-skill" History Warning
    "No published skill disappears."
    "Installers that know the skill by its name fail from now on. If that is meant, allow it with the reason."

    M113 "changed-release" History Error
    "A published release never changes."
    "The checksum of a name and version that was published is another one now. Lock files and caches hold the old one, \
     so installing fails for everybody who uses them, or, where nobody checks, two machines run different content \
     under one name. Publish the change under a new version."

    M114 "major-without-changelog" History Warning
    "A new major version comes with a changelog."
    "A major version says that something does not work as before. Without `CHANGELOG.md` in the folder of the skill \
     nobody learns what. It is looked for where the checkout is given."

    M115 "not-newer" History Warning
    "A manifest that changed has a later `generated_at`."
    "Readers keep the manifest with the later time, so a change under the same or an earlier time does not reach \
     them. `imagate skills build` sets it whenever the content changes."

    M116 "moved-repository" History Warning
    "The repository stays where it was."
    "Readers that follow `git_url` or `raw_base_url` are sent to another place. If it is meant, allow it with the \
     reason; if not, somebody else may have taken over the manifest."

    M117 "quiet-change" History Warning
    "What an entry says of a release stays as it was."
    "Title, description, paths or other fields changed while name, version and checksum did not. Readers that keep \
     what they know of a release do not see the change. A patch version makes it seen."
}
