//! Rules about the answers of the addresses in a manifest.

use super::rules;

rules! {
    M100 "package-download" Network Error
    "Every package can be downloaded from below `raw_base_url`."
    "The address is `raw_base_url` with `package` behind it, and installers ask exactly that. 404 means most often that the \
     package was not pushed, that the branch has another name, or that the repository is private. Open the address that the \
     finding shows in a browser in which nobody is signed in."

    M101 "package-served" Network Error
    "What is downloaded is the package of the manifest, to the byte."
    "Length or checksum of the bytes that the host serves are not those of the manifest, so every installer refuses them. The \
     file was changed without a new manifest, the manifest was pushed before the file, or the host serves something else, \
     such as a pointer of Git LFS or a page that asks to sign in. Push both together; caches of raw hosts need some minutes."

    M102 "source-answer" Network Warning
    "Every address of `source_urls` answers."
    "They say where the facts of a document come from. An address that is gone (404, 410), whose host fails (5xx) or cannot be \
     reached leads people and agents nowhere. A page that wants its reader to sign in has answered. Write the new address."

    M103 "branch-there" Network Warning
    "The repository at `git_url` has the branch of the manifest."
    "Whoever clones the repository to look at a skill gets the branch that the manifest names. It is looked for where `git clone` \
     looks: at `/info/refs` below `git_url`. A default branch that was renamed from `master` to `main` is the usual reason."

    M104 "trusted-answer" Network Error
    "Every address answers with a certificate that counts, and stays with https and hosts that everybody can reach."
    "A certificate that ended, is of another name or is signed by nobody known makes installers stop, as it should: whoever is \
     on the way could answer too. The same holds for a redirect to `http:` or into a private network. Renew the certificate, or \
     write the address that the redirect should have led to."
}
