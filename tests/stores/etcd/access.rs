//! Who may come in, and what those are told who may not: 69, the server and the cause, no secret, and CMD does not run.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::server::{SECRET, Server};
use crate::certificates;
use crate::servers::free_port;
use crate::support::{Call, Outcome, Sandbox, ms};

/// A `run` that is refused before its job starts.
#[track_caller]
fn is_refused(
    sandbox: &Sandbox,
    with: impl FnOnce(Call<'_>) -> Call<'_>,
    pattern: &str,
) -> Outcome {
    let proof = sandbox.path("ran");
    let call = sandbox.tenure().args(["run", "A", "--", "touch"]);
    let outcome = with(call.arg(&proof)).run();
    outcome.is_store_error(pattern);
    assert!(!proof.exists(), "{outcome:?}");
    assert!(!outcome.stderr.contains(SECRET), "{outcome:?}");
    outcome
}

#[track_caller]
fn url_is_refused(url: &str, pattern: &str) -> Outcome {
    is_refused(&Sandbox::at(url), |call| call, pattern)
}

/// It works, and nothing that is said or written tells a secret.
#[track_caller]
fn works<'a>(sandbox: &'a Sandbox, with: impl Fn(Call<'a>) -> Call<'a>) {
    let shows = |words: &[&str]| {
        let outcome = with(sandbox.tenure().args(words)).run();
        outcome.exits(0);
        let all = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!all.contains(SECRET), "{outcome:?}");
        all
    };
    shows(&["run", "-v", "A", "--", "true"]);
    let token = shows(&["acquire", "A"]);
    for words in [
        &["status"][..],
        &["status", "--json", "A"],
        &["log", "--json"],
    ] {
        assert!(shows(words).contains('A'), "{words:?}");
    }
    shows(&["release", "-v", "--token", token.trim_end()]);
}

/// The server with a user `root` and with a user `ann`, who may use what is below `app/`.
fn guarded() -> Server {
    let server = Server::start();
    let commands: [&[&str]; 6] = [
        &["user", "add", &format!("root:{SECRET}")],
        &["role", "add", "app"],
        &[
            "role",
            "grant-permission",
            "app",
            "--prefix=true",
            "readwrite",
            "app/",
        ],
        &["user", "add", &format!("ann:{SECRET}")],
        &["user", "grant-role", "ann", "app"],
        &["auth", "enable"],
    ];
    for words in commands {
        server.ask(words);
    }
    server
}

#[test]
fn who_is_not_let_in_is_told_why_and_by_whom() {
    let server = guarded();
    let port = server.port;
    url_is_refused(
        &format!("etcd://ann:wrong{SECRET}@127.0.0.1:{port}/app/"),
        &format!("cannot log in to etcd at 127.0.0.1:{port} as ann: wrong user or password"),
    );
    url_is_refused(
        &format!("etcd://nobody:{SECRET}@127.0.0.1:{port}/app/"),
        &format!("cannot log in to etcd at 127.0.0.1:{port} as nobody: wrong user or password"),
    );
    url_is_refused(
        &format!("etcd://127.0.0.1:{port}/app/"),
        &format!(
            "cannot use etcd at 127.0.0.1:{port}: it wants a user and a password, as in ETCDCTL_USER and ETCDCTL_PASSWORD"
        ),
    );
    url_is_refused(
        &format!("etcd://ann:{SECRET}@127.0.0.1:{port}/other/"),
        &format!("cannot use etcd at 127.0.0.1:{port}: permission denied"),
    );
    let closed = free_port();
    url_is_refused(
        &format!("etcd://ann:{SECRET}@127.0.0.1:{closed}/app/"),
        &format!("cannot reach etcd at 127.0.0.1:{closed}: connection refused"),
    );
    url_is_refused(
        &format!("etcd://ann:{SECRET}@nobody.invalid/app/"),
        "cannot reach etcd at nobody.invalid:2379: there is no host of this name",
    );
    // With whichever verb.
    let sandbox = Sandbox::at(&format!("etcd://ann:wrong{SECRET}@127.0.0.1:{port}/app/"));
    for words in [
        &["status"][..],
        &["log"],
        &["acquire", "A"],
        &["release", "--force", "A"],
    ] {
        let outcome = sandbox.tenure().args(words).run();
        outcome.is_store_error("cannot log in to etcd at *: wrong user or password");
        assert!(!outcome.stderr.contains(SECRET), "{outcome:?}");
    }
    let words = ["acquire", "--json", "A"];
    let outcome = sandbox.tenure().args(words).run();
    outcome.exits(69).prints_with("\"reason\":\"store\"");
    assert!(!outcome.stdout.contains(SECRET), "{outcome:?}");
}

#[test]
fn user_and_password_come_from_the_url_the_environment_or_a_file_and_are_not_shown() {
    let server = guarded();
    let host = format!("127.0.0.1:{}/app/", server.port);
    works(
        &Sandbox::at(&format!("etcd://ann:{SECRET}@{host}")),
        |call| call,
    );
    let bare = Sandbox::at(&format!("etcd://{host}"));
    works(&bare, |call| {
        call.env("ETCDCTL_USER", format!("ann:{SECRET}"))
    });
    works(&bare, |call| {
        call.env("ETCDCTL_USER", "ann")
            .env("ETCDCTL_PASSWORD", SECRET)
    });
    let named = Sandbox::at(&format!("etcd://ann@{host}"));
    let file = named.path("password");
    fs::write(&file, format!("{SECRET}\nand no more\n")).expect("our own");
    works(&named, |call| call.env("TENURE_ETCD_PASSWORD_FILE", &file));
    let none = named.path("none");
    is_refused(
        &named,
        |call| call.env("TENURE_ETCD_PASSWORD_FILE", &none),
        "cannot read */none: no such file or directory",
    );
    let words = ["run", "A", "--", "true"];
    named
        .tenure()
        .args(words)
        .run()
        .is_usage_error("no password for user ann of etcd: *");
    // Nor is it in what was written to the server.
    let user = format!("--user=root:{SECRET}");
    let all = server.ask(&[&user, "get", "--prefix", ""]);
    assert!(all.contains("tenure") && !all.contains(SECRET), "{all}");
}

#[test]
fn a_pass_that_the_server_has_forgotten_is_asked_for_again() {
    let mut server = guarded();
    let url = format!("etcd://ann:{SECRET}@127.0.0.1:{}/app/", server.port);
    let sandbox = Sandbox::at(&url);
    let holder = sandbox.tenure().args(["run", "--ttl", "30s", "A"]).hold();
    server.kill();
    server.start_again();
    let outcome = holder.end();
    outcome.exits(0).says_nothing();
    assert!(!sandbox.is_busy("A"));
}

fn trusting<'a>(call: Call<'a>, server: &Server) -> Call<'a> {
    call.env("ETCDCTL_CACERT", server.path("ca.crt"))
}

#[test]
fn the_server_is_known_by_its_certificate() {
    let certify = |dir: &Path| certificates::make(dir, "localhost", "ann");
    let server = Server::start_with_tls(certify, false);
    let at = |host: &str| Sandbox::at(&format!("etcds://{host}:{}/", server.port));
    let (localhost, other) = (at("localhost"), at("127.0.0.1"));
    let outcome = trusting(localhost.tenure().args(["run", "A", "--", "true"]), &server).run();
    outcome.exits(0).says_nothing();
    is_refused(
        &other,
        |call| trusting(call, &server).env("ETCDCTL_USER", format!("ann:{SECRET}")),
        "cannot use etcd at 127.0.0.1:*: no TLS: its certificate is another host's",
    );
    let insecure = other.tenure().args(["run", "A", "--", "true"]);
    insecure
        .env("ETCDCTL_INSECURE_SKIP_TLS_VERIFY", "true")
        .run()
        .exits(0);
    is_refused(
        &localhost,
        |call| call,
        "cannot use etcd at localhost:*: no TLS: nobody who is trusted here has signed its certificate (ETCDCTL_CACERT *)",
    );
    is_refused(
        &localhost,
        |call| call.env("ETCDCTL_CACERT", "/none.crt"),
        "cannot read /none.crt: no such file or directory",
    );
    url_is_refused(
        &format!("etcd://localhost:{}/", server.port),
        "cannot reach etcd at localhost:*: it ended the connection; it may want TLS, for which the URL begins with etcds://, or be no etcd",
    );
    let plain = Server::start();
    url_is_refused(
        &format!("etcds://localhost:{}/", plain.port),
        "cannot reach etcd at localhost:*: it ended the connection; it may want no TLS, as etcd:// has it, or *, or be no etcd",
    );
}

#[test]
fn a_client_is_known_by_its_certificate() {
    let certify = |dir: &Path| certificates::make(dir, "localhost", "ann");
    let server = Server::start_with_tls(certify, true);
    let sandbox = Sandbox::at(&format!("etcds://localhost:{}/", server.port));
    let with = |call: Call<'_>, variables: &[(&str, &str)]| {
        let mut call = call;
        for (name, file) in variables {
            call = call.env(name, server.path(file));
        }
        call.run()
    };
    let run = || sandbox.tenure().args(["run", "A", "--", "true"]);
    let (authority, certificate, key) = (
        ("ETCDCTL_CACERT", "ca.crt"),
        ("ETCDCTL_CERT", "client.crt"),
        ("ETCDCTL_KEY", "client.key"),
    );
    with(run(), &[authority, certificate, key])
        .exits(0)
        .says_nothing();
    // The server's reason arrives before the connection ends, or does not.
    with(run(), &[authority])
        .is_store_error("cannot * etcd at localhost:*: *ended *ETCDCTL_CERT and ETCDCTL_KEY*");
    with(run(), &[authority, certificate])
        .is_store_error("cannot use ETCDCTL_CERT without ETCDCTL_KEY");
    let wrong = ("ETCDCTL_KEY", "client.crt");
    with(run(), &[authority, certificate, wrong])
        .is_store_error("cannot read */client.crt: there is no private key in it");
    let others = ("ETCDCTL_KEY", "server.key");
    with(run(), &[authority, certificate, others]).is_store_error(
        "cannot use ETCDCTL_CERT with ETCDCTL_KEY: the key is not that of the certificate",
    );
    let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(server.path("empty.crt"), text).expect("our own");
    with(run(), &[authority, ("ETCDCTL_CERT", "empty.crt"), key])
        .is_store_error("cannot use ETCDCTL_CERT with ETCDCTL_KEY: the certificate cannot be read");
}

#[test]
fn a_server_with_whom_there_can_be_no_tls_is_told_apart() {
    let certify = |dir: &Path| {
        certificates::make(dir, "localhost", "ann");
        certificates::show_authority(dir);
    };
    let refuses = |server: &Server, pattern: &str| {
        let sandbox = Sandbox::at(&format!("etcds://localhost:{}/", server.port));
        is_refused(&sandbox, |call| trusting(call, server), pattern);
    };
    refuses(
        &Server::start_with_tls(certify, false),
        "cannot use etcd at localhost:*: no TLS: its certificate is that of an authority, which cannot be a server's own: *",
    );
    // A kind of key that is not known here.
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-521"];
    let certify = |dir: &Path| certificates::make_with(dir, "localhost", "ann", &key);
    refuses(
        &Server::start_with_tls(certify, false),
        "cannot use etcd at localhost:*: no TLS: *: the two sides have no kind of encryption or of key in common, or *",
    );
}

/// What is at a port and is no etcd: whoever connects gets this answer, once he has asked, and then the connection ends, unless it
/// `stays`.
fn nonsense(answer: &'static [u8], stays: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut client in listener.incoming().flatten() {
            let _ = client.set_read_timeout(Some(ms(50)));
            let mut asked = [0; 4096];
            while client.read(&mut asked).is_ok_and(|count| count > 0) {}
            let _ = client.write_all(answer);
            if stays {
                open.push(client);
            }
        }
    });
    port
}

#[test]
fn what_is_no_etcd_is_told_apart() {
    let html =
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
    let empty = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let list = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]";
    let endless = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n";
    let cases: [(&'static [u8], bool, &str); 8] = [
        (
            b"220 mail.example ESMTP\r\n",
            false,
            "cannot use etcd at 127.0.0.1:*: it does not speak HTTP as etcd does",
        ),
        (
            b"\x00\xff\x13garbage\n\n",
            false,
            "cannot use etcd at 127.0.0.1:*: it does not speak HTTP as etcd does",
        ),
        (
            html,
            false,
            "cannot use etcd at 127.0.0.1:*: it answered as no etcd * (HTTP status 404)",
        ),
        (
            empty,
            false,
            "cannot use etcd at 127.0.0.1:*: it answered as no etcd *",
        ),
        (
            list,
            false,
            "cannot use etcd at 127.0.0.1:*: it answered as no etcd *",
        ),
        (
            endless,
            true,
            "cannot reach etcd at 127.0.0.1:*: no answer within *",
        ),
        (
            b"",
            true,
            "cannot reach etcd at 127.0.0.1:*: no answer within *",
        ),
        (b"", false, "cannot reach etcd at 127.0.0.1:*: *"),
    ];
    for (answer, stays, pattern) in cases {
        let port = nonsense(answer, stays);
        let outcome = url_is_refused(&format!("etcd://ann:{SECRET}@127.0.0.1:{port}/"), pattern);
        outcome.took(ms(0)..Duration::from_secs(12));
        url_is_refused(&format!("etcd://127.0.0.1:{port}/"), pattern);
    }
}

#[test]
fn a_file_that_a_variable_names_is_read_when_it_is_needed_and_not_before() {
    let server = Server::start();
    let none: PathBuf = "/none.crt".into();
    // Without TLS nobody looks at it.
    let call = server.sandbox();
    let call = call.tenure().args(["run", "A", "--", "true"]);
    call.env("ETCDCTL_CACERT", none).run().exits(0);
}
