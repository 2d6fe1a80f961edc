//! The stores beside each other: what holds for all of them is `conformance`; what only one of them can do or must survive has a
//! folder of its own. The servers are real ones, on loopback, with ports and directories of their own.

#[cfg(any(feature = "etcd", feature = "postgres"))]
mod certificates;
mod conformance;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "etcd", feature = "postgres"))]
#[cfg_attr(not(feature = "etcd"), allow(dead_code))]
mod proxy;
#[cfg(any(feature = "etcd", feature = "postgres"))]
#[cfg_attr(not(feature = "etcd"), allow(dead_code))]
mod sections;
#[cfg_attr(not(any(feature = "etcd", feature = "postgres")), allow(dead_code))]
mod servers;
#[path = "../it/support.rs"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod support;
