-- The epoch at which new sessions of a tenant begin. It is above all epochs of its deleted sessions whose tombstones are gone, so a session whose
-- id was used before continues no old number: the sandbox keeps the fence of a deleted session for longer than Postgres keeps its tombstone.
-- Only the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

alter table tenant add column epoch_floor bigint not null default 0;
