//! What is put where: by `make install`, and by the Debian package on a machine of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{Call, Sandbox, TENURE};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs the rest of its words on another machine, which begins as this one and has the package; what is changed there is
/// nowhere else. Some machines' dpkg is told to leave man pages out.
const MACHINE: &str = "
    mkdir scratch machine && mount -t tmpfs tmpfs scratch && mkdir scratch/upper scratch/work &&
    mount -t overlay overlay -o lowerdir=/,upperdir=scratch/upper,workdir=scratch/work machine &&
    mount -t proc proc machine/proc && mount --rbind /dev machine/dev && mkdir -p machine/etc/dpkg/dpkg.cfg.d &&
    rm -rf machine/etc/dpkg/dpkg.cfg.d/* && cp package.deb machine && exec chroot machine \"$@\"";

/// What is done there, in this order, each saying what it did; ends at what fails.
const TRY_PACKAGE: &str = r#"
    cd /
    dpkg --install /package.deb >/dev/null
    dpkg --verify tenure
    command -v tenure
    tenure run check -- sh -c 'echo "$TENURE_DB"'
    bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader tenure; complete -p tenure'
    zsh -fc 'autoload -U compinit; compinit -D -u; echo "zsh has $_comps[tenure]"'
    fish -c 'complete "--do-complete=tenure rel"' | cut -f 1
    gzip -dc /usr/share/man/man1/tenure-run.1.gz | grep '^\.TH'
    gzip -dc /usr/share/doc/tenure/changelog.gz | head -n 1
    dpkg-query --listfiles tenure | while read -r file; do [ -d "$file" ] || echo "$file"; done >/files
    dpkg --purge tenure >/dev/null
    xargs ls </files 2>/dev/null || echo 'all files are gone'
    ls /var/lib/tenure/tenure.db
"#;

fn make<'a>(sandbox: &'a Sandbox, words: &[&str]) -> Call<'a> {
    let make = sandbox
        .program("make")
        .args(["--silent", "--directory", ROOT]);
    make.args(words).arg(format!("BINARY={TENURE}"))
}

/// All files below a directory, by their paths from there.
fn files(top: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(top).unwrap().to_owned());
            }
        }
    }
    found
}

/// The man pages of the repository, as they are installed under a prefix.
fn pages() -> impl Iterator<Item = PathBuf> {
    files(&Path::new(ROOT).join("man"))
        .into_iter()
        .map(|page| Path::new("share/man/man1").join(page))
}

#[test]
fn make_install_puts_everything_below_the_prefix_and_uninstall_takes_it_away() {
    let sandbox = Sandbox::new();
    let destination = format!("DESTDIR={}", sandbox.path("image").display());
    let words = ["install", &destination, "PREFIX=/opt/it"];
    make(&sandbox, &words).run().exits(0).says_nothing();
    let rest = [
        "bin/tenure",
        "share/bash-completion/completions/tenure",
        "share/zsh/site-functions/_tenure",
        "share/fish/vendor_completions.d/tenure.fish",
    ];
    let expected: BTreeSet<PathBuf> = rest.map(PathBuf::from).into_iter().chain(pages()).collect();
    assert_eq!(files(&sandbox.path("image/opt/it")), expected);
    assert!(
        files(&sandbox.path("image"))
            .iter()
            .all(|file| file.starts_with("opt/it"))
    );
    let installed = sandbox.program(sandbox.path("image/opt/it/bin/tenure"));
    installed.arg("--version").run().exits(0);
    let words = ["uninstall", &destination, "PREFIX=/opt/it"];
    make(&sandbox, &words).run().exits(0).says_nothing();
    assert_eq!(files(&sandbox.path("image")), BTreeSet::new());
}

#[test]
fn the_debian_package_is_built_installed_used_and_removed() {
    let sandbox = Sandbox::new();
    // Without what only a debugger reads, and packed as fast as can be.
    let program = sandbox.path("program");
    sandbox
        .program("strip")
        .args(["-o".as_ref(), program.as_os_str(), TENURE.as_ref()])
        .run()
        .exits(0);
    let build = Path::new(ROOT).join("packaging/deb");
    let build = sandbox.program(build).arg(&program).arg(sandbox.dir());
    let build = build.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip");
    build.run().exits(0).says_nothing();
    let version = env!("CARGO_PKG_VERSION");
    let package = files(&sandbox.dir())
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = package
        .expect("a package")
        .into_os_string()
        .into_string()
        .unwrap();
    assert!(
        package.starts_with(&format!("tenure_{version}-1_")),
        "{package}"
    );

    std::fs::rename(sandbox.path(&package), sandbox.path("package.deb")).unwrap();
    let words = ["-euc", MACHINE, "sh", "sh", "-euc", TRY_PACKAGE];
    let machine = sandbox.program("sh").args(words);
    let machine = machine.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let outcome = machine.via(["unshare", "--mount"]).run();
    outcome.exits(0).says_nothing();
    let expected = "/usr/bin/tenure
/var/lib/tenure/tenure.db
complete -o bashdefault -o nosort -F _tenure tenure
zsh has _tenure
release
.TH tenure-run 1 \"\" \"tenure 0.1.0\"
# Changelog
all files are gone
/var/lib/tenure/tenure.db
";
    outcome.prints(&expected.replace("0.1.0", version));
}
