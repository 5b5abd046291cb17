//! Rules about the answers to requests for the addresses in a manifest.

use super::rules;

rules! {
    M100 "package-download" Network Error
    "Every package can be downloaded from below `raw_base_url`."
    "The address is `raw_base_url` followed by `package`, and installers request exactly this address. A 404 usually \
     means that the package was not pushed, that the branch has another name, or that the repository is private. Open \
     the address of the finding in a browser that is not signed in."

    M101 "package-served" Network Error
    "The host serves exactly the bytes of the package in the manifest."
    "The length or the checksum of the bytes that the host serves differs from the manifest, so every installer \
     refuses them. The file was changed without a new manifest, the manifest was pushed before the file, or the host \
     serves something else, such as a pointer of Git LFS or a sign-in page. Push both together; caches of raw hosts \
     need some minutes."

    M102 "source-answer" Network Warning
    "Every address of `source_urls` answers."
    "The addresses state where the facts of a document come from. An address that is gone (404, 410), or whose host \
     fails (5xx) or cannot be reached, leads people and agents nowhere. A page that requires a sign-in counts as an \
     answer. Write the new address."

    M103 "branch-there" Network Warning
    "The repository at `git_url` has the branch of the manifest."
    "Users who clone the repository to look at a skill get the branch that the manifest names. The check requests the \
     same address as `git clone`: `/info/refs` below `git_url`. The usual reason is a default branch that was renamed \
     from `master` to `main`."

    M104 "trusted-answer" Network Error
    "Every address has a trusted certificate, and redirects only to https addresses of public hosts."
    "Installers stop at a certificate that has expired, is for another name or has an unknown issuer: an attacker in \
     the network could answer as well. The same holds for a redirect to `http:` or into a private network. Renew the \
     certificate, or write the address to which the redirect should lead."
}
