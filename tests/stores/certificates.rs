//! Certificates of an authority of the tests' own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::servers::run;

/// An authority, a server's certificate for the name of a host, and a client's for the name of a user, both signed by it:
/// `ca.crt`, `server.crt` and `.key`, `client.crt` and `.key`.
pub fn make(dir: &Path, host: &str, user: &str) {
    make_with(dir, host, user, &["-newkey", "rsa:2048"]);
}

/// The same with other keys.
pub fn make_with(dir: &Path, host: &str, user: &str, key: &[&str]) {
    let openssl = |words: &[&str]| {
        run(Command::new("openssl").args(words).current_dir(dir));
    };
    let key = [key, &["-nodes"]].concat();
    let subject = |name: &str| format!("/CN={name}");
    let authority = ["-days", "2", "-keyout", "ca.key", "-out", "ca.crt"];
    let words = ["req", "-x509", "-subj", "/CN=authority"];
    openssl(&[&words[..], &authority, &key].concat());
    for (who, name) in [("server", host), ("client", user)] {
        let file = |kind: &str| format!("{who}.{kind}");
        let (key_file, request, certificate) = (file("key"), file("csr"), file("crt"));
        let out = ["-keyout", &key_file, "-out", &request];
        openssl(&[&["req", "-subj", &subject(name)][..], &out, &key].concat());
        let names = format!("subjectAltName=DNS:{name}\n");
        fs::write(dir.join("extension"), names).expect("our own");
        let by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"];
        let what = ["-in", &request, "-out", &certificate, "-days", "2"];
        let words = ["x509", "-req", "-extfile", "extension"];
        openssl(&[&words[..], &by, &what].concat());
    }
    for file in ["server.key", "ca.key", "client.key"] {
        fs::set_permissions(dir.join(file), Permissions::from_mode(0o600)).expect("our own");
    }
}

/// The server shows the authority's own certificate, after [`make`].
pub fn show_authority(dir: &Path) {
    for kind in ["crt", "key"] {
        let [from, to] = ["ca", "server"].map(|who| dir.join(format!("{who}.{kind}")));
        fs::copy(from, to).expect("our own");
    }
}
