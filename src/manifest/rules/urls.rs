//! Rules about addresses and the branch as the manifest states them, without a request.

use super::rules;

rules! {
    M020 "git-url" Static Warning
    "`git_url` is an absolute https address without query and fragment."
    "Every user can clone from an https address. `git@host:owner/repository` and `ssh:` need an account, `http:` and \
     `git:` let an attacker in the network change the cloned content, and a relative address means something else on \
     every machine."

    M021 "raw-base-url" Static Warning
    "`raw_base_url` is an absolute https address without query and fragment."
    "A package is downloaded from this address followed by its path. A query or a fragment would swallow the path, \
     and `http:` lets an attacker in the network see and change the download."

    M022 "source-url" Static Warning
    "`source_urls` are absolute https addresses."
    "The addresses state where the facts of a document come from, so that people and agents can look them up. A \
     relative address leads nowhere, and an attacker in the network can change the answer of an `http:` address."

    M023 "url-credentials" Static Error
    "No address contains a user name or a password."
    "The part before `@` in an address is a credential, and a manifest is public. It is an error because it is \
     unsafe: every reader of the manifest gets the access of that credential. Remove it, and revoke it: it has been \
     published. Reports show stars in its place."

    M024 "private-host" Static Warning
    "Addresses name publicly reachable hosts."
    "`localhost`, private and link-local addresses, and names without a dot or below `.local`, `.internal` or `.lan` \
     lead every reader to another machine, or to the reader's own. For a registry inside a company, pass \
     `--allow-private-hosts`."

    M025 "raw-base-branch" Static Warning
    "`raw_base_url` leads to the branch of the manifest."
    "`branch` states which branch of the repository the manifest describes, and `raw_base_url` where its files are. \
     If the address does not contain the branch, packages are downloaded from another branch, and their checksums do \
     not match. An address that serves one branch only, such as a mirror of your own, is a reason to allow the finding."

    M026 "other-repository" Static Warning
    "`git_url` and `raw_base_url` name the same repository."
    "On GitHub, GitLab, Codeberg and Bitbucket, both addresses contain owner and repository. If they differ, the \
     cloned repository is not the one from which packages are downloaded; the usual reason is a fork in which only \
     one address was changed."

    M027 "branch-name" Static Warning
    "`branch` is a name that git allows."
    "No git repository can have a branch with another name: names contain no spaces, `..`, `~`, `^`, `:`, `?`, `*`, \
     `[`, `\\\\` or `@{`, do not begin with `-`, `.` or `/`, and do not end with `/`, `.` or `.lock` (`git help \
     check-ref-format`)."

    M028 "unsafe-address" Static Error
    "`git_url` and `raw_base_url` lead to another machine, and to no link-local address."
    "A `file:` address reads files of the reader's own machine, `ext::` and a leading `-` make git run a command, and \
     link-local addresses (`169.254.169.254`, `fe80::`) are the metadata services of clouds, which give out \
     credentials. It is an error because it makes an installation unsafe: a program that downloads from such an address \
     reads what the author of the manifest must not reach. Write the https address of the repository."
}
