//! Speaks with the members of a cluster: the JSON gateway of etcd's v3 API, over HTTP. Each request is bounded in time, and
//! goes to the next member where one does not answer: whatever is sent here may arrive twice, and must do no harm then.

use std::fmt;
use std::fs;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use super::target::{Target, Tls};
use super::wire::{self, Addresses, Heed, Limit};
use crate::store::tls::{self, Terms};
use crate::wait;

/// The least time that a member has before the next is asked: an election takes about a second.
const LEAST_TRY: Duration = Duration::from_millis(500);

/// How long a member may take to answer the knock: far more than around the world and back.
const CONNECT: Duration = Duration::from_secs(2);

/// The pause before all members are asked again of whom one said that it cannot answer yet.
const ELECTION: Duration = Duration::from_millis(200);

/// How long a connection is kept that nobody uses: so long every router remembers it that keeps account of such.
const KEPT: Duration = Duration::from_mins(1);

/// How much of an answer is read: etcd's own bound is far below, and what is not etcd may never end.
const MOST_BYTES: u64 = 256 * 1024 * 1024;

/// Where systems keep the authorities that they trust.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const TERMS: Terms = Terms {
    authorities: "ETCDCTL_CACERT",
    own: "ETCDCTL_CERT and ETCDCTL_KEY",
    plain: "etcd://",
};

/// gRPC's numbers for why a request was not done.
mod code {
    pub const INVALID: i64 = 3;
    pub const DEADLINE: i64 = 4;
    pub const NOT_FOUND: i64 = 5;
    pub const DENIED: i64 = 7;
    pub const EXHAUSTED: i64 = 8;
    pub const PRECONDITION: i64 = 9;
    pub const UNAVAILABLE: i64 = 14;
    pub const UNAUTHENTICATED: i64 = 16;
}

/// Why there is no answer to a request.
#[derive(Debug)]
pub enum Fault {
    /// Nobody answered. What was asked for may be done or not.
    Away(String),
    /// The server said no; nothing was done.
    Refused { code: i64, message: String },
    /// This cannot go well however often it is tried.
    Hopeless(String),
    /// A signal has come that ends the program. What was asked for may be done or not.
    Interrupted,
}

impl Fault {
    /// Whether a server that is back may have another answer.
    pub fn is_away(&self) -> bool {
        matches!(self, Fault::Away(_))
    }

    /// The user may not do that.
    pub fn is_denied(&self) -> bool {
        matches!(self, Fault::Refused { code, .. } if *code == code::DENIED)
    }

    /// There is no lease of that number.
    pub fn is_no_lease(&self) -> bool {
        matches!(self, Fault::Refused { code, message } if *code == code::NOT_FOUND && message.contains("lease"))
    }

    /// There is one already.
    pub fn is_lease_taken(&self) -> bool {
        matches!(self, Fault::Refused { code, message } if *code == code::PRECONDITION && message.contains("exists"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Away(why) | Fault::Hopeless(why) => f.write_str(why),
            Fault::Refused { message, .. } => f.write_str(message),
            Fault::Interrupted => f.write_str("interrupted by a signal"),
        }
    }
}

impl std::error::Error for Fault {}

/// A cluster as a client sees it. A clone is for another thread: it shares nothing that one waits for.
#[derive(Clone)]
pub struct Client {
    target: Arc<Target>,
    /// For requests with one answer. A stream that took a connection of these would leave the next request to make a new one, and
    /// what a stream tells is that others wait for that request.
    agent: Agent,
    addresses: Addresses,
    /// Of requests with one answer.
    pub heed: Heed,
    /// The member that answered last.
    current: Arc<AtomicUsize>,
    /// One has answered, so they are what they are taken for.
    is_known: Arc<AtomicBool>,
    /// What a login gave.
    pass: Arc<Mutex<Option<String>>>,
}

impl Client {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// A file for TLS cannot be read.
    pub fn new(target: Arc<Target>) -> Result<Self> {
        let mut config = Agent::config_builder()
            // What a proxy of the web's would make of requests that last for hours is not worth knowing.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .max_idle_age(KEPT)
            .user_agent("tenure");
        if let Some(tls) = &target.tls {
            config = config.tls_config(tls_config(tls)?);
        }
        let (config, addresses) = (config.build(), Addresses::default());
        let heed = Heed::default();
        Ok(Self {
            target,
            agent: wire::agent(config, addresses.clone(), heed.clone(), Limit::default()),
            addresses,
            heed,
            current: Arc::default(),
            is_known: Arc::default(),
            pass: Arc::default(),
        })
    }

    /// The member that answered last.
    pub fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed) % self.target.endpoints.len()
    }

    /// Asks, and returns the answer, within `bound`.
    pub fn call(&self, path: &str, body: &Value, bound: Duration) -> Result<Value, Fault> {
        let deadline = Instant::now() + bound;
        let members = self.target.endpoints.len();
        let first = self.current();
        let share = (bound / u32::try_from(members).unwrap_or(u32::MAX)).max(LEAST_TRY);
        let mut faults: Vec<String> = vec![String::new(); members];
        // A connection that was kept may have been closed by a server that was restarted since: that costs a try and no time.
        for round in 0.. {
            let mut is_being_elected = false;
            for step in 0..members {
                let member = (first + step) % members;
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(self.away(&faults));
                }
                match self.ask_with_pass(member, path, body, share.min(left)) {
                    Ok(answer) => {
                        self.current.store(member, Ordering::Relaxed);
                        self.is_known.store(true, Ordering::Relaxed);
                        return Ok(answer);
                    }
                    Err(Fault::Away(why)) => {
                        self.addresses.forget();
                        faults[member] = why;
                    }
                    Err(Fault::Refused {
                        code: code::UNAVAILABLE | code::DEADLINE,
                        message,
                    }) => {
                        is_being_elected = true;
                        faults[member] = message;
                    }
                    Err(fault) => return Err(fault),
                }
            }
            if round > 0 && !is_being_elected {
                break;
            }
            if is_being_elected {
                wait::pause(ELECTION.min(deadline.saturating_duration_since(Instant::now())));
            }
        }
        Err(self.away(&faults))
    }

    /// All that went wrong, member by member.
    fn away(&self, faults: &[String]) -> Fault {
        let each = self.target.endpoints.iter().zip(faults);
        let each = each.filter(|(_, fault)| !fault.is_empty());
        let each: Vec<String> = each.map(|(host, why)| format!("{host}: {why}")).collect();
        let list = if each.is_empty() {
            format!("{}: no answer in time", self.target.endpoints.join(", "))
        } else {
            each.join("; ")
        };
        Fault::Away(format!("cannot reach etcd at {list}"))
    }

    /// One try with one member, which may want a login first, or again.
    fn ask_with_pass(
        &self,
        member: usize,
        path: &str,
        body: &Value,
        bound: Duration,
    ) -> Result<Value, Fault> {
        self.log_in(member, bound)?;
        match self.ask(member, path, body, bound) {
            Err(Fault::Refused { code, message }) if is_stale_pass(code, &message) => {
                *self.pass() = None;
                self.log_in(member, bound)?;
                self.ask(member, path, body, bound)
            }
            other => other,
        }
        .map_err(|fault| self.explained(member, fault))
    }

    fn pass(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_in(&self, member: usize, bound: Duration) -> Result<(), Fault> {
        let Some(login) = &self.target.login else {
            return Ok(());
        };
        if self.pass().is_some() {
            return Ok(());
        }
        let body = json!({ "name": login.user, "password": login.password });
        let pass = match self.ask(member, "auth/authenticate", &body, bound) {
            Ok(answer) => answer["token"].as_str().unwrap_or_default().to_owned(),
            // A server that asks nobody who he is takes everybody, as etcdctl has it.
            Err(Fault::Refused {
                code: code::PRECONDITION,
                ..
            }) => String::new(),
            Err(Fault::Refused {
                code: code::INVALID,
                ..
            }) => {
                return Err(Fault::Hopeless(format!(
                    "cannot log in to etcd at {} as {}: wrong user or password",
                    self.target.endpoints[member], login.user
                )));
            }
            Err(fault) => return Err(self.explained(member, fault)),
        };
        *self.pass() = Some(pass);
        Ok(())
    }

    /// A refusal, with who refused.
    fn explained(&self, member: usize, fault: Fault) -> Fault {
        let host = &self.target.endpoints[member];
        match fault {
            Fault::Refused { message, .. } if message.contains("user name is empty") => {
                Fault::Hopeless(format!(
                    "cannot use etcd at {host}: it wants a user and a password, as in ETCDCTL_USER and ETCDCTL_PASSWORD"
                ))
            }
            Fault::Refused { code, message }
                if ![code::UNAVAILABLE, code::DEADLINE].contains(&code) =>
            {
                let message = message.trim_start_matches("etcdserver: ");
                Fault::Refused {
                    code,
                    message: format!("cannot use etcd at {host}: {message}"),
                }
            }
            Fault::Hopeless(why) => Fault::Hopeless(format!("cannot use etcd at {host}: {why}")),
            other => other,
        }
    }

    /// One request, one answer.
    fn ask(
        &self,
        member: usize,
        path: &str,
        body: &Value,
        bound: Duration,
    ) -> Result<Value, Fault> {
        let response = self.send(&self.agent, member, path, body.to_string(), Some(bound));
        let mut response = response.map_err(|error| self.fault_of(&error, bound))?;
        let status = response.status().as_u16();
        let is_json = response
            .body()
            .mime_type()
            .is_some_and(|kind| kind == "application/json");
        let text = response
            .body_mut()
            .with_config()
            .limit(MOST_BYTES)
            .read_to_string()
            .map_err(|error| self.fault_of(&error, bound))?;
        let foreign = || {
            Fault::Hopeless(format!(
                "it answered as no etcd of version 3.4 or newer does (HTTP status {status})"
            ))
        };
        let answer = serde_json::from_str::<Value>(&text)
            .ok()
            .filter(|_| is_json);
        let mut answer = answer.ok_or_else(foreign)?;
        // Of a stream that has one answer.
        if !answer["result"].is_null() {
            answer = answer["result"].take();
        }
        match refusal(&answer) {
            Some(fault) => Err(fault),
            // What is said of all answers: which cluster gives it.
            None if !answer["header"].is_object() => Err(foreign()),
            None => Ok(answer),
        }
    }

    fn fault_of(&self, error: &ureq::Error, bound: Duration) -> Fault {
        let ureq::Error::Io(cause) = error else {
            return fault_of(error, bound);
        };
        let has_ended = matches!(
            cause.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::UnexpectedEof
        );
        // A server says no more to those of whom it wants something else.
        let may_want = match &self.target.tls {
            _ if !has_ended || self.is_known.load(Ordering::Relaxed) => {
                return fault_of(error, bound);
            }
            None => "TLS, for which the URL begins with etcds://",
            Some(tls) if tls.certificate.is_none() => {
                "no TLS, as etcd:// has it, or a certificate of ours, as in ETCDCTL_CERT and ETCDCTL_KEY"
            }
            Some(_) => return fault_of(error, bound),
        };
        Fault::Away(format!(
            "it ended the connection; it may want {may_want}, or be no etcd"
        ))
    }

    fn send(
        &self,
        agent: &Agent,
        member: usize,
        path: &str,
        body: String,
        bound: Option<Duration>,
    ) -> Result<Response<Body>, ureq::Error> {
        let scheme = if self.target.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let url = format!("{scheme}://{}/v3/{path}", self.target.endpoints[member]);
        let mut request = agent.post(url).header("Content-Type", "application/json");
        if let Some(pass) = self.pass().as_ref().filter(|pass| !pass.is_empty()) {
            request = request.header("Authorization", pass);
        }
        request
            .config()
            .timeout_global(bound)
            .timeout_connect(Some(bound.map_or(CONNECT, |bound| bound.min(CONNECT))))
            .build()
            .send(body)
    }

    /// A stream of answers from the member that answered last, which has no end of its own, and what ends it: the limit to
    /// waiting for more, at first none.
    ///
    /// # Errors
    /// It has not begun.
    pub fn stream(
        &self,
        path: &str,
        requests: &[Value],
    ) -> Result<(impl Read + use<>, Limit), Fault> {
        let limit = Limit::default();
        let agent = wire::agent(
            self.agent.config().clone(),
            self.addresses.clone(),
            Heed::default(),
            limit.clone(),
        );
        let requests: Vec<String> = requests.iter().map(Value::to_string).collect();
        let response = self.send(&agent, self.current(), path, requests.join("\n"), None);
        let response = response.map_err(|error| fault_of(&error, CONNECT))?;
        if !response.status().is_success() {
            return Err(Fault::Away(format!("HTTP status {}", response.status())));
        }
        let body = response.into_body().into_with_config();
        let stream = BufReader::new(body.limit(u64::MAX).reader());
        Ok((stream, limit))
    }
}

/// The pass is too old, or the server has forgotten it.
fn is_stale_pass(code: i64, message: &str) -> bool {
    code == code::UNAUTHENTICATED
        || message.contains("revision") && message.contains("old") && message.contains("auth")
}

/// What an answer says of a failure, whether it is a whole answer or one of a stream.
pub fn refusal(answer: &Value) -> Option<Fault> {
    let (code, message) = match &answer["error"] {
        Value::Null => return None,
        Value::Object(error) => (&error["grpc_code"], &error["message"]),
        text => (&answer["code"], text),
    };
    let code = code.as_i64().unwrap_or_default();
    let message = message.as_str().unwrap_or("no reason was given").to_owned();
    // Also said of a full disk, which does not pass.
    let code = if code == code::EXHAUSTED && message.contains("too many requests") {
        code::UNAVAILABLE
    } else {
        code
    };
    Some(Fault::Refused { code, message })
}

fn fault_of(error: &ureq::Error, bound: Duration) -> Fault {
    match error {
        ureq::Error::Timeout(_) => {
            let bound = crate::duration::show(bound);
            Fault::Away(format!("no answer within {bound}"))
        }
        ureq::Error::HostNotFound => Fault::Away("there is no host of this name".into()),
        ureq::Error::Rustls(error) => Fault::Hopeless(tls::why(error, &TERMS)),
        ureq::Error::Io(error) => of_io(error),
        ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) => {
            Fault::Hopeless("it does not speak HTTP as etcd does".into())
        }
        other => Fault::Away(other.to_string()),
    }
}

fn of_io(error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::Interrupted {
        return Fault::Interrupted;
    }
    if let Some(error) = tls::within(error) {
        return Fault::Hopeless(tls::why(error, &TERMS));
    }
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or(&text);
    if text.starts_with("failed to lookup address") {
        return Fault::Away("there is no host of this name".into());
    }
    let mut text = text.to_owned();
    text[..1].make_ascii_lowercase();
    Fault::Away(text)
}

fn tls_config(tls: &Tls) -> Result<TlsConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = match (&tls.certificate, &tls.key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let text = fs::read(key).with_context(|| format!("cannot read {}", key.display()))?;
            let key = PrivateKey::from_pem(&text).map_err(|_| {
                anyhow!(
                    "cannot read {}: there is no private key in it",
                    key.display()
                )
            })?;
            fits(&chain, &text, &provider)?;
            Some(ClientCert::new_with_certs(&chain, key))
        }
        (Some(_), None) => bail!("cannot use ETCDCTL_CERT without ETCDCTL_KEY"),
        (None, Some(_)) => bail!("cannot use ETCDCTL_KEY without ETCDCTL_CERT"),
    };
    let roots = match &tls.authorities {
        _ if tls.is_insecure => Vec::new(),
        Some(path) => certificates(path)?,
        None => {
            let known = SYSTEM_AUTHORITIES.iter().map(Path::new);
            let known = known.into_iter().find(|path| path.exists());
            known.map(certificates).transpose()?.unwrap_or_default()
        }
    };
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(client)
        .disable_verification(tls.is_insecure)
        .build())
}

/// The client makes no error of a pair that it cannot use: it panics.
fn fits(chain: &[Certificate<'_>], key: &[u8], provider: &CryptoProvider) -> Result<()> {
    let of_chain = |one: &Certificate<'_>| CertificateDer::from(one.der()).into_owned();
    let chain = chain.iter().map(of_chain).collect();
    let cannot = "cannot use ETCDCTL_CERT with ETCDCTL_KEY";
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| anyhow!("{cannot}: {error}"))?;
    CertifiedKey::from_der(chain, key, provider)
        .map(drop)
        .map_err(|error| anyhow!("{cannot}: {}", tls::why_not_ours(&error)))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let items = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = items.collect();
    if certificates.is_empty() {
        bail!(
            "cannot read {}: there is no certificate in it",
            path.display()
        );
    }
    Ok(certificates)
}
