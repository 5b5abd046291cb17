//! Rules that compare a manifest with the one that was published before.

use super::rules;

rules! {
    M110 "same-version" History Error
    "Changed content has a new version."
    "The content changed, and the new version is only another spelling of the old one: `1.0.0+b` after `1.0.0+a`, or \
     `v1.0.0` after `1.0.0`. Versions that differ only in build metadata are equal, so users who have the old content \
     are not offered the new content. Raise the version."

    M111 "version-down" History Warning
    "The newest version of a skill is not older than before."
    "Users who have the newer version are offered no update, and users who install now get content that was already \
     replaced. To withdraw a release, publish its predecessor under a higher version."

    M112 "removed-skill" History Warning
    "No published skill disappears."
    "Installers that know the skill by its name fail from now on. If you remove it on purpose, allow the finding and \
     give the reason."

    M113 "changed-release" History Error
    "A published release never changes."
    "The checksum of a published name and version has changed. Lock files and caches hold the old checksum, so an \
     installation that uses them fails; where no checksum is compared, two machines run different content under one \
     name. Publish the change under a new version."

    M114 "major-without-changelog" History Warning
    "A new major version comes with a changelog."
    "A major version announces that something no longer works as before. Without a `CHANGELOG.md` in the folder of \
     the skill, users cannot find out what changed. The check needs the checkout of the repository."

    M115 "not-newer" History Warning
    "A manifest that changed has a later `generated_at`."
    "Readers keep the manifest with the later time, so a change under the same or an earlier time does not reach \
     them. `imagate skills build` sets the time whenever the content changes."

    M116 "moved-repository" History Warning
    "The repository does not move."
    "Readers that follow `git_url` or `raw_base_url` get to another place. If the repository moved on purpose, allow \
     the finding and give the reason; otherwise another person may have taken over the manifest."

    M117 "quiet-change" History Warning
    "The entry of a release does not change without a new version."
    "The title, description, paths or other fields changed, while name, version and checksum did not. Readers that \
     store the entry of a release do not see the change. Raise the patch version, so that they do."
}
