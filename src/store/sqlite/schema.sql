-- The layout of a lock database. Its version is pragma user_version; see src/store/sqlite/file.rs.

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
  id integer primary key,
  token blob not null unique check (length(token) = 16),
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
  -- The lease inside of which this request was made.
  enclosing integer,
  -- For people to read.
  uid integer not null,
  host text not null,
  pid integer not null,
  command text not null,
  directory text not null,
  note text
) strict;

-- The locks of a ticket: it has all of them, or waits for all of them.
create table claim (
  name text not null,
  ticket integer not null references ticket (id) on delete cascade,
  primary key (name, ticket)
) strict, without rowid;

create index claim_by_ticket on claim (ticket);

create index ticket_by_enclosing on ticket (enclosing) where enclosing is not null;
