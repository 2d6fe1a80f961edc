//! Requests as keys: their names and their place in the line are those of etcd's own locks, so that `etcdctl lock` stands in the
//! same line; what is known of them is in their values.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::api::Kv;
use crate::duration::{from_millis, millis};
use crate::lock::{Held, Holder, LockName, Mode, Request, Standing, Token};
use crate::store::record::words_of;

/// Of the value's layout.
const VERSION: i64 = 1;

/// What all keys of a lock begin with.
pub fn line_of(prefix: &str, name: &LockName) -> Vec<u8> {
    format!("{prefix}{name}/").into_bytes()
}

/// The key of a request for a lock, by the number of its lease.
pub fn key_of(prefix: &str, name: &LockName, id: i64) -> Vec<u8> {
    format!("{prefix}{name}/{id:x}").into_bytes()
}

/// The beginning of keys that are no lock's: none has a control character in its name.
pub fn own_key(prefix: &str, name: &str) -> Vec<u8> {
    format!("{prefix}\u{1}tenure/{name}").into_bytes()
}

/// A number that no lease has yet, as it begins a token.
pub fn draw() -> std::io::Result<(i64, Token)> {
    let mut bytes = *Token::draw()?.as_bytes();
    bytes[0] &= 0x7f;
    // Zero means none.
    bytes[7] |= 1;
    let token = Token::from_bytes(bytes);
    Ok((id_of(&token), token))
}

/// The number of the lease with which a token began.
pub fn id_of(token: &Token) -> i64 {
    let mut id = [0; 8];
    id.copy_from_slice(&token.as_bytes()[..8]);
    i64::from_be_bytes(id)
}

/// What the value of a key says. Of a key of another program's it says nothing.
#[derive(Clone, Debug)]
pub struct Record {
    pub token: Token,
    pub names: Vec<LockName>,
    pub mode: Mode,
    /// It is a `run`'s, which looks after it.
    pub is_run: bool,
    pub ttl: Duration,
    pub at_least: Duration,
    /// Milliseconds of the wall clock since 1970, for people to read.
    pub requested_at: i64,
    pub granted_at: Option<i64>,
    /// None where it is the revision at which this was written.
    pub fence: Option<i64>,
    pub slot: Option<u32>,
    /// The number of the request inside of whose lease this was made.
    pub inside_of: Option<i64>,
    pub revoked_by: Option<String>,
    /// It was given back, and rests for what is left of its `at_least`.
    pub is_released: bool,
    pub holder: Holder,
}

impl Record {
    pub fn of(
        request: &Request,
        token: Token,
        inside_of: Option<i64>,
        is_run: bool,
        ttl: Duration,
        now: i64,
    ) -> Self {
        Self {
            token,
            names: request.names.clone(),
            mode: request.mode,
            is_run,
            ttl,
            at_least: request.at_least,
            requested_at: now,
            granted_at: None,
            fence: None,
            slot: None,
            inside_of,
            revoked_by: None,
            is_released: false,
            holder: request.holder.clone(),
        }
    }

    pub fn as_bytes(&self) -> Vec<u8> {
        let (mode, slots) = words_of(self.mode);
        let mut value = json!({
            "tenure": VERSION,
            "token": self.token.to_string(),
            "names": self.names.iter().map(LockName::as_str).collect::<Vec<_>>(),
            "mode": mode,
            "slots": slots,
            "run": self.is_run,
            "ttl_ms": millis(self.ttl),
            "at_least_ms": millis(self.at_least),
            "requested_at": self.requested_at,
            "granted_at": self.granted_at,
            "fence": self.fence,
            "slot": self.slot,
            "inside_of": self.inside_of.map(|id| format!("{id:x}")),
            "revoked_by": self.revoked_by,
            "released": self.is_released,
        });
        put_holder(&mut value, &self.holder);
        value.to_string().into_bytes()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        if value["tenure"].as_i64()? != VERSION {
            return None;
        }
        let duration = |key: &str| value[key].as_i64().map(from_millis);
        Some(Self {
            token: value["token"].as_str()?.parse().ok()?,
            names: names_of(&value)?,
            mode: mode_of(&value)?,
            is_run: value["run"].as_bool()?,
            ttl: duration("ttl_ms")?,
            at_least: duration("at_least_ms")?,
            requested_at: value["requested_at"].as_i64()?,
            granted_at: value["granted_at"].as_i64(),
            fence: value["fence"].as_i64(),
            slot: slot_of(&value),
            inside_of: value["inside_of"]
                .as_str()
                .and_then(|id| i64::from_str_radix(id, 16).ok()),
            revoked_by: value["revoked_by"].as_str().map(str::to_owned),
            is_released: value["released"].as_bool()?,
            holder: holder_of(&value)?,
        })
    }
}

pub fn slot_of(value: &Value) -> Option<u32> {
    value["slot"]
        .as_u64()
        .and_then(|slot| u32::try_from(slot).ok())
}

pub fn mode_of(value: &Value) -> Option<Mode> {
    Some(match value["mode"].as_str()? {
        "exclusive" => Mode::Exclusive,
        "shared" => Mode::Shared,
        "slots" => Mode::Slots(u32::try_from(value["slots"].as_u64()?).ok()?),
        _ => return None,
    })
}

/// None where there is none, or one that cannot be.
pub fn names_of(value: &Value) -> Option<Vec<LockName>> {
    let names = value["names"].as_array()?.iter();
    let names = names.map(|name| name.as_str()?.parse().ok());
    let names: Vec<LockName> = names.collect::<Option<_>>()?;
    (!names.is_empty()).then_some(names)
}

pub fn put_holder(value: &mut Value, holder: &Holder) {
    value["uid"] = holder.uid.into();
    value["host"] = holder.host.clone().into();
    value["pid"] = holder.pid.into();
    value["command"] = holder.command.clone().into();
    value["directory"] = holder.directory.clone().into();
    value["note"] = holder.note.clone().into();
    value["url"] = holder.url.clone().into();
}

pub fn holder_of(value: &Value) -> Option<Holder> {
    let number = |key: &str| value[key].as_u64().and_then(|n| u32::try_from(n).ok());
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    Some(Holder {
        uid: number("uid")?,
        host: text("host")?,
        pid: number("pid")?,
        command: text("command")?,
        directory: text("directory")?,
        note: text("note"),
        url: text("url"),
    })
}

/// One request in the line for one lock.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The lock in whose line it was found.
    pub name: LockName,
    /// By its key's name: the number of the lease with which it began.
    pub id: i64,
    pub kv: Kv,
    /// None for one of another program's.
    pub record: Option<Record>,
}

impl Ticket {
    /// In the line for a lock: none for what belongs to another whose name goes on where this one ends.
    pub fn in_line(prefix: &str, name: &LockName, kv: Kv) -> Option<Self> {
        let line = line_of(prefix, name);
        let id = kv.key.strip_prefix(&line[..])?;
        if id.contains(&b'/') {
            return None;
        }
        // Whatever else somebody put there is in the way of etcdctl, and so of us.
        let id = hexadecimal(id).unwrap_or(-kv.created);
        Some(Self {
            name: name.clone(),
            id,
            record: Record::read(&kv.value).filter(|record| record.names.contains(name)),
            kv,
        })
    }

    /// In whatever line: not what is no request for a lock, as far as can be told.
    pub fn anywhere(prefix: &str, kv: Kv) -> Result<Self, Kv> {
        let Some(name) = Self::name_of(prefix, &kv) else {
            return Err(kv);
        };
        let Some(ticket) = Self::in_line(prefix, &name, kv.clone()) else {
            return Err(kv);
        };
        if ticket.id > 0 && (ticket.record.is_some() || ticket.id == kv.lease) {
            Ok(ticket)
        } else {
            Err(kv)
        }
    }

    /// The lock in whose line a key is, wherever that is.
    fn name_of(prefix: &str, kv: &Kv) -> Option<LockName> {
        let rest = kv.key.strip_prefix(prefix.as_bytes())?;
        let slash = rest.iter().rposition(|byte| *byte == b'/')?;
        std::str::from_utf8(&rest[..slash]).ok()?.parse().ok()
    }

    /// Its place in the line.
    pub fn place(&self) -> i64 {
        self.kv.created
    }

    pub fn mode(&self) -> Mode {
        let record = self.record.as_ref();
        record.map_or(Mode::Exclusive, |record| record.mode)
    }

    pub fn names(&self) -> Vec<LockName> {
        match &self.record {
            Some(record) => record.names.clone(),
            None => vec![self.name.clone()],
        }
    }

    /// Of one that was granted, unless it is another program's: that is not written down anywhere.
    pub fn fence(&self) -> Option<i64> {
        let record = self.record.as_ref()?;
        record.granted_at?;
        Some(record.fence.unwrap_or(self.kv.modified))
    }

    pub fn is_released(&self) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| record.is_released)
    }

    pub fn is_run(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.is_run)
    }
}

/// In lower case, without zeros in front.
fn hexadecimal(digits: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(digits).ok()?;
    let number = i64::from_str_radix(text, 16).ok()?;
    (format!("{number:x}") == text).then_some(number)
}

/// Lines for locks as they were at one revision, each in order.
#[derive(Default)]
pub struct Lines(BTreeMap<LockName, Vec<Ticket>>);

impl Lines {
    /// A line that was read; in what order, does not matter.
    pub fn add(&mut self, name: LockName, tickets: impl IntoIterator<Item = Ticket>) {
        let line = self.0.entry(name).or_default();
        line.extend(tickets);
        line.sort_by_key(Ticket::place);
        line.dedup_by_key(|ticket| ticket.place());
    }

    /// Of all keys that there are, those that are requests; and what else is in the line of one, for it is in the way there.
    pub fn of_all(prefix: &str, kvs: impl IntoIterator<Item = Kv>) -> Self {
        let mut found: BTreeMap<LockName, Vec<Ticket>> = BTreeMap::new();
        let mut others = Vec::new();
        for kv in kvs {
            match Ticket::anywhere(prefix, kv) {
                Ok(ticket) => found.entry(ticket.name.clone()).or_default().push(ticket),
                Err(kv) => others.push(kv),
            }
        }
        for kv in others {
            if let Some(name) = Ticket::name_of(prefix, &kv)
                && let Some(line) = found.get_mut(&name)
            {
                line.extend(Ticket::in_line(prefix, &name, kv));
            }
        }
        let mut lines = Self::default();
        for (name, tickets) in found {
            lines.add(name, tickets);
        }
        lines
    }

    /// Forgets all from a place on.
    pub fn cut(&mut self, place: i64) {
        for line in self.0.values_mut() {
            line.retain(|ticket| ticket.place() < place);
        }
    }

    pub fn line(&self, name: &LockName) -> &[Ticket] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Every request once, however many locks it is for, in order.
    pub fn tickets(&self) -> Vec<&Ticket> {
        let mut all: Vec<&Ticket> = self.0.values().flatten().collect();
        all.sort_by_key(|ticket| ticket.place());
        all.dedup_by_key(|ticket| ticket.place());
        all
    }

    pub fn by_id(&self, id: i64) -> Option<&Ticket> {
        self.0.values().flatten().find(|ticket| ticket.id == id)
    }

    /// Whether a request holds its locks: it may enter, so it does, or will have in a moment.
    pub fn is_held(&self, ticket: &Ticket) -> bool {
        let record = ticket.record.as_ref();
        record.is_some_and(|record| record.granted_at.is_some())
            || self.is_free_for(&ticket.names(), ticket.mode(), ticket.place())
    }

    pub fn standing(&self, ticket: &Ticket) -> Standing {
        if ticket.is_released() {
            Standing::Resting
        } else if self.is_held(ticket) {
            Standing::Leased
        } else {
            Standing::Waiting
        }
    }

    /// As others are told of it. `remaining` is how long its lease has to go.
    pub fn shown(&self, ticket: &Ticket, remaining: Option<Duration>) -> Held {
        let standing = self.standing(ticket);
        let is_held = standing != Standing::Waiting;
        let record = ticket.record.as_ref();
        let ttl = record.map(|record| record.ttl);
        let inside_of = record.and_then(|record| self.by_id(record.inside_of?));
        Held {
            id: ticket.id,
            names: ticket.names(),
            mode: ticket.mode(),
            fence: ticket.fence().filter(|_| is_held),
            slot: record.and_then(|record| record.slot),
            holder: record.map_or_else(|| stranger(ticket), |record| record.holder.clone()),
            ttl: ttl.or(remaining).unwrap_or_default(),
            since: record.map_or(0, |record| {
                let granted_at = record.granted_at.filter(|_| is_held);
                granted_at.unwrap_or(record.requested_at)
            }),
            remaining: remaining.or(ttl).unwrap_or_default(),
            standing,
            orphan: None,
            revoked: record.is_some_and(|record| record.revoked_by.is_some()),
            guarded: ticket.is_run() && !ticket.is_released(),
            inside_of: inside_of.and_then(Ticket::fence),
        }
    }
}

/// Who holds a lock by another program, of which nothing else is known.
fn stranger(ticket: &Ticket) -> Holder {
    let command = match ticket.kv.lease {
        // No time ends it, and nobody who would.
        0 => format!(
            "a key without a lease, {}, which `release --force {}` deletes",
            String::from_utf8_lossy(&ticket.kv.key),
            ticket.name
        ),
        lease => format!("another client of etcd, with lease {lease:x}"),
    };
    Holder {
        uid: u32::MAX,
        host: String::new(),
        pid: 0,
        command,
        directory: String::new(),
        note: None,
        url: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::queue::{Verdict, Wanted};

    fn name(text: &str) -> LockName {
        text.parse().expect("a good name")
    }

    fn kv(key: &str, value: &[u8], created: i64, lease: i64) -> Kv {
        Kv {
            key: key.as_bytes().to_vec(),
            value: value.to_vec(),
            created,
            modified: created,
            lease,
        }
    }

    fn record(mode: Mode) -> Record {
        let request = Request {
            names: vec![name("a"), name("b")],
            mode,
            ttl: Duration::from_secs(10),
            at_least: Duration::ZERO,
            enclosing: Vec::new(),
            holder: Holder {
                uid: 1,
                host: "h".into(),
                pid: 2,
                command: "c".into(),
                directory: "/".into(),
                note: Some("n".into()),
                url: None,
            },
        };
        Record::of(
            &request,
            draw().expect("chance").1,
            None,
            true,
            request.ttl,
            7,
        )
    }

    #[test]
    fn a_value_is_read_as_it_was_written_and_what_is_not_ours_is_nobodys() {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Slots(3)] {
            let mut written = record(mode);
            written.fence = Some(1 << 60);
            written.inside_of = Some(0x7fff_0000_1111_2222);
            let read = Record::read(&written.as_bytes()).expect("ours");
            assert_eq!(format!("{read:?}"), format!("{written:?}"));
            assert_eq!(read.token, written.token);
        }
        for foreign in [&b""[..], b"x", b"{}", b"[1]", br#"{"tenure":2}"#] {
            assert!(Record::read(foreign).is_none());
        }
    }

    #[test]
    fn keys_are_those_of_etcds_own_locks() {
        let (id, token) = draw().expect("chance");
        assert!(id > 0 && token.to_string().starts_with(&format!("{id:016x}")));
        assert_eq!(key_of("ci/", &name("a b"), 0x1f), b"ci/a b/1f");
        let line = |key| Ticket::in_line("p/", &name("a"), kv(key, b"", 5, 0x1f));
        assert_eq!(line("p/a/1f").expect("in line").id, 0x1f);
        assert_eq!(line("p/a/x").expect("in line").id, -5);
        assert!(line("p/a/b/1f").is_none(), "of the lock a/b");
        let anywhere = |key, lease| Ticket::anywhere("p/", kv(key, b"", 5, lease));
        assert_eq!(
            anywhere("p/a/b/1f", 0x1f).expect("a lock").name,
            name("a/b")
        );
        for (key, lease) in [
            ("p/a/1f", 0),
            ("p/a/1F", 0x1f),
            ("p/a/01f", 0x1f),
            ("p/1f", 0x1f),
            ("q/a/1f", 0x1f),
        ] {
            assert!(anywhere(key, lease).is_err(), "{key}");
        }
        let bare = || kv("p/a/1f", b"", 5, 0);
        assert!(Lines::of_all("p/", [bare()]).tickets().is_empty());
        let lines = Lines::of_all("p/", [kv("p/a/2f", b"", 6, 0x2f), bare()]);
        let ids: Vec<i64> = lines.tickets().iter().map(|ticket| ticket.id).collect();
        assert_eq!(ids, [0x1f, 0x2f], "what is in a line is in the way there");
    }

    #[test]
    fn the_line_is_that_of_creation_and_a_stranger_is_exclusive() {
        let mut lines = Lines::default();
        let shared = record(Mode::Shared).as_bytes();
        let tickets = [
            kv("a/3", b"", 30, 3),
            kv("a/2", &shared, 20, 2),
            kv("a/1", &shared, 10, 1),
        ];
        let names = [name("a")];
        lines.add(
            names[0].clone(),
            tickets
                .into_iter()
                .filter_map(|kv| Ticket::in_line("", &names[0], kv)),
        );
        let ids =
            |tickets: Vec<&Ticket>| tickets.iter().map(|ticket| ticket.id).collect::<Vec<_>>();
        assert_eq!(ids(lines.tickets()), [1, 2, 3]);
        let wanted = |mode, place| Wanted {
            names: &names,
            mode,
            place,
            is_new: false,
        };
        let view = lines.view(0);
        let behind = |mode, place| match view.look(&wanted(mode, place)) {
            Verdict::Behind(tickets) => ids(tickets),
            _ => Vec::new(),
        };
        assert_eq!(behind(Mode::Shared, 20), [0; 0]);
        assert_eq!(behind(Mode::Exclusive, 30), [2]);
        let first = view.first_in_the_way(&wanted(Mode::Exclusive, 30));
        assert_eq!(ids(first), [1]);
        assert_eq!(behind(Mode::Shared, 40), [3]);
        let standings: Vec<_> = lines
            .tickets()
            .into_iter()
            .map(|ticket| lines.standing(ticket))
            .collect();
        assert_eq!(
            standings,
            [Standing::Leased, Standing::Leased, Standing::Waiting]
        );
    }
}
