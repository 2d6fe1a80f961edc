//! Requests and answers in etcd's own words: keys with their revisions, transactions, leases. In its JSON numbers are
//! strings, bytes are base64, and what is zero or false is left out.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::{Client, Fault};
use crate::clock::Moment;

/// How many keys are read at once of a range that may be long.
const PAGE: i64 = 1000;

/// A key as it was at the revision of an answer.
#[derive(Clone, Debug)]
pub struct Kv {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// The revision at which it was put first: its place among others.
    pub created: i64,
    pub modified: i64,
    /// Zero where none keeps it.
    pub lease: i64,
}

/// What came of a transaction.
pub struct Outcome {
    pub succeeded: bool,
    /// That of the whole store, which the transaction raised if it wrote.
    pub revision: i64,
    /// For each range that was read, in order.
    pub ranges: Vec<Vec<Kv>>,
}

/// Which keys are read.
#[derive(Clone, Copy)]
pub enum Pick {
    All,
    /// As many as that, of those which were created first.
    First(u32),
    /// The two that were created last.
    LastTwo,
}

fn bytes(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap_or_default();
    STANDARD.decode(text).unwrap_or_default()
}

fn number(text: &Value) -> i64 {
    match text {
        Value::String(text) => text.parse().unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}

fn text(bytes: &[u8]) -> Value {
    STANDARD.encode(bytes).into()
}

fn revision(answer: &Value) -> i64 {
    number(&answer["header"]["revision"])
}

fn kv(value: &Value) -> Kv {
    Kv {
        key: bytes(&value["key"]),
        value: bytes(&value["value"]),
        created: number(&value["create_revision"]),
        modified: number(&value["mod_revision"]),
        lease: number(&value["lease"]),
    }
}

fn kvs(range: &Value) -> Vec<Kv> {
    let all = range["kvs"].as_array();
    all.into_iter().flatten().map(kv).collect()
}

/// The end of the range of all keys that begin with this; the first that comes after them.
pub fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Of all keys that there are.
    vec![0]
}

/// A key as the beginning of a range: the empty one is written as the first that there can be.
fn beginning(prefix: &[u8]) -> Value {
    text(if prefix.is_empty() { &[0] } else { prefix })
}

/// All keys that begin with `prefix`, of those which were created before `before`.
pub fn range(prefix: &[u8], pick: Pick, before: Option<i64>) -> Value {
    let mut range = json!({ "key": beginning(prefix), "range_end": text(&end_of(prefix)) });
    if let Some(before) = before {
        range["max_create_revision"] = (before - 1).to_string().into();
    }
    match pick {
        Pick::All => {}
        Pick::First(count) => sort(&mut range, "ASCEND", count),
        Pick::LastTwo => sort(&mut range, "DESCEND", 2),
    }
    json!({ "request_range": range })
}

/// Of the keys that begin with `prefix` the first `count` that were created after a revision.
pub fn range_after(prefix: &[u8], count: u32, revision: i64) -> Value {
    let mut range = range(prefix, Pick::First(count), None);
    range["request_range"]["min_create_revision"] = (revision + 1).to_string().into();
    range
}

fn sort(range: &mut Value, order: &str, limit: u32) {
    range["sort_target"] = "CREATE".into();
    range["sort_order"] = order.into();
    range["limit"] = limit.to_string().into();
}

/// One key.
pub fn one(key: &[u8]) -> Value {
    json!({ "request_range": { "key": text(key) } })
}

/// Puts a key that lives as long as a lease does; for ever where that is zero.
pub fn put(key: &[u8], value: &[u8], lease: i64) -> Value {
    json!({ "request_put": { "key": text(key), "value": text(value), "lease": lease.to_string() } })
}

pub fn delete(key: &[u8]) -> Value {
    json!({ "request_delete_range": { "key": text(key) } })
}

/// A key was created at this revision; at 0, that there is none.
pub fn is_created_at(key: &[u8], revision: i64) -> Value {
    json!({
        "key": text(key), "target": "CREATE", "result": "EQUAL", "create_revision": revision.to_string()
    })
}

/// A key was not changed since it was seen.
pub fn is_unchanged(kv: &Kv) -> Value {
    is_written_at(&kv.key, kv.modified)
}

/// A key was put last at this revision.
pub fn is_written_at(key: &[u8], revision: i64) -> Value {
    json!({
        "key": text(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()
    })
}

/// No key that begins with this was put after a revision. Of deletions it knows nothing.
pub fn is_unchanged_since(prefix: &[u8], revision: i64) -> Value {
    json!({
        "key": beginning(prefix), "range_end": text(&end_of(prefix)),
        "target": "MOD", "result": "LESS", "mod_revision": (revision + 1).to_string()
    })
}

/// No key that begins with this was created before a revision.
pub fn is_none_before(prefix: &[u8], revision: i64) -> Value {
    json!({
        "key": beginning(prefix), "range_end": text(&end_of(prefix)),
        "target": "CREATE", "result": "GREATER", "create_revision": (revision - 1).to_string()
    })
}

/// A lease of the cluster's.
pub struct Living {
    pub remaining: Duration,
    pub granted: Duration,
    pub keys: Vec<Vec<u8>>,
}

impl Client {
    pub fn transact(
        &self,
        compare: &[Value],
        success: &[Value],
        failure: &[Value],
        bound: Duration,
    ) -> Result<Outcome, Fault> {
        let body = json!({ "compare": compare, "success": success, "failure": failure });
        let answer = self.call("kv/txn", &body, bound)?;
        let responses = answer["responses"].as_array().into_iter().flatten();
        let ranges = responses.filter_map(|response| response.get("response_range"));
        Ok(Outcome {
            succeeded: answer["succeeded"] == Value::Bool(true),
            revision: revision(&answer),
            ranges: ranges.map(kvs).collect(),
        })
    }

    /// All keys that begin with `prefix`, as of one revision, which is returned too.
    pub fn all(&self, prefix: &[u8], bound: Duration) -> Result<(Vec<Kv>, i64), Fault> {
        let mut found: Vec<Kv> = Vec::new();
        let mut body = json!({
            "key": beginning(prefix), "range_end": text(&end_of(prefix)), "limit": PAGE.to_string()
        });
        let mut at = None;
        loop {
            let answer = self.call("kv/range", &body, bound)?;
            let at = *at.get_or_insert(revision(&answer));
            let page = kvs(&answer);
            let next = page.last().map(|kv| [&kv.key[..], b"\0"].concat());
            found.extend(page);
            match next {
                Some(next) if answer["more"] == Value::Bool(true) => {
                    body["key"] = text(&next);
                    body["revision"] = at.to_string().into();
                }
                _ => return Ok((found, at)),
            }
        }
    }

    /// The revision of the store, and how many keys begin with `prefix`.
    pub fn count(&self, prefix: &[u8], bound: Duration) -> Result<(i64, i64), Fault> {
        let body = json!({
            "key": beginning(prefix), "range_end": text(&end_of(prefix)), "count_only": true
        });
        let answer = self.call("kv/range", &body, bound)?;
        Ok((revision(&answer), number(&answer["count"])))
    }

    /// Of the keys that begin with `prefix` as many as that, which were put before the others.
    pub fn oldest(&self, prefix: &[u8], most: i64, bound: Duration) -> Result<Vec<Kv>, Fault> {
        let body = json!({
            "key": beginning(prefix), "range_end": text(&end_of(prefix)), "limit": most.to_string(),
            "sort_target": "MOD", "sort_order": "ASCEND"
        });
        Ok(kvs(&self.call("kv/range", &body, bound)?))
    }

    /// Grants a lease of at least this time to live, and returns which time it got. That there is one already is no failure:
    /// the number is drawn by chance, so that it is ours, of a request whose answer was lost.
    pub fn grant(&self, id: i64, ttl: Duration, bound: Duration) -> Result<Duration, Fault> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let body = json!({ "ID": id.to_string(), "TTL": seconds.to_string() });
        match self.call("lease/grant", &body, bound) {
            Ok(answer) => Ok(seconds_of(&answer["TTL"])),
            Err(fault) if fault.is_lease_taken() => {
                let known = self.lease(id, bound)?;
                let over = || Fault::Away("the lease was over before the answer came".into());
                Ok(known.ok_or_else(over)?.granted)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Counts a lease's time from now, and returns when it will have passed, counted from before this was sent, and how much it
    /// is; none when there is no such lease.
    pub fn keep_alive(
        &self,
        id: i64,
        bound: Duration,
    ) -> Result<Option<(Moment, Duration)>, Fault> {
        let sent = Moment::now();
        let answer = self.call("lease/keepalive", &json!({ "ID": id.to_string() }), bound)?;
        let ttl = seconds_of(&answer["TTL"]);
        Ok((!ttl.is_zero()).then_some((sent, ttl)))
    }

    /// Ends a lease, and with it its keys. False when there was none.
    pub fn revoke(&self, id: i64, bound: Duration) -> Result<bool, Fault> {
        match self.call("lease/revoke", &json!({ "ID": id.to_string() }), bound) {
            Ok(_) => Ok(true),
            Err(fault) if fault.is_no_lease() => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// None when there is no such lease.
    pub fn lease(&self, id: i64, bound: Duration) -> Result<Option<Living>, Fault> {
        let body = json!({ "ID": id.to_string(), "keys": true });
        let answer = match self.call("lease/timetolive", &body, bound) {
            Ok(answer) => answer,
            Err(fault) if fault.is_no_lease() => return Ok(None),
            Err(fault) => return Err(fault),
        };
        if number(&answer["TTL"]) < 0 {
            return Ok(None);
        }
        let keys = answer["keys"].as_array().into_iter().flatten();
        Ok(Some(Living {
            remaining: seconds_of(&answer["TTL"]),
            granted: seconds_of(&answer["grantedTTL"]),
            keys: keys.map(bytes).collect(),
        }))
    }
}

fn seconds_of(text: &Value) -> Duration {
    Duration::from_secs(u64::try_from(number(text)).unwrap_or(0))
}

/// What is asked of a watch: to be told of all that becomes of a key after a revision.
pub fn watch(key: &[u8], after: i64) -> Value {
    json!({ "create_request": { "key": text(key), "start_revision": (after + 1).to_string() } })
}

/// The same of all keys that begin with `prefix`, and only of those that are deleted.
pub fn watch_for_ends(prefix: &[u8], after: i64) -> Value {
    let mut watch = watch(prefix, after);
    watch["create_request"]["range_end"] = text(&end_of(prefix));
    watch["create_request"]["filters"] = json!(["NOPUT"]);
    watch
}

/// What a watch tells.
#[derive(Debug)]
pub enum Change {
    Put(Kv),
    Deleted(Vec<u8>),
}

/// What an answer of a watch tells; none when the watch is over.
pub fn changes(answer: &Value) -> Option<Vec<Change>> {
    let result = &answer["result"];
    if result["canceled"] == Value::Bool(true) || result.is_null() {
        return None;
    }
    let events = result["events"].as_array().into_iter().flatten();
    let change = |event: &Value| match kv(&event["kv"]) {
        gone if event["type"] == "DELETE" => Change::Deleted(gone.key),
        put => Change::Put(put),
    };
    Some(events.map(change).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_where_its_prefix_does() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff\xff"), b"b");
        assert_eq!(end_of(b"\xff"), [0]);
        assert_eq!(end_of(b""), [0]);
    }

    #[test]
    fn numbers_are_strings_and_what_is_missing_is_zero() {
        let found = kvs(&json!({ "kvs": [{
            "key": "YS8xMjM=", "create_revision": "9007199254740993", "lease": "7587872343432"
        }] }));
        assert_eq!(found[0].key, b"a/123");
        assert_eq!(found[0].created, 9_007_199_254_740_993);
        assert_eq!((found[0].modified, found[0].lease), (0, 7_587_872_343_432));
        assert!(found[0].value.is_empty());
    }

    #[test]
    fn a_watch_that_was_cancelled_is_over() {
        let of = |answer: Value| changes(&answer);
        assert!(of(json!({ "result": { "created": true } })).is_some_and(|told| told.is_empty()));
        let compacted = json!({ "result": { "canceled": true, "compact_revision": "9" } });
        assert!(of(compacted).is_none());
        assert!(of(json!({ "error": { "message": "x" } })).is_none());
        let events = [
            json!({ "type": "DELETE", "kv": { "key": "YQ==", "mod_revision": "7" } }),
            json!({ "kv": { "key": "Yg==", "create_revision": "5", "mod_revision": "7" } }),
        ];
        let told = of(json!({ "result": { "events": events } })).expect("it goes on");
        let [Change::Deleted(gone), Change::Put(put)] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!((&gone[..], &put.key[..]), (&b"a"[..], &b"b"[..]));
        assert_eq!((put.created, put.modified), (5, 7));
    }
}
