//! Encryption for the client: rustls, asked for as libpq's `sslmode` has it.

use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use anyhow::{Context, Result, anyhow, bail};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, InconsistentKeys, RootCertStore,
    SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::target::{Encryption, Tls};
use crate::store::tls::why_not_ours;

/// Where systems keep the authorities that they trust.
const SYSTEM_ROOTS: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Makes connections encrypted.
#[derive(Clone)]
pub struct Connector(Arc<ClientConfig>);

impl Connector {
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn new(tls: &Tls) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let signer = |key| provider.key_provider.load_private_key(key);
        let lenient = |authorities| {
            let provider = Arc::clone(&provider);
            Arc::new(Lenient {
                provider,
                authorities,
            })
        };
        let verifier: Arc<dyn ServerCertVerifier> = match tls.encryption {
            Encryption::None | Encryption::Preferred | Encryption::Required => lenient(None),
            Encryption::NamedServer => of_authorities(tls, &provider)?,
            Encryption::KnownServer => lenient(Some(of_authorities(tls, &provider)?)),
        };
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .context("cannot use TLS")?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &tls.own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let read = PrivateKeyDer::from_pem_file(key);
                let read = read
                    .map_err(|error| anyhow!("{error}"))
                    .with_context(|| format!("cannot read {}", key.display()))?;
                let signer =
                    signer(read).with_context(|| format!("cannot use {}", key.display()))?;
                let own = CertifiedKey::new(chain, signer);
                // Whether it is any good is for the server to say: it takes old kinds that are not known here.
                if let Err(error @ rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) =
                    own.keys_match()
                {
                    bail!(
                        "cannot use {} with {}: {}",
                        certificate.display(),
                        key.display(),
                        why_not_ours(&error)
                    );
                }
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
        };
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => bail!(
            "cannot use {}: there is no certificate in it",
            path.display()
        ),
    }
}

fn of_authorities(tls: &Tls, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
    let path = match &tls.root {
        Some(path) => path.clone(),
        None => system_roots().context("cannot verify the server: there is no sslrootcert")?,
    };
    let mut roots = RootCertStore::empty();
    // A system's list may have some that are not understood here.
    roots.add_parsable_certificates(certificates(&path)?);
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .with_context(|| format!("cannot use {}", path.display()))
}

fn system_roots() -> Option<PathBuf> {
    let said = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let usual = SYSTEM_ROOTS.iter().map(PathBuf::from);
    said.into_iter().chain(usual).find(|path| path.exists())
}

/// Less strict than usual. Without `authorities` the server may be whoever it is: that is against those who listen, and not
/// those who stand in between. With them it is one whom they know, by whatever name.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        // The name is looked at last.
        match authorities.verify_server_cert(certificate, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Encrypted;
    type TlsConnect = ToServer;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<ToServer, Self::Error> {
        // A socket's directory is no name, and its connections are not encrypted.
        let name = if domain.starts_with('/') || domain.is_empty() {
            "localhost"
        } else {
            domain
        };
        Ok(ToServer {
            config: Arc::clone(&self.0),
            name: ServerName::try_from(name)?.to_owned(),
        })
    }
}

/// A handshake with a server of this name.
pub struct ToServer {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for ToServer {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(self.config);
            Ok(Encrypted(connector.connect(self.name, stream).await?))
        })
    }
}

pub struct Encrypted(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(task, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(task)
    }
}
