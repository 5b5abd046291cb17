//! Rules about addresses.

use super::rules;

rules! {
    M020 "git-url" Static Warning
    "`git_url` is an absolute https address without query and fragment."
    "Everybody can clone from an https address. `git@host:owner/repository` and `ssh:` need an account, `http:` and \
     `git:` let whoever is on the way change what is cloned, and a relative address means something else on every \
     machine."

    M021 "raw-base-url" Static Warning
    "`raw_base_url` is an absolute https address without query and fragment."
    "A package is downloaded from this address with its path behind it. A query or a fragment would swallow the path, \
     and `http:` lets whoever is on the way see and change what is downloaded."

    M022 "source-url" Static Warning
    "`source_urls` are absolute https addresses."
    "They say where the facts of a document come from, so that people and agents can look them up. A relative address \
     leads nowhere, and `http:` can be changed on the way."

    M023 "url-credentials" Static Error
    "No address holds a user name or a password."
    "What stands before `@` in an address is a credential, and a manifest is public. It is an error because it is unsafe: \
     whoever reads it has the access of that token. Remove it, and revoke the token: it has been published. Reports show \
     stars in its place."

    M024 "private-host" Static Warning
    "Addresses name hosts that everybody can reach."
    "`localhost`, private and link-local addresses, and names without a dot or below `.local`, `.internal` or `.lan` \
     lead to another machine for every reader, or to one of theirs. For a registry inside of a company, pass \
     `--allow-private-hosts`."

    M025 "raw-base-branch" Static Warning
    "`raw_base_url` leads to the branch of the manifest."
    "`branch` says which state of the repository the manifest describes, and `raw_base_url` where its files are. If \
     the address does not hold the branch, packages are downloaded from another state, and their checksums do not \
     fit. An address that serves one branch only, such as a mirror of your own, is a reason to allow this."

    M026 "other-repository" Static Warning
    "`git_url` and `raw_base_url` name the same repository."
    "On GitHub, GitLab, Codeberg and Bitbucket both addresses hold owner and repository. If they differ, what is \
     cloned is not what is downloaded; most often a fork was made and one of them was forgotten."

    M027 "branch-name" Static Warning
    "`branch` is a name that git allows."
    "No git repository can have another branch: names hold no blanks, `..`, `~`, `^`, `:`, `?`, `*`, `[`, `\\\\` or \
     `@{`, do not begin with `-`, `.` or `/`, and do not end with `/`, `.` or `.lock` (`git help check-ref-format`)."
}
