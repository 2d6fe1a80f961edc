-- The layout of a lock database. Its version is pragma user_version; see src/store/sqlite/file.rs.
-- A grant and a release are the price of every `run`: each table or index that they touch is a page more to write.

-- One row: what belongs to the store as a whole.
create table store (
  singleton integer primary key check (singleton = 1),
  -- The last number given out. Tickets and fences draw from this one counter, so none is ever used twice.
  serial integer not null,
  -- The boot under which the store was last written to, where it could be told.
  boot_id text
) strict;

-- One request for locks, with its place in the line: first waiting, then held.
create table ticket (
  token blob primary key check (length(token) = 16),
  -- Its number: its place in the line.
  id integer not null,
  -- Its locks, one a line, in order. The same as the names of its claims.
  names text not null,
  state text not null check (state in ('waiting', 'held')),
  mode text not null check (mode in ('exclusive', 'shared', 'slots')),
  -- With mode 'slots': how many may hold at once, and which of them this one is.
  slots integer check ((mode = 'slots') = (slots is not null)),
  slot integer,
  -- The fencing number, from the grant on.
  fence integer check ((state = 'held') = (fence is not null)),
  -- Durations in milliseconds. Moments in milliseconds: on the clock since boot `boot_id`, and since 1970.
  ttl integer not null check (ttl > 0),
  at_least integer not null default 0,
  boot_id text,
  requested_at integer not null,
  granted_at integer,
  expires_boot integer,
  expires_wall integer,
  earliest_end_boot integer,
  earliest_end_wall integer,
  -- The bytes of the guard file that vouch for it; all null for a bare lease.
  guard_inode integer,
  waiting_byte integer,
  supervisor_byte integer,
  tree_byte integer,
  -- Who asked with --force that it be given up.
  revoked_by text,
  -- The token of the lease inside of which this request was made.
  enclosing blob,
  -- For people to read.
  uid integer not null,
  host text not null,
  pid integer not null,
  command text not null,
  directory text not null,
  note text,
  url text,
  -- Whether it is of a `run`, which alone ends it, or of whoever has the token. The bytes do not tell: where nothing is vouched
  -- for, a `run` has none. The last column, as one that was added by an update is; see file.rs.
  of_run integer not null default 0 check (of_run in (0, 1))
) strict, without rowid;

create index ticket_by_enclosing on ticket (enclosing) where enclosing is not null;

-- The locks of the tickets, each in the order of its line: a ticket has all of its locks, or waits for all of them.
create table claim (
  name text not null,
  ticket integer not null,
  token blob not null,
  primary key (name, ticket)
) strict, without rowid;

-- What happened, the oldest first: one row for each lease at its end, and for each request that was refused. A table
-- that only grows at its end costs one page a transaction, and an index would cost another. The columns that are
-- searched stand first, and the moments are milliseconds since 1970.
create table log (
  id integer primary key,
  at integer not null,
  event text not null,
  names text not null,
  mode text not null,
  slots integer,
  slot integer,
  fence integer,
  requested_at integer not null,
  granted_at integer,
  ended_at integer,
  status integer,
  signal integer,
  reason text,
  by text,
  uid integer not null,
  host text not null,
  pid integer not null,
  command text not null,
  directory text not null,
  note text,
  url text
) strict;
