//! What connections do here that ureq's do not by themselves: hosts are looked up once, a request is sent in one piece, and who waits
//! for an answer hears a signal, for no longer than it wants to.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::time::Duration;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector, Transport,
};

use crate::wait;

/// How often it is looked for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// An agent whose requests end with [`io::ErrorKind::Interrupted`] where a signal ends the program, while they are to `heed` it,
/// and fail where no more of an answer comes within a limit.
pub fn agent(config: Config, addresses: Addresses, heed: Heed, limit: Limit) -> Agent {
    let connector =
        ().chain(TcpConnector::default())
            .chain(Heeding(heed, limit))
            .chain(RustlsConnector::default());
    Agent::with_parts(config, connector, addresses)
}

/// Whether signals are heeded now.
#[derive(Clone, Debug, Default)]
pub struct Heed(Arc<AtomicBool>);

impl Heed {
    pub fn set(&self, heeds: bool) {
        self.0.store(heeds, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long it is waited for more of an answer from now on, where that is not for ever.
#[derive(Clone, Debug, Default)]
pub struct Limit(Arc<AtomicU64>);

impl Limit {
    /// To the microsecond, and not zero.
    pub fn set(&self, most: std::time::Duration) {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        self.0.store(most.max(1), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        let most = self.0.load(Ordering::Relaxed);
        (most > 0).then(|| Duration::Exact(std::time::Duration::from_micros(most)))
    }
}

#[derive(Debug)]
struct Heeding(Heed, Limit);

impl<In: Transport> Connector<In> for Heeding {
    type Out = Connection<In>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        Ok(chained.map(|inner| Connection {
            inner,
            heed: self.0.clone(),
            limit: self.1.clone(),
            unsent: Vec::new(),
        }))
    }
}

/// One that is looked up from for a moment again and again, while signals are heeded. What is sent waits until an answer is wanted:
/// a server would be woken for the head of a request, and find that it has to wait for the rest.
#[derive(Debug)]
struct Connection<In> {
    inner: In,
    heed: Heed,
    limit: Limit,
    unsent: Vec<u8>,
}

impl<In: Transport> Connection<In> {
    fn send(&mut self, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let unsent = std::mem::take(&mut self.unsent);
        let mut rest = &unsent[..];
        while !rest.is_empty() {
            let output = self.inner.buffers().output();
            let (part, after) = rest.split_at(rest.len().min(output.len()));
            output[..part.len()].copy_from_slice(part);
            self.inner.transmit_output(part.len(), timeout)?;
            rest = after;
        }
        Ok(())
    }
}

impl<In: Transport> Transport for Connection<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        let output = &self.inner.buffers().output()[..amount];
        self.unsent.extend_from_slice(output);
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.send(timeout)?;
        let mut left = timeout;
        if let Some(most) = self.limit.get() {
            left.after = left.after.min(most);
        }
        while self.heed.is_set() && LOOK < left.after {
            let look = NextTimeout {
                after: LOOK,
                ..left
            };
            match self.inner.await_input(look) {
                Err(ureq::Error::Timeout(_)) => {}
                answered => return answered,
            }
            if wait::interruption().is_some() {
                return Err(io::Error::from(io::ErrorKind::Interrupted).into());
            }
            if let (Duration::Exact(all), Duration::Exact(look)) = (left.after, LOOK) {
                left.after = Duration::Exact(all.saturating_sub(look));
            }
        }
        self.inner.await_input(left)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

/// Where hosts are: looked up once, and again when one could not be reached, for it may be elsewhere by then.
#[derive(Clone, Debug, Default)]
pub struct Addresses(Arc<Mutex<HashMap<String, Vec<SocketAddr>>>>);

impl Addresses {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Vec<SocketAddr>>> {
        // It is whole after every statement, whatever panicked in between.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn forget(&self) {
        self.known().clear();
    }
}

impl Resolver for Addresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let mut found = self.empty();
        // Looking up takes a thread, for it may take long, even of what is an address already.
        if let Ok(address) = host.parse() {
            found.push(address);
            return Ok(found);
        }
        if let Some(known) = self.known().get(host) {
            for address in known {
                found.push(*address);
            }
            return Ok(found);
        }
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        self.known().insert(host.to_owned(), found.to_vec());
        Ok(found)
    }
}
