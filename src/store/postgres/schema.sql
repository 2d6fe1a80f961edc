-- The layout of the locks in a PostgreSQL database. `acquire` and `run` make it on first use, by the user's right to make a
-- schema; whoever has that right can also make it for others:
--   psql -f schema.sql -c 'grant usage on schema tenure to deployers' \
--     -c 'grant select, insert, update, delete on all tables in schema tenure to deployers' DATABASE
-- Moments are milliseconds since 1970 by the server's clock, durations are milliseconds.

create schema if not exists tenure;

-- One row: what belongs to the store as a whole. Every change locks it first, and so they come one after the other.
create table tenure.state (
  singleton boolean primary key default true check (singleton),
  -- The version of this layout.
  layout integer not null,
  -- The last number given out. Tickets and fences draw from this one counter, in the transaction that uses the number: a
  -- sequence would give it again after a crash.
  serial bigint not null
);

-- One request for locks, with its place in the line: first waiting, then held.
create table tenure.ticket (
  -- Its number: its place in the line.
  id bigint primary key,
  token bytea not null unique check (octet_length(token) = 16),
  -- Its locks, in order, compared byte for byte.
  names text[] collate "C" not null,
  state text not null check (state in ('waiting', 'held')),
  -- Of a `run`, which alone gives it back, or of whoever has the token.
  of_run boolean not null,
  mode text not null check (mode in ('exclusive', 'shared', 'slots')),
  -- With mode 'slots': how many may hold at once, and which of them this one is.
  slots integer check ((mode = 'slots') = (slots is not null)),
  slot integer,
  -- The fencing number, from the grant on.
  fence bigint check ((state = 'held') = (fence is not null)),
  ttl bigint not null check (ttl > 0),
  at_least bigint not null default 0,
  requested_at bigint not null,
  granted_at bigint,
  -- When it is over, unless it is renewed: of a waiting one, too.
  expires_at bigint not null,
  -- Until when it lives whatever else is true.
  earliest_end bigint,
  -- Who asked with --force that it be given up.
  revoked_by text,
  -- The token of the lease inside of which this request was made.
  enclosing bytea,
  -- By what those of its machine and user can see that its processes are dead, before its time has passed: a file there, and the
  -- bytes of it that its own process locks, and its job. Null where nothing but time tells.
  guard_file text,
  supervisor_byte bigint,
  tree_byte bigint,
  -- For people to read.
  uid bigint not null,
  host text not null,
  pid bigint not null,
  command text not null,
  directory text not null,
  note text,
  url text
) with (fillfactor = 50);

create index ticket_by_name on tenure.ticket using gin (names) with (fastupdate = off);

-- What happened, the oldest first: one row for each lease at its end, and for each request that was refused.
create table tenure.log (
  id bigint generated always as identity primary key,
  at bigint not null,
  event text not null,
  names text[] collate "C" not null,
  mode text not null,
  slots integer,
  slot integer,
  fence bigint,
  requested_at bigint not null,
  granted_at bigint,
  ended_at bigint,
  status integer,
  signal integer,
  reason text,
  by text,
  uid bigint not null,
  host text not null,
  pid bigint not null,
  command text not null,
  directory text not null,
  note text,
  url text
);

-- The counter begins with the clock, so that a database that is made anew goes on from where the old one was.
insert into tenure.state (layout, serial)
  values (1, floor(extract(epoch from clock_timestamp()) * 1000)::bigint);
