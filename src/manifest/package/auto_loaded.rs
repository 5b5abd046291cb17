//! The table of files that programs read on their own: as soon as they look at a folder, without being asked for the
//! file. Such a file in a package makes the installation itself run commands or give instructions.
//!
//! This module decides which names belong to the table, as every file system may spell them. It must not know what a
//! caller does with such a file. Documents such as `AGENTS.md` are not in the table: like `SKILL.md`, they are text
//! that people review, and configure no program.

use unicode_normalization::UnicodeNormalization as _;

use super::archive::fold;

/// The programs that read certain files on their own.
#[derive(Debug)]
pub(super) struct AutoLoader {
    /// The programs, in words.
    programs: &'static str,
    /// The effect of the files, in words that follow `which`.
    effect: &'static str,
    /// The names of files and folders in lower case, separated by spaces. One `*` in a name stands for any text.
    names: &'static str,
}

/// All programs and their files. The files follow the documentation of each program; the selection is our choice.
const AUTO_LOADERS: &[AutoLoader] = &[
    AutoLoader {
        programs: "version control",
        effect: "can name commands that every look at the folder runs",
        names: ".git .gitattributes .gitconfig .gitmodules .lfsconfig .hg .hgrc .hgsub .svn .bzr .jj .sl \
                .pijul _darcs .fslckout _fossil_ .p4config",
    },
    AutoLoader {
        programs: "coding agents",
        effect: "can start programs and give instructions without a question",
        names: ".mcp.json .lsp.json .claude* .cursor* .codex .gemini .agent .agents .windsurf* .codeium \
                .cline* .roo* .kilocode* .continue* .aider* .amazonq .kiro .junie .augment* .opencode \
                opencode.json opencode.jsonc .crush* crush.json .goose* .trae .qwen .copilot .github \
                .amp .factory .openhands .tabnine .aiassistant .rules",
    },
    AutoLoader {
        programs: "editors",
        effect: "can name tasks, interpreters and plug-ins that opening the folder starts",
        names: ".vscode* .vs .idea .fleet .zed .nova .theia .helix .exrc _exrc .vim* _vimrc .gvimrc \
                .nvim* .lvimrc .local.vimrc .dir-locals*.el .ycm_extra_conf.py .clangd .luarc.json* \
                .kakrc* .devcontainer* .settings",
    },
    AutoLoader {
        programs: "shells and tools that set up an environment",
        effect: "can run commands on entering the folder",
        names: ".envrc .direnv* .autoenv* .mise* mise.toml mise.local.toml .rtx.toml .tool-versions \
                .bashrc .bash_* .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc \
                .tcshrc .login .logout .inputrc",
    },
    AutoLoader {
        programs: "interpreters and debuggers",
        effect: "can run code at every start in the folder",
        names: "*.pth *._pth sitecustomize sitecustomize.* usercustomize usercustomize.* pyvenv.cfg \
                .pdbrc* .gdbinit .lldbinit .irbrc .pryrc .rprofile .renviron .rdata .ghci .iex.exs \
                .ocamlinit .octaverc .tclshrc",
    },
    AutoLoader {
        programs: "package managers and hooks",
        effect: "can replace programs and sources, and name commands for other actions",
        names: ".npmrc .yarn .yarnrc* .pnp.* .pnpmfile.* bunfig.toml .bunfig.toml .cargo .mvn .bundle \
                .gemrc .condarc nuget.config .husky .pre-commit-* .lefthook* lefthook.y*ml .overcommit.yml \
                .lintstagedrc* .simple-git-hooks* .watchmanconfig",
    },
    AutoLoader {
        programs: "file managers and web servers",
        effect: "can connect to other hosts or change what is served",
        names: "desktop.ini autorun.inf *.scf *.lnk *.url *.library-ms *.searchconnector-ms .htaccess \
                .user.ini web.config",
    },
];

// === impl AutoLoader ===

impl std::fmt::Display for AutoLoader {
    /// Writes the problem, in words that follow the path of the file.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "is a file that {} read on their own, and {}", self.programs, self.effect)
    }
}

/// Returns the programs that read a path, or one of its parent folders, on their own.
pub(super) fn auto_loader(path: &str) -> Option<&'static AutoLoader> {
    path.split('/').find_map(|segment| {
        let name = plain_name(segment);
        AUTO_LOADERS.iter().find(|loader| loader.names.split(' ').any(|pattern| is_match(pattern, &name)))
    })
}

fn is_match(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
    }
}

/// Returns a name as a file system may read it: without case, compatibility forms, characters that are never visible,
/// and dots and spaces at the end.
fn plain_name(segment: &str) -> String {
    let visible = segment.chars().filter(|character| !is_ignorable(*character));
    let folded = fold(&visible.nfkc().collect::<String>());
    let length = folded.trim_end_matches(['.', ' ']).len();
    folded.get(..length).unwrap_or_default().to_owned()
}

/// Returns true for code points that Unicode calls `Default_Ignorable_Code_Point`: HFS+ ignores some of them in names.
fn is_ignorable(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_programs_read_on_their_own_are_found_in_every_spelling() {
        let paths = ".git/config a/b/.GIT/hooks/x .gIt .g\u{200c}it .git\u{206a} .git. .g\u{fe00}it .\u{ff47}it \
            \u{ff0e}git .hg .\u{17f}vn/x .claude/settings.json .Claude.json .cursorrules \
            .vscode/tasks.json .mcp.json .envrc x/.GitAttributes lib/evil.PTH sitecustomize.py \
            usercustomize/__init__.py sitecustomize.cpython-312-x86_64-linux-gnu.so .npmrc .yarnrc.yml \
            .pre-commit-config.yaml .husky/pre-commit .devcontainer/devcontainer.json .dir-locals-2.el \
            Desktop.ini icon.scf";
        for path in paths.split(' ').chain([".git "]) {
            assert!(auto_loader(path).is_some(), "{path:?}");
        }
    }

    #[test]
    fn files_that_are_read_only_when_asked_for_are_not_in_the_table() {
        let paths = "SKILL.md Makefile conftest.py package.json Cargo.toml AGENTS.md .gitignore git git.md \
            claude/x.md docs/.gitkeep path.py customize.py .editorconfig cvs/one.pdf mise.md a.urls \
            github/x.yml";
        for path in paths.split(' ') {
            assert!(auto_loader(path).is_none(), "{path:?}");
        }
    }

    #[test]
    fn names_of_the_table_are_plain_and_unique() {
        let mut names: Vec<&str> = AUTO_LOADERS.iter().flat_map(|loader| loader.names.split(' ')).collect();
        assert!(names.iter().all(|name| plain_name(name) == *name && name.matches('*').count() <= 1), "{names:?}");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
