//! The store in an etcd cluster.
