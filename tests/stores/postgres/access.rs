//! Who may come in, and what those are told who may not: 69, the server and the cause, no secret, and CMD does not run.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::server::{SECRET, Server};
use crate::certificates;
use crate::servers::{free_port, run};
use crate::support::{Call, Outcome, Sandbox};

/// A `run` that is refused before its job starts.
#[track_caller]
fn is_refused(
    sandbox: &Sandbox,
    with: impl FnOnce(Call<'_>) -> Call<'_>,
    pattern: &str,
) -> Outcome {
    let proof = sandbox.path("ran");
    let call = sandbox
        .tenure()
        .args(["run", "A", "--", "touch"])
        .arg(&proof);
    let outcome = with(call).run();
    outcome.is_store_error(pattern);
    assert!(!proof.exists(), "{outcome:?}");
    assert!(!outcome.stderr.contains(SECRET), "{outcome:?}");
    outcome
}

#[track_caller]
fn url_is_refused(url: &str, pattern: &str) {
    is_refused(&Sandbox::at(url), |call| call, pattern);
}

#[test]
fn who_is_not_let_in_is_told_why_and_by_whom() {
    let server = Server::start("");
    let port = server.port;
    let wrong = format!("postgres://postgres:wrong{SECRET}@127.0.0.1:{port}/app");
    url_is_refused(
        &wrong,
        &format!(
            "cannot use postgres://127.0.0.1:{port}/app: password authentication failed for user \"postgres\""
        ),
    );
    url_is_refused(
        &format!("postgres://postgres@127.0.0.1:{port}/app"),
        "cannot use postgres://*/app: the server wants a password, and there is none in *",
    );
    url_is_refused(
        &server.url_of("postgres", "127.0.0.1", "nowhere"),
        "cannot use postgres://*/nowhere: database \"nowhere\" does not exist",
    );
    let closed = free_port();
    url_is_refused(
        &format!("postgres://postgres:{SECRET}@127.0.0.1:{closed}/app"),
        &format!("cannot reach postgres://127.0.0.1:{closed}/app: connection refused"),
    );
    url_is_refused(
        &format!("postgres://postgres:{SECRET}@127.0.0.1:2379/app"),
        "cannot reach postgres://127.0.0.1:2379/app: *; this is etcd's port, whose URL begins with etcd://",
    );
    url_is_refused(
        &format!("postgres://postgres:{SECRET}@nobody.invalid/app"),
        "cannot reach postgres://nobody.invalid/app: failed to lookup address information: *",
    );
    let hba = server.path("data/pg_hba.conf");
    let rules = fs::read_to_string(&hba).expect("initdb made it");
    fs::write(&hba, format!("host all ann all reject\n{rules}")).expect("our own");
    server.sql(&["create role bob", "select pg_reload_conf()"]);
    url_is_refused(
        &server.url_of("ann", "127.0.0.1", "postgres"),
        "cannot use postgres://*/postgres: pg_hba.conf rejects connection for host \"127.0.0.1\", user \"ann\", *",
    );
}

#[test]
fn the_password_comes_from_the_environment_or_a_file_and_is_never_shown() {
    let server = Server::start("");
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let sandbox = Sandbox::at(&url);
    let words = ["run", "-v", "A", "--", "env"];
    let outcome = sandbox.tenure().args(words).env("PGPASSWORD", SECRET).run();
    outcome.exits(0);
    assert!(!outcome.stderr.contains(SECRET), "{outcome:?}");

    let file = sandbox.path("passwords");
    fs::write(
        &file,
        format!("elsewhere:*:*:*:x\n127.0.0.1:*:*:postgres:{SECRET}\n"),
    )
    .expect("our own");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our own");
    sandbox
        .tenure()
        .args(words)
        .env("PGPASSFILE", &file)
        .run()
        .exits(0);
    let home = sandbox.path(".pgpass");
    fs::copy(&file, &home).expect("our own");
    sandbox
        .tenure()
        .args(words)
        .env("HOME", sandbox.dir())
        .run()
        .exits(0);

    fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("our own");
    let open = is_refused(
        &sandbox,
        |call| call.env("PGPASSFILE", &file),
        "cannot use *: the server wants a password, and there is none in *passwords was left aside, for others can read it (chmod 600)",
    );
    open.exits(69);

    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A"]);
    for words in [
        &["status"][..],
        &["status", "A"],
        &["log"],
        &["release", "-v", "--token", &token],
    ] {
        let outcome = sandbox.tenure().args(words).run();
        outcome.exits(0);
        assert!(
            !outcome.stdout.contains(SECRET) && !outcome.stderr.contains(SECRET),
            "{outcome:?}"
        );
    }
    let rows = server.sql(&["select * from tenure.log"]);
    assert!(!rows.contains(SECRET), "{rows}");
}

#[test]
fn the_environment_says_what_the_url_does_not() {
    let server = Server::start("");
    let sandbox = Sandbox::at("postgres://");
    let call = sandbox.tenure().args(["run", "-v", "A", "--", "true"]);
    let outcome = call
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", server.port.to_string())
        .env("PGUSER", "postgres")
        .env("PGPASSWORD", SECRET)
        .env("PGDATABASE", "postgres")
        .env("PGSSLMODE", "disable")
        .run();
    outcome.exits(0);
    assert!(
        outcome.stderr.contains(&format!(
            "(in postgres://127.0.0.1:{}/postgres)",
            server.port
        )),
        "{outcome:?}"
    );
    // By its socket, and the second of two servers where the first is not there.
    let dir = server.dir().display();
    let url = format!(
        "postgres:///postgres?host={dir}&port={}&user=postgres&password={SECRET}",
        server.port
    );
    let by_socket = Sandbox::at(&url);
    let outcome = by_socket
        .tenure()
        .args(["run", "-v", "A", "--", "true"])
        .run();
    outcome.exits(0);
    let location = format!("(in postgres:///postgres?host={dir}&port={})", server.port);
    assert!(outcome.stderr.contains(&location), "{outcome:?}");
    let url = format!(
        "postgres://postgres:{SECRET}@127.0.0.1:{},127.0.0.1:{}/postgres",
        free_port(),
        server.port
    );
    Sandbox::at(&url)
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
}

#[test]
fn a_url_that_makes_no_sense_is_a_usage_error() {
    for (url, why) in [
        ("postgres://a:s3cret@h:x/d", "*\"x\" is no port"),
        (
            "postgres://a:s3cret@h/d?sslmode=x",
            "*there is no sslmode \"x\"",
        ),
        (
            "postgres://a:s3cret@h/d?sslrot=x",
            "*there is no parameter \"sslrot\"",
        ),
        (
            "postgres://a:s3cret@h/d?target_session_attrs=standby",
            "cannot read the URL *target_session_attrs=standby is of no use: *",
        ),
    ] {
        let sandbox = Sandbox::at(url);
        let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
        outcome.is_usage_error(why);
        assert!(!outcome.stderr.contains("s3cret"), "{outcome:?}");
    }
}

#[test]
fn a_variable_that_cannot_be_obeyed_is_a_usage_error_and_not_passed_over() {
    let sandbox = Sandbox::at("postgres://a:s3cret@127.0.0.1:1/d");
    for (name, value, why) in [
        ("PGSERVICE", "ops", "this program does not have service=ops"),
        (
            "PGREQUIRESSL",
            "1",
            "this program does not have requiressl=1",
        ),
        (
            "PGGSSENCMODE",
            "require",
            "this program does not have gssencmode=require",
        ),
        ("PGHOSTADDR", "nowhere", "\"nowhere\" is no address"),
        (
            "PGTARGETSESSIONATTRS",
            "bogus",
            "there is no target_session_attrs \"bogus\"",
        ),
    ] {
        let call = sandbox.tenure().arg("status").env(name, value);
        let outcome = call.run();
        outcome.is_usage_error(&format!("cannot read {name}: {why}"));
        assert!(!outcome.stderr.contains("s3cret"), "{outcome:?}");
    }
    let call = sandbox.tenure().arg("status").env("PGREQUIRESSL", "0");
    call.env("PGGSSENCMODE", "prefer")
        .run()
        .is_store_error("cannot reach *: connection refused");
}

#[test]
fn an_address_stands_for_a_name_that_nobody_knows() {
    let server = Server::start("");
    let url = server.url_of("postgres", "db.invalid", "postgres");
    let words = ["run", "A", "--", "true"];
    let call = Sandbox::at(&url);
    let call = call.tenure().args(words).env("PGHOSTADDR", "127.0.0.1");
    call.run().exits(0);
    let rest = "hostaddr=127.0.0.1&keepalives_idle=9&tcp_user_timeout=9000&gssencmode=disable&fallback_application_name=x";
    let sandbox = Sandbox::at(&format!("{url}?{rest}"));
    sandbox.tenure().args(words).run().exits(0);
}

#[test]
fn who_may_not_make_the_schema_is_told_and_may_use_one_that_is_made() {
    let server = Server::start("");
    let make_role = format!("create role ann login password '{SECRET}'");
    server.sql(&[&make_role, "create database app"]);
    let url = server.url_of("ann", "127.0.0.1", "app");
    url_is_refused(
        &url,
        "cannot make the schema tenure in postgres://*/app: permission denied for database app (*schema.sql*)",
    );
    let sandbox = Sandbox::at(&url);
    sandbox
        .tenure()
        .arg("status")
        .run()
        .is_store_error("cannot open postgres://*/app: there is no schema tenure in it yet *");

    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/postgres/schema.sql");
    let text = fs::read_to_string(schema).expect("it is there");
    server.sql_in("app", &[&text]);
    url_is_refused(
        &url,
        "cannot use postgres://*/app: permission denied for schema tenure (*grant*)",
    );
    // As its first lines say.
    let grants = [
        "grant usage on schema tenure to ann",
        "grant select, insert, update, delete on all tables in schema tenure to ann",
    ];
    server.sql_in("app", &grants);
    let token = sandbox.acquire(["A"]);
    assert!(sandbox.is_busy("A"));
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    sandbox
        .tenure()
        .args(["log", "A"])
        .run()
        .exits(0)
        .prints_with("released");

    // A schema of that name that she owns is filled.
    server.sql(&["create database own"]);
    server.sql_in("own", &["create schema tenure authorization ann"]);
    let sandbox = Sandbox::at(&server.url_of("ann", "127.0.0.1", "own"));
    sandbox.acquire(["A"]);
}

#[test]
fn a_layout_of_others_or_of_the_future_is_refused_and_left_as_it_was() {
    let server = Server::start("");
    server.sql(&["create database other", "create database later"]);
    server.sql_in(
        "other",
        &["create schema tenure", "create table tenure.state (x text)"],
    );
    url_is_refused(
        &server.url_of("postgres", "127.0.0.1", "other"),
        "cannot use postgres://*/other: * (the schema tenure in it is not one of this program)",
    );
    let tables = "select string_agg(tablename, ',') from pg_tables where schemaname = 'tenure'";
    assert_eq!(server.sql_in("other", &[tables]), "state");
    let later = Sandbox::at(&server.url_of("postgres", "127.0.0.1", "later"));
    later.acquire(["A"]);
    server.sql_in("later", &["update tenure.state set layout = 2"]);
    is_refused(
        &later,
        |call| call,
        "cannot use postgres://*/later: its layout is 2, of a newer tenure than this one, which knows 1",
    );
    later
        .tenure()
        .arg("status")
        .run()
        .is_store_error("*its layout is 2*");
}

#[test]
fn a_server_that_takes_no_changes_says_so() {
    let server = Server::start("");
    server.sandbox().acquire(["A"]);
    fs::write(server.path("data/standby.signal"), "").expect("our own");
    let mut server = server;
    server.kill();
    server.start_again();
    let sandbox = server.sandbox();
    is_refused(
        &sandbox,
        |call| call,
        "cannot use postgres://*/postgres: *recovery*",
    );
    // But it tells who has what, unless nobody is to be asked who takes no changes.
    assert_eq!(sandbox.status()[0]["name"], "A");
    let strict = Sandbox::at(&format!("{}?target_session_attrs=primary", server.url()));
    let refused = strict.tenure().arg("status").run();
    refused.is_store_error("cannot reach postgres://*/postgres: it takes no changes *");
}

fn certify(dir: &Path) {
    certificates::make(dir, "localhost", "postgres");
    run(Command::new("chown")
        .args(["postgres", "server.key"])
        .current_dir(dir));
}

/// A server whose certificates are in its directory.
fn start_with_tls() -> Server {
    let mut server = Server::start("");
    certify(server.dir());
    let dir = server.dir().display().to_string();
    server.sql(&[
        "alter system set ssl = on",
        &format!("alter system set ssl_cert_file = '{dir}/server.crt'"),
        &format!("alter system set ssl_key_file = '{dir}/server.key'"),
        &format!("alter system set ssl_ca_file = '{dir}/ca.crt'"),
    ]);
    server.kill();
    server.start_again();
    server
}

#[test]
fn the_server_is_known_by_its_certificate() {
    let server = start_with_tls();
    let dir = server.dir().display().to_string();
    let url =
        |host: &str, rest: &str| format!("{}?{rest}", server.url_of("postgres", host, "postgres"));
    let works = |url: &str| {
        let sandbox = Sandbox::at(url);
        let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
        outcome.exits(0).says_nothing();
    };
    let full = format!("sslmode=verify-full&sslrootcert={dir}/ca.crt");
    works(&url("localhost", &full));
    works(&url(
        "127.0.0.1",
        &format!("sslmode=verify-ca&sslrootcert={dir}/ca.crt"),
    ));
    works(&url("127.0.0.1", "sslmode=require"));
    works(&url("127.0.0.1", "sslmode=disable"));
    // The name of another host.
    url_is_refused(
        &url("127.0.0.1", &full),
        "cannot reach postgres://127.0.0.1:*/postgres: no TLS: its certificate is another host's",
    );
    // Signed by nobody who is known.
    let others = Sandbox::new();
    certify(&others.dir());
    let rest = format!(
        "sslmode=verify-full&sslrootcert={}/ca.crt",
        others.dir().display()
    );
    url_is_refused(
        &url("localhost", &rest),
        "cannot reach postgres://localhost:*/postgres: no TLS: nobody who is trusted here has signed its certificate, though one has the signer's name (sslrootcert *)",
    );
    url_is_refused(
        &url("localhost", "sslmode=verify-full&sslrootcert=/none.crt"),
        "cannot read /none.crt: no such file or directory",
    );

    // Whoever has a certificate needs no password, and without it is not let in.
    let hba = server.path("data/pg_hba.conf");
    fs::write(&hba, "hostssl all all all cert\nlocal all all trust\n").expect("our own");
    run(Command::new("psql")
        .args([
            "-q",
            "-X",
            "-h",
            &dir,
            "-p",
            &server.port.to_string(),
            "-U",
            "postgres",
        ])
        .args(["-c", "select pg_reload_conf()"])
        .env("PGPASSWORD", SECRET));
    let own = format!("{full}&sslcert={dir}/client.crt&sslkey={dir}/client.key");
    works(&format!(
        "postgres://postgres@localhost:{}/postgres?{own}",
        server.port
    ));
    url_is_refused(
        &url(
            "localhost",
            &format!("sslcert={dir}/client.crt&sslkey={dir}/ca.key"),
        ),
        "cannot use */client.crt with */ca.key: the key is not that of the certificate",
    );
    // Of an authority that the server does not know.
    let theirs = others.dir().display().to_string();
    url_is_refused(
        &url(
            "localhost",
            &format!("{full}&sslcert={theirs}/client.crt&sslkey={theirs}/client.key"),
        ),
        "cannot reach postgres://localhost:*/postgres: no TLS: it ended the TLS handshake (*); sslcert and sslkey say who we are",
    );
    let without = format!(
        "postgres://postgres@localhost:{}/postgres?{full}",
        server.port
    );
    url_is_refused(
        &without,
        "cannot use postgres://localhost:*/postgres: *certificate*",
    );
    let plain = format!(
        "postgres://postgres@localhost:{}/postgres?sslmode=disable",
        server.port
    );
    url_is_refused(
        &plain,
        "cannot use postgres://localhost:*/postgres: no pg_hba.conf entry *",
    );
}

#[test]
fn a_certificate_of_an_authority_is_told_apart() {
    let mut server = start_with_tls();
    certificates::show_authority(server.dir());
    server.kill();
    server.start_again();
    let authority = server.path("ca.crt").display().to_string();
    let url = server.url_of("postgres", "localhost", "postgres");
    url_is_refused(
        &format!("{url}?sslmode=verify-full&sslrootcert={authority}"),
        "cannot reach postgres://localhost:*/postgres: no TLS: its certificate is that of an authority, which cannot be a server's own: *",
    );
}
