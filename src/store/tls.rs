//! TLS with whatever server: what goes wrong with it, in words for people, and whether our own certificate can be shown at all.

use std::io;

use rustls::AlertDescription as Alert;
use rustls::CertificateError as Cause;
use rustls::{Error, InconsistentKeys};

/// What a store calls that which its users can change.
pub struct Terms {
    /// What says whom to trust.
    pub authorities: &'static str,
    /// What says who we are.
    pub own: &'static str,
    /// How to do without TLS.
    pub plain: &'static str,
}

/// The error of TLS in a chain of errors.
#[cfg(feature = "postgres")]
pub fn cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        let found = error.downcast_ref();
        if let Some(found) = found.or_else(|| within(error.downcast_ref()?)) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The error of TLS that an error of a connection is for: its source would be that one's source.
pub fn within(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Why there is no TLS with a server.
pub fn why(error: &Error, terms: &Terms) -> String {
    let Terms {
        authorities,
        own,
        plain,
    } = terms;
    let why = match error {
        Error::InvalidCertificate(cause) => of_certificate(cause, authorities),
        Error::InvalidMessage(_) => format!("it does not speak TLS; {plain} does without"),
        Error::PeerIncompatible(_) => "the two sides have no kind of encryption in common".into(),
        Error::AlertReceived(alert) => match alert {
            // Of a server that wants a certificate, too, if its TLS is 1.2.
            Alert::HandshakeFailure => format!(
                "it ended the TLS handshake ({alert:?}): the two sides have no kind of encryption or of key in common, or it wants a certificate of ours ({own})"
            ),
            Alert::ProtocolVersion | Alert::InsufficientSecurity => format!(
                "it ended the TLS handshake ({alert:?}): the two sides have no version of TLS or no kind of encryption in common"
            ),
            Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
            | Alert::CertificateRequired => {
                format!("it ended the TLS handshake ({alert:?}); {own} say who we are")
            }
            _ => format!("it ended the TLS handshake ({alert:?})"),
        },
        other => other.to_string(),
    };
    format!("no TLS: {why}")
}

fn of_certificate(cause: &Cause, authorities: &str) -> String {
    let why = match cause {
        Cause::UnknownIssuer => {
            return format!(
                "nobody who is trusted here has signed its certificate ({authorities} says whom to trust)"
            );
        }
        Cause::BadSignature => {
            return format!(
                "nobody who is trusted here has signed its certificate, though one has the signer's name ({authorities} says whom to trust)"
            );
        }
        Cause::NotValidForName | Cause::NotValidForNameContext { .. } => "is another host's",
        Cause::Expired | Cause::ExpiredContext { .. } => "has expired",
        Cause::NotValidYet | Cause::NotValidYetContext { .. } => "is not valid yet",
        Cause::Revoked => "has been revoked",
        Cause::InvalidPurpose | Cause::InvalidPurposeContext { .. } => "is not for servers",
        Cause::BadEncoding => "cannot be read",
        // These have no name but in the library below.
        Cause::Other(other) => match other.to_string().as_str() {
            "CaUsedAsEndEntity" => {
                "is that of an authority, which cannot be a server's own: it needs one that an authority has signed"
            }
            "UnsupportedCertVersion" => VERSION,
            other => return format!("its certificate is not good: {other}"),
        },
        other => return format!("its certificate is not good: {other:?}"),
    };
    format!("its certificate {why}")
}

const VERSION: &str = "has not version 3 of X.509";

/// Why our own certificate and key cannot be shown to a server.
pub fn why_not_ours(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the key is not that of the certificate".into()
        }
        Error::InvalidCertificate(cause) => match cause {
            Cause::Other(other) if other.to_string() == "UnsupportedCertVersion" => {
                format!("the certificate {VERSION}")
            }
            Cause::BadEncoding => "the certificate cannot be read".into(),
            other => format!("the certificate is not good: {other:?}"),
        },
        Error::General(why) => format!("the key is not good: {why}"),
        other => other.to_string(),
    }
}
