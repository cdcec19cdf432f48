//! Names of files that the host executes or evaluates, with the programs that do so.
//!
//! Data for [`super::flags`]. The list is deliberately broad: a needless flag costs a look, a
//! missing one can cost the machine. Patterns are in lower case. `name` matches a file, `name/` a
//! directory with all its content, and one `*` any characters in the name of a file.

/// Patterns of files that one program executes or evaluates.
pub(super) struct Program {
    /// Text for the reviewer, after "FILE: ".
    pub(super) reason: &'static str,
    /// Patterns, separated by white space.
    pub(super) patterns: &'static str,
}

const fn program(reason: &'static str, patterns: &'static str) -> Program {
    Program { reason, patterns }
}

/// All patterns. The first match provides the reason.
pub(super) const PROGRAMS: &[Program] = &[
    program(
        "agents obey it",
        ".agents/ .aider/ .aider* .amazonq/ .augment/ .augment-guidelines .claude/ .cline/ .clinerules
         .clinerules/ .codex/ .continue/ .copilot/ .crush/ .crush.json crush.json .cursor/ .cursorrules
         .gemini/ .goose/ .goosehints .junie/ .kilocode/ .kiro/ .opencode/ opencode.json opencode.jsonc
         .qwen/ .roo/ .roorules* .rules .trae/ .windsurf/ .windsurfrules .mcp.json mcp.json agent.md
         agents.md agents.override.md claude.md claude.local.md gemini.md qwen.md warp.md glovebox.toml
         .gloveboxignore",
    ),
    program(
        "git obeys it",
        ".gitattributes .gitmodules .gitconfig .lfsconfig .githooks/ githooks/",
    ),
    program(
        "another version control obeys it",
        ".hg/ .hgrc .hgsub .svn/ .bzr/ .jj/ .sl/ .fslckout _darcs/",
    ),
    program(
        "commits and pushes run it",
        ".husky/ .huskyrc* .lefthook/ lefthook.* .lefthook.* lefthook-local.* .lefthook-local.*
         .pre-commit-config.* .pre-commit-hooks.* .overcommit.yml captainhook.json grumphp.y*ml
         .lintstagedrc* .commitlintrc* .czrc .cz.* .releaserc*",
    ),
    program(
        "continuous integration and deployment run it",
        ".github/ .gitlab/ .gitlab-ci* .gitea/ .forgejo/ .circleci/ .buildkite/ .woodpecker/
         .woodpecker.* .semaphore/ .teamcity/ .tekton/ .builds/ .build.yml .appveyor.yml appveyor.yml
         .cirrus.* .drone.* .travis.yml azure-pipelines* bitbucket-pipelines.yml buildspec.y*ml
         cloudbuild.* codefresh.yml wercker.yml jenkinsfile* .mergify.yml renovate.json* .renovaterc*
         codeowners netlify.toml vercel.json now.json fly.toml render.yaml app.json .platform.app.yaml
         .goreleaser.* serverless.y*ml serverless.*s",
    ),
    program(
        "editors obey it, and some run what it names",
        ".vscode/ .vscode-insiders/ .vs/ *.code-workspace .idea/ *.iml .fleet/ .zed/ .nova/ .theia/
         .vim/ .vimrc .gvimrc .lvimrc .local.vimrc .vimspector.json .exrc .nvim/ .nvimrc .nvim.lua
         .nvim.* .neoconf.json .coc-settings.json coc-settings.json .dir-locals.el .dir-locals-2.el
         .emacs .emacs.d/ .projectile .helix/ .kak/ .kakrc kakrc.local .kateproject* *.sublime-project
         *.sublime-build *.sublime-workspace .atom/ .project .classpath .cproject .settings/
         .externaltoolbuilders/ *.launch *.kdev4 *.geany .gitpod.* .devcontainer/ .devcontainer.json
         .replit replit.nix .codesandbox/ .stackblitzrc .idx/ .lsp.json .lsp/",
    ),
    program(
        "a language server obeys it, and some run what it names",
        ".clangd compile_commands.json compile_flags.txt .ccls .ycm_extra_conf.py .luarc.json*
         tsconfig*.json jsconfig*.json hie.yaml pyrightconfig.json .solargraph.yml
         analysis_options.yaml rust-project.json .rust-analyzer.toml rust-analyzer.toml .merlin",
    ),
    program(
        "debuggers run it",
        ".gdbinit .gdbearlyinit *-gdb.py *-gdb.gdb *-gdb.scm .lldbinit .lldbinit-* .pdbrc .pdbrc.py
         .radare2rc .byebugrc",
    ),
    program(
        "shells and their like run it",
        ".envrc .direnv/ .direnvrc .env .env.* *.env .flaskenv .autoenv* .bash_aliases .bash_login
         .bash_logout .bash_profile .bashrc .cshrc .tcshrc .login .logout .profile .kshrc .mkshrc .shrc
         .zlogin .zlogout .zprofile .zshenv .zshrc config.fish .inputrc .editrc .screenrc .tmux.conf
         .tmuxinator.yml .xinitrc .xprofile .xsession .xsessionrc .pam_environment .curlrc .wgetrc
         .netrc .ssh/ .gnupg/ .sqliterc .psqlrc .my.cnf .mongorc.js .lesskey",
    ),
    program(
        "the desktop or the machine starts what it names",
        "*.desktop *.service *.timer *.socket *.path *.plist *.command *.lnk *.scf *.url autorun.inf
         crontab *.cron .htaccess .user.ini web.config",
    ),
    program(
        "it says which version of a tool runs, and from where",
        ".tool-versions .mise/ .mise.* mise.* .mise-* .rtx.toml .sdkmanrc .nvmrc .rvmrc .node-version
         .python-version .ruby-version .java-version .go-version .terraform-version .swift-version
         rust-toolchain rust-toolchain.toml global.json .bazelversion .bazeliskrc devbox.json
         devenv.* pyvenv.cfg .asdfrc .proto/ .prototools",
    ),
    program(
        "it says which code is downloaded and then run",
        "cargo.lock package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb
         deno.lock poetry.lock pdm.lock uv.lock pipfile.lock pylock*.toml gemfile.lock composer.lock
         flake.lock mix.lock pubspec.lock package.resolved podfile.lock .terraform.lock.hcl
         requirements*.txt constraints*.txt *requirements.txt environment.y*ml",
    ),
    program("Cargo builds and runs what it says", "cargo.toml .cargo/ build.rs"),
    program(
        "Node.js and its package managers run what it says",
        "package.json package.json5 package.yaml .npmrc .yarnrc .yarnrc.yml .yarn/ .pnp.*
         .pnpmfile.* pnpmfile.* pnpm-workspace.yaml bunfig.toml deno.json deno.jsonc lerna.json nx.json
         project.json turbo.json rush.json .noderc .nodemonrc nodemon.json",
    ),
    program(
        "a JavaScript tool runs it",
        "*.config.js *.config.cjs *.config.mjs *.config.jsx *.config.ts *.config.cts *.config.mts
         *.config.tsx *.conf.js *.conf.cjs *.conf.mjs *.conf.ts .*rc.js .*rc.cjs .*rc.mjs .*rc.ts
         .*rc.cts .*rc.mts gruntfile* gulpfile* jakefile* webpack.* rollup.* ember-cli-build.js
         brunch-config.* cypress.json wallaby.js angular.json .angular-cli.json .storybook/",
    ),
    program(
        "a JavaScript tool loads what it names",
        ".babelrc* babel.config.json .eslintrc* .prettierrc* .stylelintrc* .swcrc .mocharc* .nycrc*
         .c8rc* .postcssrc* .parcelrc .swc/ .ncurc* .markdownlint-cli2* .textlintrc* .xo-config*
         .jshintrc .htmlhintrc .remarkrc* .browserslistrc .graphqlrc* .graphqlconfig* .importsortrc*",
    ),
    program(
        "Python and its tools run it",
        "setup.py setup.cfg pyproject.toml conftest.py noxfile.py tox.ini pytest.ini .pytest.ini
         .pylintrc pylintrc pylintrc.toml .flake8 mypy.ini .mypy.ini .coveragerc sitecustomize.py
         usercustomize.py *.pth pipfile poetry.toml pdm.toml uv.toml hatch.toml pip.conf .pypirc
         .pythonrc .pythonrc.py .pythonstartup .ipython/ .jupyter/ jupyter_*config.py tasks.py
         fabfile.py dodo.py pavement.py pixi.toml .pixi/ sconstruct sconscript wscript waf
         snakefile *.smk zappa_settings.json",
    ),
    program(
        "Ruby and its tools run it",
        "gemfile gems.rb *.gemspec .gemrc rakefile rakefile.rb *.rake .rspec .rubocop.yml .irbrc .pryrc
         guardfile capfile podfile fastfile appfile dangerfile brewfile thorfile *.thor berksfile
         config.ru .bundle/ .reek.yml steepfile",
    ),
    program(
        "PHP and its tools run it",
        "composer.json .php-cs-fixer* phpunit.xml* phpstan.neon* psalm.xml* rector.php castor.php
         robofile.php deployer.php deploy.php box.json php.ini .phan/ infection.json*",
    ),
    program(
        "Java build tools run it",
        "pom.xml .mvn/ mvnw mvnw.cmd *.gradle *.gradle.kts gradlew gradlew.bat gradle.properties
         gradle-wrapper.* *.versions.toml build.xml ivy.xml *.sbt .sbtopts .jvmopts build.sc build.mill
         .mill-* *.main.kts project.clj profiles.clj deps.edn bb.edn shadow-cljs.edn build.boot
         lombok.config .scalafix.conf .jbang/ jbang-catalog.json",
    ),
    program(
        "make and its like run it",
        "makefile makefile.* gnumakefile bsdmakefile *.mk *.mak justfile .justfile *.just taskfile.*
         procfile* mprocs.yaml process-compose.y*ml maskfile.md makefile-* tupfile *.tup dune
         dune-project dune-workspace *.opam opam magefile.go .air.toml tiltfile earthfile
         runfile .run/",
    ),
    program(
        "C and C++ build tools run it",
        "cmakelists.txt *.cmake cmakepresets.json cmakeuserpresets.json meson.build meson_options.txt
         meson.options *.wrap configure configure.ac configure.in *.m4 *.am autogen.sh bootstrap
         bootstrap.sh build.ninja *.ninja premake*.lua xmake.lua conanfile.* vcpkg.json
         vcpkg-configuration.json *.pro *.pri *.qbs jamfile jamroot build.zig build.zig.zon kconfig
         kbuild platformio.ini sdkconfig.defaults",
    ),
    program(
        "Bazel and its like run it",
        "build build.bazel workspace workspace.bazel workspace.bzlmod module.bazel *.bazel *.bzl
         .bazelrc user.bazelrc buck *.buck .buckconfig .buckroot pants.toml .plzconfig* build_defs
         please.plz *.star",
    ),
    program(
        ".NET runs it when it builds",
        "*.csproj *.fsproj *.vbproj *.vcxproj *.sqlproj *.proj *.props *.targets *.sln *.slnx *.rsp
         nuget.config packages.config dotnet-tools.json *.cake *.csx *.runsettings",
    ),
    program(
        "a build tool of its language runs it",
        "go.mod go.work .golangci.* mix.exs .formatter.exs .iex.exs .credo.exs rebar.config*
         *.app.src.script stack.yaml *.cabal cabal.project* setup.hs setup.lhs .ghci package.swift
         *.xcconfig project.pbxproj *.xcscheme pubspec.yaml build.yaml *.nimble *.nims nim.cfg dub.json
         dub.sdl shard.yml cpanfile makefile.pl build.pl .perlcriticrc .proverc .rprofile .renviron
         .rproj.user/ renv/ build.jl startup.jl .juliarc.jl .octaverc startup.m *.rockspec .luacheckrc
         .busted *.dpr *.lpi alire.toml gleam.toml elm.json spago.* foundry.toml hardhat.* anchor.toml
         move.toml godot.* project.godot",
    ),
    program(
        "containers and machines are made by it",
        "dockerfile dockerfile.* *.dockerfile containerfile containerfile.* docker-compose* compose*.yml
         compose*.yaml docker-bake.* vagrantfile *.pkr.hcl packer.json skaffold.yaml garden.y*ml
         helmfile.* *.nix guix.scm manifest.scm *.tf *.tf.json terragrunt.hcl .terraformrc
         terraform.rc pulumi.y*ml cdk.json ansible.cfg samconfig.toml nomad.hcl cloud-init*",
    ),
];
